"""Answers the daemon's clients: hooks, the status line, the API."""
