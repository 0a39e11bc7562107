"""What the daemon does when a session stopped."""
