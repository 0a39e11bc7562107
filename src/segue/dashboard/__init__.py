"""`segue dashboard`: pages on loopback, served by a separate process (docs/dashboard.md)."""
