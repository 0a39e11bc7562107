"""Tasks in the queue. The worker, its plan, the carrier of a task and the queue itself are the real
ones; processes and trees are the world's."""
