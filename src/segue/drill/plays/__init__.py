"""Plays: an agent, a scenario, a scratch folder, and the result."""
