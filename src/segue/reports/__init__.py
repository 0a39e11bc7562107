"""What came of the work, as data: of a run, of a night, of all figures. Changes nothing."""
