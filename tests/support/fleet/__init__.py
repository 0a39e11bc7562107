"""Machines, a database and a queue for tests."""
