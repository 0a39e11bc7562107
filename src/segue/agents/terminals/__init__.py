"""The agents whose TUIs segue can read and type into.

Each agent has one file with one `TERMINAL`, imported when asked for.
"""

from importlib import import_module

from segue.agents import canonical
from segue.agents.terminal import Terminal

NAMES = ("claude", "codex", "opencode")


def find(name: str) -> Terminal | None:
    """How that agent sits in a terminal, by name or alias; None for one that segue only watches."""
    key = canonical(name)
    if key not in NAMES:
        return None
    found: Terminal = import_module(f"segue.agents.terminals.{key}").TERMINAL
    return found
