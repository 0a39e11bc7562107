"""Everything that touches the outside world."""
