"""Runs for tests, and whoever ends them."""
