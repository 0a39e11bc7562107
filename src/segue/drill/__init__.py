"""Rehearsals: agents against a scripted model on loopback, with no account."""
