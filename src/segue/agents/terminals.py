"""The agents whose TUIs segue can read and type into.

Each agent's folder has one `TERMINAL`, imported when asked for.
"""

from segue.agents import canonical, plugins
from segue.agents.contracts.terminal import Terminal

NAMES = ("claude", "codex", "opencode")


def find(name: str) -> Terminal | None:
    """How that agent is in a terminal, by name or alias; None for one that segue only watches."""
    key = canonical(name)
    if key in plugins.BUILT_IN and key not in NAMES:
        return None
    found = plugins.part(key, "terminal", "TERMINAL")
    return found if isinstance(found, Terminal) else None
