"""What is done next in a run? Pure: facts in, decisions out."""
