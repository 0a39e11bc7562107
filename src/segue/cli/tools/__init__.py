"""Commands that set segue up, check it and rehearse it."""
