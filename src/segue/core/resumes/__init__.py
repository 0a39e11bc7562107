"""Decides whether a stopped session may be resumed without its user. Pure."""
