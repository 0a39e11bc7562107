"""Tasks that are to be done: what is known of them, and which may start now."""
