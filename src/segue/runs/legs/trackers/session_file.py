"""Follows the session file of a leg in addition to its stream: its size, and what only the file
says."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress

from segue.agents.contracts.drive import Drive
from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared.live import Live
from segue.core.sessions.look import TailLook, look_at
from segue.core.sessions.types import Look
from segue.core.stops.events import Event, Usage
from segue.sessions import find, tail
from segue.system.files.stream import Tail

_LOOK_S = 0.25  # a stat; the size must be known within a second
_READS = 16  # some megabytes: an agent that writes faster must not delay a run


class SessionFileTracker:
    """One leg's session file, looked at about four times a second.

    `path` is "" until the location of the file is known. If the agent's drive says that the file
    reports calls (`calls_from`), `events` returns its events, each once, from `file_from` on, which
    is the size of the file when the leg began; if it reports compactions (`compaction_mark`), only
    those. Problems with the file raise nothing.
    """

    def __init__(
        self, drive: Drive, profile: Profile, *, env: Mapping[str, str], cwd: str, file_from: int
    ) -> None:
        self.path = ""
        self._drive, self._profile, self._env, self._cwd = drive, profile, env, cwd
        self._from = file_from
        self._looked_at = float("-inf")
        self._stamp: tuple[int, int] | None = None
        self._tail: Tail | None = None
        self._live = Live(profile)
        self._opening_tokens = 0
        self.has_grown = False
        """Whether the last look saw it change since an earlier look."""

    @property
    def is_followed(self) -> bool:
        """Whether all its events are being read."""
        return self._tail is not None and self._drive.calls_from == "file"

    def look(self, session_id: str, awake: float, *, at_once: bool = False) -> bool:
        """Whether there is something new in it. False if it is unknown or missing, or was just
        looked at, unless `at_once`. The first sight of it is new too: see `has_grown`."""
        if not session_id or (awake - self._looked_at < _LOOK_S and not at_once):
            return False
        self._looked_at = awake
        if not self.path and self._drive.session_file is not None:
            self.path = self._drive.session_file(session_id, self._env, self._cwd)
        if not self.path:
            return False
        try:
            info = os.stat(self.path)
        except OSError:
            return False
        before, self._stamp = self._stamp, (info.st_size, info.st_mtime_ns)
        self.has_grown = before is not None and before != self._stamp
        return before != self._stamp

    def events(self, now: float) -> Iterator[Event]:
        """The new events, if the file reports calls or compactions; `is_followed` from then on if
        it reports calls."""
        mark = self._drive.compaction_mark
        if self._drive.calls_from != "file" and not mark:
            return
        if self._tail is None:
            self._tail = Tail(self.path, self._from)
            if mark:  # a resumed session repeats its earlier summaries
                self._live.feed(_marked(self.path, self._from, mark), now)
        for _ in range(_READS):
            lines = self._tail.read()
            yield from self._live.feed([line for line in lines if mark in line], now)
            if not self._tail.has_more:
                break

    def size(self) -> Look | None:
        """How full the session is according to the file, if the drive uses the file (`size_from`)
        and it states a size."""
        if self._drive.size_from != "file" or self._stamp is None:
            return None
        look = _look_at_end(self.path, self._stamp[0], self._profile)
        return look if look is not None and look.used_tokens is not None else None

    def opening_tokens(self) -> int:
        """How large the session was at its first reply, before any tool had answered; 0 if its file
        does not say so, or existed before this leg."""
        if not self._opening_tokens and not self._from and self.path:
            self._opening_tokens = _first_size(self.path, self._profile)
        return self._opening_tokens

    def replay(self, now: float) -> Iterator[Event]:
        """Everything that the leg added to it, for an agent whose file was not followed."""
        if self._tail is not None or not self.path:
            return
        live = Live(self._profile)
        with Tail(self.path, self._from) as rest:
            while (lines := rest.read()) or rest.has_more:
                yield from live.feed(lines, now)

    def close(self) -> None:
        """Closes the file."""
        if self._tail is not None:
            self._tail.close()


def _marked(path: str, until: int, mark: bytes) -> list[bytes]:
    """The lines before this byte that contain the mark."""
    found: list[bytes] = []
    with suppress(OSError), open(path, "rb") as file:
        for line in file:
            until -= len(line)
            if until < 0:
                break
            if mark in line:
                found.append(line)
    return found


def _look_at_end(path: str, size: int, profile: Profile) -> Look | None:
    def view(records: list[Record]) -> TailLook:
        return look_at(profile.parse(records))

    try:
        handle = find.open_file(path)
    except OSError:
        return None
    try:
        return tail.read_back(handle, size, view, lambda found: found.is_settled)[0].look
    except OSError:
        return None
    finally:
        os.close(handle)


def _first_size(path: str, profile: Profile) -> int:
    try:
        handle = find.open_file(path)
    except OSError:
        return 0
    try:
        events = profile.parse(tail.first_records(handle))
        return next((event.used_tokens for event in events if isinstance(event, Usage)), 0)
    except OSError:
        return 0
    finally:
        os.close(handle)
