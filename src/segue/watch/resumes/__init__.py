"""What the daemon does when a session has stopped."""
