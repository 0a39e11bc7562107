"""`segue dashboard`: pages at loopback, by a process of its own (docs/dashboard.md)."""
