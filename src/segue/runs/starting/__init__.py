"""How does a run start? From what the user wants to a loop that is ready to run."""
