"""Why did it stop? Pure code: takes text, records and exit codes, and returns one stop."""
