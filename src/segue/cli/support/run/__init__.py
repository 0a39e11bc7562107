"""What the commands that start a run share."""
