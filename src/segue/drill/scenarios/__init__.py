"""Scenarios: their types, their loader, and the bundled ones."""
