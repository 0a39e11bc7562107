"""What the daemon does when a session in a terminal is full."""
