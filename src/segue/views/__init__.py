"""What people and programs are shown: gauges, tables, durations, JSON shapes."""
