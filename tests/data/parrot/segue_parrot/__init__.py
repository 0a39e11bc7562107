"""Parrot: all that segue must know about this agent."""
