"""Daemons for tests, and who asks them."""
