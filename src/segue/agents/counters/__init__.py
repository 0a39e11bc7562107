"""One counter an agent, imported when there is something to count."""
