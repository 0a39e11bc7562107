"""A run as a collector is told of it."""
