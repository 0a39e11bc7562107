"""Plain text: unwrapped, cut into units, and each unit given a voice."""
