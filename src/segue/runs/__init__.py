"""Drives one run: facts in, decisions carried out. One process, one thread, one loop."""
