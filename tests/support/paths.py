"""Where things of the tests lie."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data"
ROOT = TESTS.parent
SCRIPT = str(TESTS / "script.py")
"""Runs a file of the tests as a program: `[sys.executable, SCRIPT, FILE, …]`."""
