"""Agents that the user describes in config.toml."""
