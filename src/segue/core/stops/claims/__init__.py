"""What a message claims if no wording matches it, and whether a plain line is a message at all."""
