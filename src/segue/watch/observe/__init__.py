"""What the daemon sees: files, processes, sizes, ends."""
