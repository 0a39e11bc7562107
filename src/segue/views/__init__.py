"""Output for people and programs: gauges, tables, durations, JSON shapes."""
