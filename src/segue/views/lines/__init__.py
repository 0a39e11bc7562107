"""Logs as lines: a run's, and the daemon's notes."""
