"""Files: reading, following, locking, editing."""
