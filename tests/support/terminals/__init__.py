"""Terminals for tests, and what runs in them."""
