"""Opencode: everything that segue knows about this agent."""
