"""Headless sessions of a simulated world: `segue run` with models in the place of agents."""
