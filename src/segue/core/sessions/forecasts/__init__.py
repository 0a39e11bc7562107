"""How fast does a session fill up, when is it full, and what still fits? Pure."""
