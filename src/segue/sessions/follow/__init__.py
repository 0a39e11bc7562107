"""Session files as they grow."""
