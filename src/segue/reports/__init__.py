"""Results as data: of one run, of a period such as a night, and as figures. Reads only."""
