"""Where sessions are stored, and how the daemon learns about changes there: the homes, the
follower of their files, and the few folders in which agents keep databases and files about
their processes."""

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from segue.sessions import find
from segue.sessions.find import FileOnDisk, Home, Stamp
from segue.sessions.follow.follow import FileFollower
from segue.watch.observe.folders import Folders
from segue.watch.observe.processes import pid_files
from segue.watch.observe.viewer import Places

_FOLLOW_S = 60.0
_LINE_BYTES = 1 << 16  # lines are not read here, only that there are some


class HomeNews(NamedTuple):
    """What happened to a session's file: the kind of change, and more."""

    path: str
    kind: str
    more: str


class FolderEvents(NamedTuple):
    """Events of folders about databases and processes; `lost` if some are missing."""

    databases: set[str]
    pids: set[int]
    lost: bool


class SessionHomes:
    """The homes of all agents. `ring` is called, in another thread, when there is news."""

    def __init__(self, env: Mapping[str, str], ring: Callable[[], None]) -> None:
        self.homes: list[Home] = []
        self.places = Places(())
        self.folders = Folders()
        self.news: deque[HomeNews] = deque()
        self._env, self._ring = env, ring
        self._follower: FileFollower | None = None
        self._thread: threading.Thread | None = None
        self._pid_folders: set[str] = set()
        self._is_unwatched = False
        self._stamps: dict[str, Stamp] = {}  # of files that no follower covers

    @property
    def degraded(self) -> str:
        """Why there are no file events, in one line."""
        return self._follower.degraded if self._follower is not None else ""

    @property
    def is_blind(self) -> bool:
        """Whether some folder has no events, so that it must be polled."""
        return self._is_unwatched or self.folders.fileno() is None

    def has_moved(self, added: Mapping[str, Sequence[str]]) -> bool:
        """Whether the homes have changed, or are no longer followed."""
        is_followed = self._thread is not None and self._thread.is_alive()
        return not is_followed or find.homes(self._env, added) != self.homes

    def open(self, added: Mapping[str, Sequence[str]]) -> None:
        """Follows all current homes. Their existing content is not news."""
        self.homes = find.homes(self._env, added)
        self.places = places = Places(self.homes)
        if self._follower is not None:
            self._follower.close()
        roots = {root for home in self.homes if _is_followed(home) for root in _roots(home)}
        follower = self._follower = FileFollower(
            sorted(roots),
            lambda path: places.home_of(path) is not None,
            poll_s=_FOLLOW_S,
            line_bytes=_LINE_BYTES,
        )
        follower.step()
        self._thread = threading.Thread(target=self._follow, args=(follower,), daemon=True)
        self._thread.start()
        self._stamps = {}

    def close(self) -> None:
        """Closes everything."""
        if self._follower is not None:
            self._follower.close()
        self.folders.close()

    def _follow(self, follower: FileFollower) -> None:
        try:
            for batch in follower:
                self.news += [HomeNews(c.path, c.kind, c.was or c.why) for c in batch]
                self._ring()
        except Exception as fault:  # in any case: the next sweep starts over
            self.news.append(HomeNews("following files", "unreadable", str(fault) or repr(fault)))

    # Folders

    def watch_folders(self) -> None:
        """Watches the folders that exist now; calling it again is harmless."""
        self._is_unwatched = False
        for home in self.homes:
            files = pid_files(home)
            if files is not None:
                folder = os.path.join(home.path, files.folder)
                if self._watches(folder):
                    self._pid_folders.add(folder)
            elif home.store.database:
                self._watches(home.path)

    def _watches(self, folder: str) -> bool:
        if self.folders.has(folder) or self.folders.add(folder):
            return True
        # The system has no more watches, unless there is nothing to watch.
        self._is_unwatched = self._is_unwatched or os.path.isdir(folder)
        return False

    def drain(self) -> FolderEvents:
        """The news since the last call."""
        events = FolderEvents(set(), set(), False)
        paths, lost = self.folders.drain()
        for path in paths:
            folder, name = os.path.split(path)
            stem = name.partition(".")[0]
            if folder in self._pid_folders:
                if stem.isdecimal() and stem.isascii():
                    events.pids.add(int(stem))
            elif self.database_home(path.removesuffix("-wal")) is not None:
                events.databases.add(path.removesuffix("-wal"))
        return events._replace(lost=lost)

    def database_home(self, path: str) -> Home | None:
        """The home that this database belongs to."""
        folder, name = os.path.split(path)
        fitting = (h for h in self.homes if h.store.database and h.path == folder)
        return next((h for h in fitting if fnmatchcase(name, h.store.database)), None)

    # Files

    def all(self) -> list[FileOnDisk]:
        """All of them."""
        return find.sessions(self.homes)

    def named(self, names: set[tuple[str, str]]) -> list[FileOnDisk]:
        """The files of these sessions, for agents whose file names contain the session's id."""
        agents = {agent for agent, _ in names}
        homes = [h for h in self.homes if h.agent in agents and h.store.files]
        return [f for f in find.sessions(homes) if (f.agent, f.session_id) in names]

    def changed_unfollowed(self) -> list[str]:
        """Databases that changed since the last call, and files in folders that are full of
        other things."""
        found = find.sessions([home for home in self.homes if not _is_followed(home)])
        changed = [file.path for file in found if self._stamps.get(file.path) != file.stamp]
        self._stamps = {file.path: file.stamp for file in found}
        return changed


def _roots(home: Home) -> set[Path]:
    """The parts of a home that contain session files."""
    firsts = {pattern.split("/")[0] for pattern in home.store.files}
    return {Path(home.path) if "*" in first else Path(home.path, first) for first in firsts}


def _is_followed(home: Home) -> bool:
    """Not where session files are next to anything else, at the top of a folder of any size."""
    files = home.store.files
    return bool(files) and any("**" in file or "*" not in file.split("/")[0] for file in files)
