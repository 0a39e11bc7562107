"""Sessions that died without segue: found, and listed."""
