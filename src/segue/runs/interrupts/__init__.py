"""Interrupts the loop of a run from outside."""
