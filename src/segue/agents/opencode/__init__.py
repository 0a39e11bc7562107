"""Opencode: all that segue knows about this agent."""
