"""Removes secrets from text. Pure code."""
