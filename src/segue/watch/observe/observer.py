"""Observes all sessions of this user as they change: files by events, processes by their exits.

Each change costs one look at one session. Everything that events report is also checked from time
to time, so nothing depends on events alone. A session that nobody works on is dropped a day after
its last record, and found again when it grows.

All in one file: events, sweeps and processes all change the same table of sessions.
"""

import os
import selectors
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from segue.core.policy import Policy
from segue.core.sessions.types import Process, Session, SessionState
from segue.core.stops.types import Stop
from segue.sessions.find import Home
from segue.system.config.policies import PolicyFor
from segue.system.files import state
from segue.system.process.procfs import System
from segue.watch.observe import endings
from segue.watch.observe.homes import SessionHomes
from segue.watch.observe.matching import Name
from segue.watch.observe.pace import Pace
from segue.watch.observe.processes import Changes, ProcessTracker
from segue.watch.observe.session_table import SessionTable, Sighting
from segue.watch.observe.viewer import Asker, Viewer
from segue.watch.observe.wakeup import Wakeup

__all__ = ["REAP_S", "RECENT_S", "SETTLE_S", "Name", "Observer", "Sighting"]

RECENT_S = 24 * 3600.0
"""Sessions that were active since then are known from the start."""
SETTLE_S = 0.5
"""After an end: by then it is clear whether the terminal was closed (see `Observer.ending_of`)."""
REAP_S = 10.0
"""How long a parent may take to ask how its agent ended, before that counts as unknown."""
SWEEP_S, BLIND_S = 10.0, 2.0
"""How often processes are searched for; more often without events."""
SOON_S = 1.0
"""When they are searched for again if a session without a process grows."""

# the largest share of the time for finding what no event reports, as one in this many
_SHARE = 100
_SLICE_S = 0.05  # how long looks may delay ends
_SAVE_S, _REFRESH_S = 30.0, 600.0
_OVERLAP_S = 2.0  # between two looks into a database
_NOTES = 200


class Observer:
    """Observes all sessions of this user. One thread calls `step` and `close`; any thread may
    call `wake` and `nudge` and read `sessions`. The first step finds all sessions that are
    live or recent. `policy_for` is called at every look; `homes` are additional folders with
    sessions, by agent; `clock` is the time, `steady` a clock that nobody sets. Raises only
    StateError, if segue's state cannot be stored."""

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        policy_for: PolicyFor | None = None,
        homes: Mapping[str, Sequence[str]] | None = None,
        index_place: str | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
        system: System | None = None,
    ) -> None:
        self.notes: deque[str] = deque(maxlen=_NOTES)
        """Oddities, one line each; whoever prints them removes them."""
        general = Policy()
        self._policy_for: PolicyFor = policy_for or (lambda agent, model, cwd: general)
        self._env, self._added, self._clock, self._steady = env, homes or {}, clock, steady
        self._index_place = index_place or state.index_path()
        self._selector = selectors.DefaultSelector()
        self._bell = Wakeup()
        self._selector.register(self._bell, selectors.EVENT_READ, None)
        self._homes = SessionHomes(env, self._bell.ring)
        if (number := self._homes.folders.fileno()) is not None:
            self._selector.register(number, selectors.EVENT_READ, self._homes)
        self._processes = ProcessTracker(self._selector, system)
        self._known = SessionTable(self._view, clock)
        self._pace = Pace()
        self._asker = Asker(self._bell.ring)
        self._viewer: Viewer | None = None
        self._nudges: deque[tuple[str, str, str]] = deque()
        self._told_pids: set[int] = set()
        self._noted: set[str] = set()
        # sessions that may be full after a few replies, and their files
        self._close: dict[Name, str] = {}
        self._sought: dict[Name, float] = {}  # since when sessions and processes are searched for
        self._swept_at = self._saved_at = self._refreshed_at = float("-inf")
        self._sweep_at = self._scan_at = float("-inf")
        self._is_new = self._is_woken = self._is_closed = False

    # For everyone

    @property
    def sessions(self) -> Mapping[Name, Session]:
        """The sessions that an agent has open, and those that were active in the last day, in
        their current state. A copy: it does not change."""
        return MappingProxyType(dict(self._known.sessions))

    def changes(self, after: int) -> tuple[int, list[Session], list[Name]] | None:
        """The current revision, the sessions that changed since that one, and those that are
        gone; None if it is too long ago."""
        known = self._known
        now = known.revision  # read first: what changes in the meantime is reported again
        if not known.first_revision <= after <= now:
            return None
        changed = [name for name, at in dict(known.changed).items() if at > after]
        sessions = [found for name in changed if (found := known.sessions.get(name)) is not None]
        return now, sessions, [name for name, at in dict(known.removed).items() if at > after]

    @property
    def revision(self) -> int:
        """Grows with every change of a session."""
        return self._known.revision

    @property
    def degraded(self) -> str:
        """Why changes may be seen late, in one line; empty if everything works."""
        return self._homes.degraded

    def wake(self) -> None:
        """Makes a waiting step return soon."""
        self._is_woken = True
        self._bell.ring()

    def nudge(self, agent: str, session_id: str, path: str = "") -> None:
        """Something has just happened to this session: look at it without delay. `path`: its
        file, if known."""
        self._nudges.append((agent, session_id, path))
        self._bell.ring()

    def ending_of(self, sighting: Sighting, *, hook: str = "", other_boot: bool = False) -> Stop:
        """Why the process that had it open ended. More certain SETTLE_S after the exit: a
        closing terminal disappears a moment after its agent. See `endings.ending_of`."""
        after = self.after(sighting.ended) if sighting.ended is not None else endings.After()
        return endings.ending_of(
            sighting.session, sighting.ended, after, hook=hook, other_boot=other_boot
        )

    def after(self, ended: Process) -> endings.After:
        """What is known about a process that ended within the last minute."""
        return self._processes.after(ended)

    def reload(
        self, policy_for: PolicyFor, homes: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """Other settings apply from the next step on. For the thread that calls `step`."""
        self._policy_for, self._added = policy_for, homes or {}
        if self._viewer is not None:
            self._viewer.policy_for = policy_for
        self._refreshed_at = self._sweep_at = float("-inf")
        self.wake()

    def close(self) -> None:
        """Closes everything; no step may be in progress."""
        if self._is_closed:
            return
        self._is_closed = True
        self._homes.close()
        if self._viewer is not None:
            self._viewer.close()
        self._processes.close()
        self._selector.close()
        self._bell.close()

    def step(self, timeout_s: float) -> list[Sighting]:
        """The changes, in order. Waits at most this long; may return earlier with nothing."""
        if self._is_closed:
            return []
        if self._viewer is None:
            self._open()
            return self._sweep()
        until = self._steady() + timeout_s
        while True:
            sightings = self._look_around(self._wait(until))
            if sightings or self._is_woken or self._steady() >= until:
                self._is_woken = False
                return sightings

    # Waiting

    def _wait(self, until: float) -> list[int]:
        """The pids of those that ended; everything else is noted where it belongs."""
        now = self._steady()
        at = min(until, self._pace.next_at(), self._sweep_at)
        if (limit_at := self._known.next_limit_at()) is not None:
            at = min(at, now + limit_at - self._clock())
        if self._is_woken or self._homes.news or self._nudges or self._told_pids:
            at = now
        ended = []
        for key, _ in self._selector.select(max(0.0, at - now)):
            if key.data is None:
                self._bell.hush()
            elif key.data is self._homes:
                self._listen()
            else:
                ended.append(key.data)
        return ended

    def _listen(self) -> None:
        changes = self._homes.drain()
        self._told_pids |= changes.pids
        for path in changes.databases:
            self._pace.touch(path, self._steady())
        if changes.lost:
            self._told_pids |= self._processes.known.keys()
            self._sweep_at = float("-inf")

    def _look_around(self, ended: Sequence[int]) -> list[Sighting]:
        now = self._steady()
        sightings: list[Sighting] = []
        for pid in ended:
            process = self._processes.ended(pid, now)
            sightings += self._after_end(process) if process is not None else []
        if self._told_pids:
            pids, self._told_pids = self._told_pids, set()
            sightings += self._take(self._processes.reread(self._homes.homes, pids, now))
        sightings += self._take_news(now)
        if now >= self._sweep_at:
            sightings += self._sweep()
        while (path := self._pace.due(self._steady())) is not None:
            sightings += self._look(path)
            if self._steady() >= now + _SLICE_S:
                break
        sightings += self._known.past_limits()
        sightings += self._known.of_models(self._view().answered())
        return sightings

    def _take_news(self, now: float) -> list[Sighting]:
        while self._nudges:
            agent, session_id, path = self._nudges.popleft()
            known = self._known.sights.get((agent, session_id))
            with suppress(OSError, ValueError):  # no path at all
                path = known.session.path if known is not None else os.path.realpath(path)
                self._pace.hurry(path, now)
        parents: set[Name | None] = set()
        while self._homes.news:
            path, kind, more = self._homes.news.popleft()
            if kind == "unreadable":
                self._say(f"{path}: {more}")
                continue
            if kind == "found":
                parents.add(self._known.child_came(path))
            elif kind == "gone":
                parents.add(self._known.child_went(path))
            if kind == "moved":
                self._pace.hurry(path, now)  # first: the session is not lost then
                self._pace.touch(more, now)
            self._pace.touch(path, now)
        return self._known.view(name for name in parents if name is not None)

    # Looking

    def _view(self) -> Viewer:
        if self._viewer is None:
            raise RuntimeError("not started")
        return self._viewer

    def _look(self, path: str) -> list[Sighting]:
        began = self._steady()
        home = self._known.places.home_of(path)
        sightings: list[Sighting] = []
        try:
            sightings = self._look_at(home, path) if home is not None else self._look_in(path)
        except Exception as fault:  # in any case: the others are still watched
            self._say(f"{path}: {fault!r}")
        viewer = self._view()
        for note in viewer.notes:
            self._say(note)
        viewer.notes.clear()
        self._press(path, sightings)
        self._pace.note_look(path, began, self._steady() - began)
        return sightings

    def _press(self, path: str, sightings: Sequence[Sighting]) -> None:
        """A session that works and may soon be full is measured at every record: a second later
        it may already have compacted."""
        for sighting in sightings:
            name = (sighting.session.agent, sighting.session.session_id)
            if self._is_close(name):
                self._close[name] = path
            else:
                self._close.pop(name, None)
        self._pace.press(path, path in self._close.values())

    def _is_close(self, name: Name) -> bool:
        session = self._known.sessions.get(name)
        if session is None or session.process is None or session.state is not SessionState.WORKING:
            return False
        return session.forecast is not None and session.forecast.is_close

    def _say(self, note: str) -> None:
        """Says it once until the next refresh."""
        if note not in self._noted and len(self._noted) < _NOTES:
            self._noted.add(note)
            self.notes.append(note)

    def _look_at(self, home: Home, path: str) -> list[Sighting]:
        file = self._known.places.stat_file(home, path)
        if file is None:
            self._known.remove(path)
            return []
        if parent := self._known.parent_of(file):
            is_child = self._known.child_written(file, parent)
            return self._known.view([is_child]) if is_child is not None else []
        sight = self._view().look_at(file, self._known.at(path), self._clock())
        if sight is None:
            return []
        sighting = self._known.saw(sight)
        self._seek((sight.session.agent, sight.session.look.session_id))
        return sighting

    def _look_in(self, path: str) -> list[Sighting]:
        """Looks at the changed sessions in a database."""
        home = self._homes.database_home(path)
        file = self._known.places.stat_file(home, path) if home is not None else None
        if home is None or file is None:
            return []
        mine = self._known.in_database(path)
        now = self._clock()
        newest = max((sight.session.changed_at for sight in mine), default=0.0)
        since = max(min(newest, now) - _OVERLAP_S, now - RECENT_S)
        processes = [p for p in self._known.matching.of_agent(home.agent) if p.session_id]
        sightings: list[Sighting] = []
        # Each one again: a message may be finished without a change of its session's time.
        for sight in self._view().look_in([file], since, processes, (), now):
            sightings += self._known.saw(sight, is_file=False)
            self._seek((sight.session.agent, sight.session.look.session_id))
        return sightings

    def _seek(self, name: Name) -> None:
        """A session without a known process was written to: looks for the process."""
        session = self._known.sessions.get(name)
        now = self._steady()
        is_new = now >= self._sought.get(name, float("-inf")) + SWEEP_S
        if session is not None and session.process is None and is_new:
            self._sought[name] = now
            self._sweep_at = min(self._sweep_at, max(now, self._swept_at + SOON_S))

    # Processes

    def _take(self, changes: Changes) -> list[Sighting]:
        sightings: list[Sighting] = []
        for process in changes.ended:  # first: a new process may have its pid, or its session
            sightings += self._after_end(process)
        sightings += self._known.view(self._known.matching.update(changes.changed, changes.idle))
        if not self._is_new:
            self._look_for_named(self._steady())
        return sightings

    def _after_end(self, process: Process) -> list[Sighting]:
        mine = self._known.behind(process)
        if not mine:
            self._known.ended_early(process)
        sightings: list[Sighting] = []
        for path in {self._known.sights[name].session.path for name in mine}:
            sightings += self._look(path)  # its last words
        affected = self._known.matching.update((), [process])
        sightings += self._known.view(mine, ended=process)
        return sightings + self._known.view(affected - mine)

    # Now and then

    def _open(self) -> None:
        """Follows all current homes; the next sweep looks at their content."""
        self._homes.open(self._added)
        self._known.places = self._homes.places
        viewer, self._viewer = self._viewer, None  # if that fails, the next step starts over
        if viewer is not None:
            viewer.close()
        self._viewer = Viewer(
            self._homes.homes,
            self._index_place,
            self._policy_for,
            environment=self._env,
            asker=self._asker,
        )
        self._is_new, self._refreshed_at = True, self._steady()

    def _sweep(self) -> list[Sighting]:
        """Looks for changes that no event reports."""
        began = self._steady()
        if self._homes.has_moved(self._added):
            self._open()
        self._homes.watch_folders()
        if self._homes.is_blind:
            self._told_pids |= self._processes.known.keys()
        changes = self._processes.look(self._homes.homes, began)
        took_s = self._steady() - began
        sightings = self._take(changes)
        if self._is_new:
            sightings += self._look_at_all()
        else:
            for path in self._homes.changed_unfollowed():
                self._pace.touch(path, began)
        sightings += self._tidy(began)
        self._swept_at = self._steady()
        is_blind = self._homes.is_blind or self._processes.must_look
        pause_s = max(BLIND_S if is_blind else SWEEP_S, _SHARE * took_s)
        self._sweep_at = self._swept_at + min(pause_s, 6 * SWEEP_S)
        return sightings

    def _look_at_all(self) -> list[Sighting]:
        """Looks once at all files of all homes that are recent or that a process may have open."""
        self._is_new = False
        since = self._clock() - RECENT_S
        self._homes.changed_unfollowed()
        found = self._view().with_parents(self._homes.all())
        self._known.set_children(found, since)
        processes = [*self._processes.known.values()]
        sightings: list[Sighting] = []
        for sight in self._view().look_in(found, since, processes, (), self._clock()):
            is_file = self._known.places.home_of(sight.session.path) is not None
            sightings += self._known.saw(sight, is_file=is_file)
        return sightings

    def _look_for_named(self, now: float) -> None:
        """Looks for sessions that a process says it works on and that were not written to since
        segue knows them, such as an old one that was just resumed. One that is not found has
        no file yet."""
        names = {*self._known.matching.unmatched()} - self._sought.keys()
        if names and now >= self._scan_at:
            self._sought |= dict.fromkeys(names, float("inf"))
            for file in self._homes.named(names):
                self._pace.hurry(file.path, now)
            self._scan_at = now + _SHARE * (self._steady() - now)

    def _tidy(self, now: float) -> list[Sighting]:
        self._known.tidy(self._clock() - RECENT_S)
        self._pace.tidy(now)
        for name in [name for name in self._close if not self._is_close(name)]:
            self._pace.press(self._close.pop(name), False)
        unmatched = {*self._known.matching.unmatched()}
        self._sought = {
            name: at
            for name, at in self._sought.items()
            if now < at + SWEEP_S and (at < float("inf") or name in unmatched)
        }
        if now >= self._saved_at + _SAVE_S:
            self._view().save()
            self._saved_at = now
        if now < self._refreshed_at + _REFRESH_S:
            return []
        self._refreshed_at = now
        self._noted.clear()
        self._view().refresh()
        return self._known.view([*self._known.sights])
