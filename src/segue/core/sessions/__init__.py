"""How full a session is, how fast it fills up, and which zone it is in. Pure."""
