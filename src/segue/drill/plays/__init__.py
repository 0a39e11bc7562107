"""Plays: an agent, a scenario, a scratch folder, and what came of it."""
