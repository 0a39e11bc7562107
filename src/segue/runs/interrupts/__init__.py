"""What ends the loop of a run from outside."""
