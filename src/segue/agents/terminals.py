"""The agents whose TUIs segue can read and type into.

Each agent's folder has one `TERMINAL`, imported when asked for.
"""

from segue.agents import canonical, plugins
from segue.agents.contracts.terminal import Terminal

NAMES = plugins.built_in_with("terminal")


def find(name: str) -> Terminal | None:
    """The terminal of an agent, by name or alias; None if segue can only watch the agent."""
    key = canonical(name)
    if key in plugins.BUILT_IN and key not in NAMES:
        return None
    found = plugins.part(key, "terminal", "TERMINAL")
    return found if isinstance(found, Terminal) else None
