"""Secrets out of text. Pure."""
