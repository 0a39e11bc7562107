"""A run as its user sees it: while it works, and what came of it."""
