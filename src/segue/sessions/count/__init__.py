"""Whole session files, counted once and indexed."""
