"""What an agent's folder provides: one contract a file."""
