"""Markdown sessions with YAML front matter."""
