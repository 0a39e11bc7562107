"""Whom the daemon answers: hooks, the status line, the API."""
