"""How full is a session, how fast does it fill, which zone is it in? Pure."""
