"""What an agent's folder provides: one contract per file."""
