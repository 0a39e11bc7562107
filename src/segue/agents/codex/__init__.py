"""Codex: everything that segue knows about this agent."""
