"""The data that the pages show. Sessions come from the daemon or, if none answers, from session
files; runs and notes always come from their own files."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from segue import fleet
from segue.core.queue.schedule import Verdict
from segue.core.queue.types import Task
from segue.core.runs.types import Run
from segue.errors import InputError, SegueError, StateError
from segue.fleet import outlook
from segue.queue import queue_path
from segue.runs.store.owners import run_summary
from segue.runs.store.port import Holder, Store
from segue.system import clock
from segue.system.files import state
from segue.views import tables
from segue.views.machine import RECENT_S, Machine, list_sessions, with_machine
from segue.watch.log import LOG_NAME, Log, Note, open_log
from segue.watch.server.remote import Remote

_ASK_S = 2.0  # between requests to the daemon for its own state
_WHOLE_S = 60.0  # … for all sessions: forecasts change with time alone
_CHANGES_S = 0.09  # … for changed sessions: shorter than the pause between looks
_FILES_S = 1.0
_BACK_S = 1.0
_TASKS_S = 2.0
_SHARE = 60  # at most 1/60 of the time is spent on reading
_RUNS = 200
_MAX_KEPT = 100
_FEW = 20  # above this many sessions, one request for all is cheaper than one for each

T = TypeVar("T")


class RunRow(Struct, frozen=True):
    """A run, its state in a few words, and whether a process drives it."""

    run: Run
    state: str
    is_driven: bool


class Picture(Struct, frozen=True, kw_only=True):
    """Everything that the pages show, as of one time. `trouble`: what could not be read."""

    at: float
    daemon: dict[str, Any] | None = None  # its own status; None: no daemon answers
    sessions: list[dict[str, Any]] = []  # as `segue status --json` has them
    runs: list[RunRow] = []  # the newest first
    trouble: str = ""


class Source:
    """Reads only what may have changed, so `look` is cheap if nothing did. Not thread-safe."""

    def __init__(self) -> None:
        self.picture = Picture(at=0.0)
        self._store: Store | None = None
        self._log: Log | None = None
        self._versions = (-1, -1)
        self._again_at = self._changes_at = self._whole_at = self._back_at = 0.0
        self._revision: int | None = None  # of the daemon's sessions; None: request all
        self._cached: dict[str, tuple[object, float, Any]] = {}

    def look(self) -> bool:
        """Updates `picture`; returns whether it changed."""
        now, runs, notes = clock.now(), self._runs_version(), self._notes_version()
        before, self._versions = self._versions, (runs, notes)
        was = self.picture
        is_due = time.monotonic() >= self._again_at or self._is_back(was)
        changed = None if is_due or was.daemon is None else self._changed(was.sessions, now)
        if before == self._versions and not is_due and changed is None:
            return False
        trouble = ""
        try:
            rows = self._rows(now) if runs != before[0] or is_due else was.runs
        except SegueError as fault:
            rows, trouble = [], str(fault)
        daemon, sessions = was.daemon, was.sessions
        if is_due:
            daemon, sessions, trouble = self._sessions(was, now, trouble)
        else:
            sessions = sessions if changed is None else changed
            if notes != before[1] and was.daemon is not None:
                sessions = self._noted(before[1], sessions)
        self.picture = Picture(at=now, daemon=daemon, sessions=sessions, runs=rows, trouble=trouble)
        return msgspec.structs.replace(was, at=now) != self.picture

    def _is_back(self, was: Picture) -> bool:
        """Whether a daemon answers again. Session files may take long to read and are then read
        less often; a daemon that starts must not wait for that to be noticed."""
        if was.daemon is not None or time.monotonic() < self._back_at:
            return False
        self._back_at = time.monotonic() + _BACK_S
        place = state.socket_path()
        return os.path.exists(place) and Remote(place, timeout_s=_BACK_S).is_there()

    def _sessions(
        self, was: Picture, now: float, trouble: str
    ) -> tuple[dict[str, Any] | None, list[dict[str, Any]], str]:
        remote = Remote(state.socket_path(), timeout_s=3.0)
        began = time.monotonic()
        try:
            daemon: dict[str, Any] = remote.get("/v1/status")
            if was.daemon is None or self._revision is None or began >= self._whole_at:
                changes = remote.get("/v1/changes")
                found = [s for s in changes["sessions"] if _is_shown(s, now)]
                self._revision = changes["revision"]
                took_s = time.monotonic() - began
                self._whole_at = began + max(_WHOLE_S, _SHARE * took_s)
            else:
                changed = self._ask_changes(was.sessions, self._revision, now)
                found = was.sessions if changed is None else changed
            for changing in ("uptime_s", "log_seq"):  # else every look would count as a change
                daemon.pop(changing, None)
            self._wait(began, _ASK_S)
            return daemon, found, trouble
        except SegueError:
            pass
        began = time.monotonic()
        try:
            machine, listed = with_machine(_recent)
            machine.index.close()
            sessions = [tables.as_dict(session) for session in listed]
        except SegueError as fault:
            sessions, trouble = [], str(fault)
        self._wait(began, _FILES_S)
        return None, sessions, trouble

    def _changed(self, sessions: list[dict[str, Any]], now: float) -> list[dict[str, Any]] | None:
        """The sessions with the daemon's changes, at most every `_CHANGES_S`; None if nothing
        changed."""
        began = time.monotonic()
        if self._revision is None or began < self._changes_at:
            return None
        try:
            found = self._ask_changes(sessions, self._revision, now)
        except SegueError:
            self.hurry()  # the daemon is gone; the next look finds out
            return None
        self._changes_at = began + max(_CHANGES_S, 10 * (time.monotonic() - began))
        return found

    def _ask_changes(
        self, sessions: list[dict[str, Any]], after: int, now: float
    ) -> list[dict[str, Any]] | None:
        """The sessions with the daemon's changes after a revision; None if nothing changed.
        Unchanged sessions stay the same objects. Raises SegueError."""
        changes = Remote(state.socket_path(), timeout_s=3.0).get("/v1/changes", after=after)
        self._revision = changes["revision"]
        if not (changes["sessions"] or changes["gone"]):
            return None
        found = [] if changes["is_whole"] else sessions
        new = {(s["agent"], s["session_id"]): s for s in changes["sessions"]}
        left = {(s["agent"], s["session_id"]) for s in changes["gone"]} | new.keys()
        known = [s for s in found if (s["agent"], s["session_id"]) not in left]
        return sorted(
            [*known, *(s for s in new.values() if _is_shown(s, now))],
            key=lambda s: (s["pid"] is None, _reversed(s.get("last_activity") or "")),
        )

    def _noted(self, after: int, sessions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The sessions, with those requested again that have new notes. If there are many, or one
        of them is unknown, the next look requests all."""
        log = self.notes()
        names = {note.session_id for note in log.since(after)} - {""} if log is not None else set()
        known = {session["session_id"]: place for place, session in enumerate(sessions)}
        found = list(sessions)
        if len(names) > _FEW or not names <= known.keys():
            self.hurry()
            return found
        remote = Remote(state.socket_path(), timeout_s=3.0)
        for name in names:
            try:
                found[known[name]] = remote.session(name)
            except SegueError:
                self.hurry()
        return found

    def _wait(self, began: float, min_s: float) -> None:
        now = time.monotonic()
        self._again_at = now + max(min_s, _SHARE * (now - began))

    def hurry(self) -> None:
        """Makes the next look read everything, for example after an action."""
        self._again_at = self._whole_at = 0.0

    def cached(self, name: str, version: object, make: Callable[[], T], min_s: float = 5.0) -> T:
        """A value that is expensive to make: made again once `version` differs, but not before
        `min_s` has passed, nor so often that it takes more than 1/60 of the time."""
        found = self._cached.get(name)
        now = time.monotonic()
        if found is not None and (found[0] == version or now < found[1]):
            value: T = found[2]
            return value
        made = make()
        if len(self._cached) > _MAX_KEPT:
            self._cached.clear()
        took = time.monotonic() - now
        self._cached[name] = (version, time.monotonic() + max(min_s, _SHARE * took), made)
        return made

    @property
    def versions(self) -> tuple[int, int]:
        """The versions of runs and notes: they change with every write."""
        return self._versions

    # Runs

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store of runs, which stays open. Raises SegueError if it cannot be read."""
        if self._store is None:
            self._store = fleet.open_store()
        try:
            yield self._store
        except StateError:  # the database may come back, but not this connection
            self._store = None
            raise

    def _runs_version(self) -> int:
        try:
            with self.store() as store:
                return store.version()
        except SegueError:
            return -1

    def _rows(self, now: float) -> list[RunRow]:
        with self.store() as store:
            found = []
            for run in store.runs(limit=_RUNS):
                holder = None if run.state.is_final else _driver(store, run)
                label = tables.run_state(run_summary(run, holder), now) if run.wait is None else ""
                found.append(RunRow(run, label or run.state.value, holder is not None))
            return found

    def run(self, run_id: str) -> RunRow:
        """A run by its id, however old. Raises InputError if there is none."""
        with self.store() as store:
            run = store.run(run_id)
            if run is None:
                raise InputError(f"no run is called {run_id!r}")
            holder = None if run.state.is_final else _driver(store, run)
            label = tables.run_state(run_summary(run, holder), clock.now())
            return RunRow(run, label, holder is not None)

    # Tasks

    def tasks(self, now: float) -> list[tuple[Task, Verdict | None]]:
        """Unfinished tasks of the queue, each with the reason why it waits; none if there is no
        queue. Raises SegueError."""
        if not (fleet.url() or os.path.exists(queue_path())):
            return []
        return self.cached("tasks", object(), lambda: self._tasks(now), _TASKS_S)

    def _tasks(self, now: float) -> list[tuple[Task, Verdict | None]]:
        with fleet.open_queue() as queue, self.store() as store:
            why = outlook.verdicts(queue, store, now)
            return [(task, why.get(task.id)) for task in queue.tasks(unfinished=True)]

    # Notes

    def notes(self) -> Log | None:
        """The daemon's log; None if there is none yet. Raises SegueError if it cannot be read."""
        place = os.path.join(state.state_folder(), LOG_NAME)
        if self._log is None and os.path.exists(place):
            self._log = open_log(place)[0]
        return self._log

    def _notes_version(self) -> int:
        try:
            log = self.notes()
            return log.version() if log is not None else 0
        except SegueError:
            return -1

    def last_notes(self, count: int, kinds: tuple[str, ...] = ()) -> list[Note]:
        """The last `count` notes of these kinds (by default, of all), the newest first."""
        log = self.notes()
        if log is None:
            return []
        found: list[Note] = []
        upto, span = log.version(), max(count * 4, 500)
        while upto > 0 and len(found) < count:
            first = max(0, upto - span)
            page = [n for n in log.since(first, kinds, span) if n.seq <= upto]
            found += page[::-1]
            upto, span = first, span * 2
        return found[:count]

    def close(self) -> None:
        """Closes the files."""
        if self._store is not None:
            self._store.close()
        if self._log is not None:
            self._log.close()


def _reversed(text: str) -> tuple[int, ...]:
    """A sort key that puts the newest of ISO times first."""
    return tuple(-ord(c) for c in text)


def _recent(machine: Machine) -> list[Any]:
    found = list_sessions(machine, machine.now - RECENT_S)
    return sorted(found, key=lambda session: not session.state.is_live)


def _is_shown(session: dict[str, Any], now: float) -> bool:
    from segue.dashboard.words import when

    last = when(session.get("last_activity"))
    return session["pid"] is not None or (last is not None and last >= now - RECENT_S)


def _driver(store: Store, run: Run) -> Holder | None:
    return fleet.driver(store, run.id)
