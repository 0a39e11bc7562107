"""Kimi: all that segue knows about this agent."""
