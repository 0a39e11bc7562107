"""tmux: panes, what they show, and typing into them."""
