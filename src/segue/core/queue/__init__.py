"""Tasks in the queue: what is known about them, and which ones may start now."""
