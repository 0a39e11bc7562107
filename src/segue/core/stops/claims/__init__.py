"""What messages claim that no wording knows, and whether a plain line is a message at all."""
