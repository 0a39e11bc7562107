"""Runs git without running anything that a repository names."""
