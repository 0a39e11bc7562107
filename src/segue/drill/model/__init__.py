"""The scripted model: a server outside, a pure script inside."""
