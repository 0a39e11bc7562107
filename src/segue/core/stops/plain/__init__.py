"""Plain text: unwrapped, cut into units, with a voice for each unit."""
