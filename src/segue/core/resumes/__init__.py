"""May a stopped session be resumed without its user? Pure."""
