"""Code that several agents' folders share."""
