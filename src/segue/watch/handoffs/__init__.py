"""What the daemon does when the window of a session in a terminal is full."""
