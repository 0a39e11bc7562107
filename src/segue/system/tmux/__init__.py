"""tmux: panes, their content, and typing into them."""
