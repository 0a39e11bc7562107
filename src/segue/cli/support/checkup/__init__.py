"""What `segue doctor` checks."""
