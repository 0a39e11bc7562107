"""Rehearsals: agents that talk to a scripted model on loopback, without an account."""
