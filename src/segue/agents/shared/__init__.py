"""What the folders of several agents share."""
