"""The pure core: no clock, files, processes, randomness or ids of its own."""
