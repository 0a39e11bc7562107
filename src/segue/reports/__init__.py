"""The results of the work, as data: of one run, of a night, and as figures. Changes nothing."""
