"""Input that means harm."""
