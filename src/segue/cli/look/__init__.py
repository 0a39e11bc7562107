"""Commands that show sessions and explain stops."""
