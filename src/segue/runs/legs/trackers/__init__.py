"""What is known about a leg while it runs: one tracker for each thing its follower watches."""
