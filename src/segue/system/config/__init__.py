"""The user's settings, from every layer."""
