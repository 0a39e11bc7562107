"""Session files: what agents write about their own sessions, while they run and afterwards."""
