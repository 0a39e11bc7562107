"""Commands for the daemon and for agents in terminals."""
