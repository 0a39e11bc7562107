"""Session files and processes for tests."""
