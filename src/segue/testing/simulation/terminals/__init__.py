"""Sessions in terminals: users and agents in tmux are models; the daemon that watches them is the
real one, with its loop, its log, its handoffs and its resumes."""
