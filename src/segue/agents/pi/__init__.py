"""Pi: everything that segue knows about this agent."""
