"""The registry of agents that segue can drive, including plug-ins and the user's own.

Each agent's folder has one `DRIVE`, which is imported when it is needed.
"""

from segue.agents import canonical, plugins
from segue.agents.contracts.drive import Drive

NAMES = plugins.built_in_with("drive")
"""The agents that come with segue and that it can drive."""

_loaded: dict[str, Drive] = {}


def find(name: str) -> Drive | None:
    """How to drive an agent, by name or alias; None if segue cannot drive it."""
    return _loaded.get(canonical(name)) or built_in(name)


def built_in(name: str) -> Drive | None:
    """Like `find`, but ignores registered drives: only one that comes with segue, or a
    plug-in's."""
    key = canonical(name)
    if key in plugins.BUILT_IN and key not in NAMES:
        return None
    found = plugins.part(key, "drive", "DRIVE")
    return found if isinstance(found, Drive) else None


def register(name: str, drive: Drive) -> None:
    """Adds a drive, or replaces one of the same name."""
    _loaded[canonical(name)] = drive


def names() -> list[str]:
    """All names that `find` finds."""
    added = [name for name in plugins.added() if _is_driven(name)]
    return list(dict.fromkeys((*NAMES, *added, *_loaded)))


def _is_driven(name: str) -> bool:
    try:
        return built_in(name) is not None
    except plugins.BrokenPluginError:
        return False
