"""Commands that start and steer runs."""
