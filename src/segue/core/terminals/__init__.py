"""What a terminal shows, and what it may be shown. Pure."""
