"""Decides what is carried over to the next session. Pure."""
