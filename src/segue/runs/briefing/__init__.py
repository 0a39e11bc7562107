"""What is a new leg told? Its prompt, and what is handed over from the legs before it."""
