"""Decides what happens next in a run. Pure: facts in, decisions out."""
