"""Agents by entry point: the group `segue.agents` names a package for each, built-in or not.

    [project.entry-points."segue.agents"]
    parrot = "segue_parrot"

Such a package has the modules of a folder in `segue/agents/`: `profile` (`PROFILE`), and optionally
`drive` (`DRIVE`), `terminal` (`TERMINAL`), `counter` (`COUNTER`) and `cast` (`CAST`). Each is
imported when it is asked for. The built-in agents are listed below instead of searched for; a test
compares the list with the entry points.

Importing `importlib.metadata` would take 20 ms of every `segue status`, so the entry points are
read here, from the files that installers write.
"""

import os
import sys
from functools import cache
from importlib import import_module

from segue.errors import ConfigError

GROUP = "segue.agents"
BUILT_IN: dict[str, tuple[str, ...]] = {
    "claude": ("drive", "terminal", "counter", "cast"),
    "codex": ("drive", "terminal", "counter", "cast"),
    "opencode": ("drive", "terminal", "counter", "cast"),
    "gemini": ("drive", "counter", "cast"),
    "pi": ("drive", "counter", "cast"),
    "qwen": ("counter",),
    "copilot": (),
    "kimi": (),
    "goose": (),
}
"""The agents that come with segue, and the modules that each folder has besides its profile, so
that nothing has to be imported to find out."""
_MAX_BYTES = 200_000
_STANDARD_LIBRARY = os.path.dirname(os.__file__)


class BrokenPluginError(ConfigError):
    """A plug-in cannot be loaded; the text says which, and why."""


@cache
def added() -> dict[str, str]:
    """The packages of agents that others have installed, by name. Built-in agents are not included:
    nobody can take their names."""
    found: dict[str, str] = {}
    for place in dict.fromkeys(sys.path):
        if place == _STANDARD_LIBRARY:
            continue
        for name, package in _in_folder(place or os.curdir):
            if name not in BUILT_IN:
                found.setdefault(name, package)
    return found


def built_in_with(module: str) -> tuple[str, ...]:
    """The agents that come with segue and have this module."""
    return tuple(name for name, modules in BUILT_IN.items() if module in modules)


def package_of(name: str) -> str | None:
    """The package of an agent, or None if it is not installed."""
    return f"{GROUP}.{name}" if name in BUILT_IN else added().get(name)


def part(name: str, module: str, attribute: str) -> object | None:
    """An attribute of a module in an agent's package, or None if there is no such module. Raises
    BrokenPluginError if the package is not segue's own and cannot be imported."""
    package = package_of(name)
    if package is None:
        return None
    if name in BUILT_IN:
        return _own_part(package, module, attribute)
    from importlib.util import find_spec

    try:
        if find_spec(f"{package}.{module}") is None:
            return None
        found: object = getattr(import_module(f"{package}.{module}"), attribute)
    except Exception as fault:  # foreign code may raise anything
        message = f"{type(fault).__name__}: {fault}".splitlines()[0]
        where = f"the plug-in {name} ({package}.{module})"
        raise BrokenPluginError(
            f"{where} cannot be loaded: {message}; update or uninstall it"
        ) from None
    return found


def _own_part(package: str, module: str, attribute: str) -> object | None:
    try:
        found: object = getattr(import_module(f"{package}.{module}"), attribute)
    except ModuleNotFoundError as fault:
        if fault.name != f"{package}.{module}":
            raise
        return None
    return found


def _in_folder(folder: str) -> list[tuple[str, str]]:
    try:
        names = [name for name in os.listdir(folder) if name.endswith(".dist-info")]
    except OSError:
        return []
    found = []
    for name in sorted(names):
        try:  # every command looks into each package: a file object would cost twice as much
            file = os.open(f"{folder}/{name}/entry_points.txt", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            text = os.read(file, _MAX_BYTES)
        except OSError:
            continue
        finally:
            os.close(file)
        if GROUP.encode() in text:
            found += _of_group(text.decode("utf-8", "replace"))
    return found


def _of_group(text: str) -> list[tuple[str, str]]:
    """The entries of the group in an `entry_points.txt`."""
    found, inside = [], False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{GROUP}]"
        elif inside and "=" in line and not line.startswith("#"):
            name, _, package = line.partition("=")
            found.append((name.strip().lower(), package.strip()))
    return found
