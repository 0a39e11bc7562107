"""Agents for tests: stand-ins, rehearsals and real ones."""
