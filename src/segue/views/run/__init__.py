"""A run as its user sees it: while it works, and its result."""
