"""Finds the sessions on this machine, of every agent and in each of its homes."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from segue import agents
from segue.agents.places import SessionStore

if TYPE_CHECKING:
    from segue.agents.contracts.profile import Profile

MARKDOWN = "markdown"
"""Not an agent's own format: sessions that a workflow stores as Markdown with front matter."""

_DEFAULTS = {
    "PI_CODING_AGENT_DIR": "~/.pi/agent",
    "XDG_CONFIG_HOME": "~/.config",
    "XDG_DATA_HOME": "~/.local/share",
    "XDG_STATE_HOME": "~/.local/state",
}
_IN_MEMORY = ":memory:"  # SQLite's name for a database without a file
_MARKDOWN_STORE = SessionStore(homes=("~/.opencode",), files=("*.md", "*/*.md"))

Stamp = tuple[int, int, int, int]
"""Device, inode, size and time: they identify the state of a file."""


class FileOnDisk(NamedTuple):
    """A session file, or a database with sessions, as it is on disk now."""

    agent: str
    home: str
    path: str
    session_id: str  # "" if only the records name it
    parent_id: str  # of a sub-agent's file; "?" if only the records name it
    stamp: Stamp

    @property
    def size(self) -> int:
        """In bytes."""
        return self.stamp[2]

    @property
    def is_document(self) -> bool:
        """Whether it is one JSON object instead of one record per line."""
        return self.path.endswith(".json")

    @property
    def changed_at(self) -> float:
        """Unix time."""
        return self.stamp[3] / 1e9


class Home(NamedTuple):
    """One agent's folder."""

    agent: str
    path: str
    store: SessionStore


def homes(
    environment: Mapping[str, str], added: Mapping[str, Iterable[str]] | None = None
) -> list[Home]:
    """The folders to search, each once: those from the environment or the defaults, and those that
    the user's config adds. Missing folders are left out."""
    found: dict[tuple[str, str], Home] = {}
    for name, store in _stores():
        places = [*_places(store, environment), *((added or {}).get(name) or ())]
        for place in places:
            path = filled(place, environment)
            if "\0" in path:
                continue  # no folder can have such a name
            path = os.path.realpath(path)
            if store.database and os.path.isfile(path):  # the file itself is named, not its folder
                folder, file = os.path.split(path)
                found.setdefault((name, path), Home(name, folder, store._replace(database=file)))
            elif os.path.isdir(path):
                found.setdefault((name, path), Home(name, path, store))
    return list(found.values())


def _stores() -> Iterator[tuple[str, SessionStore]]:
    yield from agents.stores().items()
    yield MARKDOWN, _MARKDOWN_STORE


def _places(store: SessionStore, environment: Mapping[str, str]) -> Iterator[str]:
    for variable, below in store.variables:
        if value := environment.get(variable, "").strip():
            for place in filter(None, map(str.strip, value.split(","))):
                if not store.database or os.path.isabs(place):
                    yield os.path.join(place, below)
                elif place != _IN_MEMORY:  # otherwise it is below the agent's own folder
                    yield from (os.path.join(home, place) for home in store.homes)
            return
    yield from store.homes


def filled(place: str, environment: Mapping[str, str]) -> str:
    """A path with `~` and variables expanded."""
    for name, default in _DEFAULTS.items():
        if f"${name}" in place:
            place = place.replace(f"${name}", environment.get(name) or default)
    if place == "~" or place.startswith("~/"):
        place = (environment.get("HOME") or os.path.expanduser("~")) + place[1:]
    return place


def sessions(places: Iterable[Home]) -> list[FileOnDisk]:
    """All session files, sorted by path; a file with two names is found once, under the first name
    in the first home."""
    found: dict[tuple[int, int], FileOnDisk] = {}
    for home in places:
        patterns = (home.store.database,) if home.store.database else home.store.files
        for pattern in patterns:
            entries: list[os.DirEntry[str]] = []
            _match(home.path, pattern.split("/"), entries)
            for entry in sorted(entries, key=attrgetter("path")):
                _take(home, entry, found)
    return sorted(found.values(), key=attrgetter("path"))


def _take(home: Home, entry: "os.DirEntry[str]", found: dict[tuple[int, int], FileOnDisk]) -> None:
    try:
        info = entry.stat()
    except OSError:  # gone meanwhile, a loop of links, or not accessible
        return
    if not stat.S_ISREG(info.st_mode) or (info.st_dev, info.st_ino) in found:
        return
    if not entry.path.isascii():
        try:
            entry.path.encode()
        # no agent gives such names, and neither the index nor JSON can store them
        except UnicodeEncodeError:
            return
    size, changed_ns = info.st_size, info.st_mtime_ns
    if home.store.database:  # the newest writes are in a file next to it
        try:
            log = os.stat(f"{entry.path}-wal")
            size, changed_ns = size + log.st_size, max(changed_ns, log.st_mtime_ns)
        except OSError:
            pass
    below = entry.path[len(home.path) + 1 :]
    found[info.st_dev, info.st_ino] = FileOnDisk(
        home.agent,
        home.path,
        entry.path,
        home.store.session_id(entry.name),
        home.store.parent_id(below),
        (info.st_dev, info.st_ino, size, changed_ns),
    )


def _match(folder: str, parts: list[str], found: "list[os.DirEntry[str]]") -> None:
    """Adds the entries below a folder that match a pattern; unreadable folders are skipped."""
    first, rest = parts[0], parts[1:]
    if rest and "*" not in first:
        _match(os.path.join(folder, first), rest, found)
        return
    is_deep = first == "**"
    ending = _ending(rest[0] if is_deep else first)
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if not (entry.name.endswith(ending) if ending else fnmatch(entry.name, first)):
            if is_deep and _is_dir(entry, follow=False):
                _match(entry.path, parts, found)
        elif is_deep or not rest:
            found.append(entry)
        elif _is_dir(entry, follow=True):
            _match(entry.path, rest, found)


def _ending(pattern: str) -> str:
    """The suffix of names that match this pattern, if the pattern is nothing but a suffix."""
    return pattern[1:] if pattern[0] == "*" and "*" not in pattern[1:] else ""


def _is_dir(entry: "os.DirEntry[str]", *, follow: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError:
        return False


def open_file(path: str) -> int:
    """Opens a session file without waiting for another process. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)


def project_folder(home: str, store: SessionStore, path: str) -> str:
    """The project's folder, if the agent stores it in a file of its own; "" if unknown."""
    import json

    try:
        with open(os.path.join(home, store.projects), encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError, RecursionError):
        return ""
    projects = known.get("projects") if isinstance(known, dict) else None
    parts = set(path[len(home) :].split("/"))
    for folder, name in (projects if isinstance(projects, dict) else {}).items():
        if isinstance(name, str) and name in parts:
            return str(folder)
    return ""


def profile_of(agent: str) -> "Profile | None":
    """The agent's profile; None for Markdown sessions."""
    return None if agent == MARKDOWN else agents.find(agent)
