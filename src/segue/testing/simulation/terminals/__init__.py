"""Sessions in terminals. Users and agents in tmux are models; the daemon that watches them is the
real one, with its loop, log, handoffs and resumes."""
