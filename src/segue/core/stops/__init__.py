"""Why did it stop? Pure: text, records and exit codes in, one stop out."""
