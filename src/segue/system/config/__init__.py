"""What the user has set, from every layer."""
