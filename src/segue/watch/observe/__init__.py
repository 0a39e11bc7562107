"""What the daemon observes: files, processes, sizes, exits."""
