"""Drives one run: takes in facts and carries out decisions. One process, one thread, one loop."""
