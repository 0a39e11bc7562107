"""The scripted model: a server around a pure script."""
