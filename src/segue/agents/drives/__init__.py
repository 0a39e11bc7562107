"""The agents that segue can drive, in one registry; the user's own are registered the same way.

Each agent has one file with one `DRIVE`, imported when asked for.
"""

from importlib import import_module

from segue.agents import canonical
from segue.agents.drive import Drive

NAMES = ("claude", "codex", "opencode", "gemini", "pi")
"""Those that come with segue."""

_loaded: dict[str, Drive] = {}


def find(name: str) -> Drive | None:
    """How an agent is driven, by name or alias; None for one that segue cannot drive."""
    return _loaded.get(canonical(name)) or built_in(name)


def built_in(name: str) -> Drive | None:
    """The same, whatever was registered."""
    key = canonical(name)
    if key not in NAMES:
        return None
    found: Drive = import_module(f"segue.agents.drives.{key}").DRIVE
    return found


def register(name: str, drive: Drive) -> None:
    """Adds one, or replaces one of the same name."""
    _loaded[canonical(name)] = drive


def names() -> list[str]:
    """All that `find` finds."""
    return [*NAMES, *(name for name in _loaded if name not in NAMES)]
