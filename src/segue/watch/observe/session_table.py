"""The sessions that the daemon knows: the last look at each, its process, and what follows from
them."""

import os
from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct

from segue.core.sessions.types import Process, Session, SessionState
from segue.sessions.find import FileOnDisk
from segue.watch.observe.matching import Matching, Name
from segue.watch.observe.viewer import WHOLE_BYTES, Places, Sight, Viewer

MAX_SESSIONS = 2000
"""The maximum number of sessions without a process."""

_EARLY_S, _MAX_EARLY = 60.0, 100
_MAX_GONE = 1_000


class Sighting(Struct, frozen=True):
    """A session that changed. `before` is None if it is seen for the first time; `ended` is a
    process that had it open and is gone."""

    session: Session
    before: Session | None = None
    ended: Process | None = None


class SessionTable:
    """Takes looks and processes, and returns what changed because of them."""

    def __init__(self, viewer: Callable[[], Viewer], clock: Callable[[], float]) -> None:
        self._viewer, self._clock = viewer, clock
        self.sights: dict[Name, Sight] = {}
        self.sessions: dict[Name, Session] = {}
        self.matching = Matching(self.sights)
        self.places = Places(())
        self._names: dict[str, Name] = {}  # by file
        self._children: Counter[Name] = Counter()
        self._parents: dict[str, str] = {}  # by file, if only records name it
        self._untold: set[str] = set()  # files that were found before their parent was known
        self._limits: dict[Name, float] = {}  # when a limit resets
        # processes that ended before their session was seen
        self._early: dict[Name, tuple[Process, float]] = {}
        self.revision = self.first_revision = int(clock() * 1_000)
        """Grows with every change, also across restarts; changes since the first one are known."""
        self.changed: dict[Name, int] = {}  # with which revision
        self.removed: dict[Name, int] = {}

    def at(self, path: str) -> Sight | None:
        """The last look at a file."""
        name = self._names.get(path)
        sight = self.sights.get(name) if name is not None else None
        return sight if sight is not None and sight.session.path == path else None

    def in_database(self, path: str) -> list[Sight]:
        """The last looks at the sessions of a database."""
        return [s for s in self.sights.values() if s.session.path == path]

    def saw(self, sight: Sight, *, is_file: bool = True) -> list[Sighting]:
        """Takes in a look, and returns the sessions that it has changed."""
        session = sight.session
        name = (session.agent, session.look.session_id)
        before = self.sights.get(name)
        if before is not None and before.session.path != session.path:
            if os.path.exists(before.session.path) and _worth(before) > _worth(sight):
                return []  # a copy, or a stub that a resume left
            self._names.pop(before.session.path, None)
        self.sights[name] = sight
        if is_file:
            other = self._names.get(session.path, name)
            if other != name and self.matching.process_of(other) is None and other in self.sights:
                self._forget(other)  # the file now belongs to another session
            self._names[session.path] = name
        if before is not None and before.session[:3] == session[:3]:
            return []
        return self.view(self.matching.session_changed(name))

    def remove(self, path: str) -> None:
        """A file is gone. A session that an agent works on stays known."""
        name = self._names.pop(path, None)
        self._parents.pop(path, None)
        self._untold.discard(path)
        if name is not None and self.matching.process_of(name) is None:
            sight = self.sights.get(name)
            if sight is not None and sight.session.path == path:
                self._forget(name)

    # What it means

    def view(self, names: Iterable[Name], ended: Process | None = None) -> list[Sighting]:
        """Evaluates these sessions now, and returns those whose result has changed."""
        sessions, now = [], self._clock()
        for name in names:
            sight = self.sights.get(name)
            if sight is None:
                continue
            process = self.matching.process_of(name)
            session = self._viewer().session(sight.session, process, self._children[name], now)
            before = self.sessions.get(name)
            self.sessions[name] = session
            was = ended
            if before is None and name in self._early:
                early, _ = self._early.pop(name)
                was = early if process is None else ended
            self._limits.pop(name, None)
            stop = session.stop
            if (
                session.state is SessionState.WAITING_FOR_LIMIT
                and stop
                and stop.retry_at is not None
            ):
                self._limits[name] = stop.retry_at
            if was is not None or session != before:
                self.revision += 1
                self.changed[name] = self.revision
                self.removed.pop(name, None)
                sessions.append(Sighting(session, before, was))
        return sessions

    def next_limit_at(self) -> float | None:
        """When the next limit resets."""
        return min(self._limits.values(), default=None)

    def past_limits(self) -> list[Sighting]:
        """Sessions whose limit has reset."""
        now = self._clock()
        return self.view([name for name, at in self._limits.items() if at <= now])

    def of_models(self, models: set[str]) -> list[Sighting]:
        """Sessions of models about which something new is known."""
        if not models:
            return []
        return self.view([n for n, s in self.sights.items() if s.session.look.model in models])

    def behind(self, process: Process) -> set[Name]:
        """The sessions that this process had open when it was last seen."""
        return {
            name
            for name, session in self.sessions.items()
            if (behind := session.process) is not None
            and behind.pid == process.pid
            and behind.start_ticks == process.start_ticks
        }

    def ended_early(self, process: Process) -> None:
        """A process ended before its session was seen: the file may still appear. When it soon
        does, the end is reported."""
        ids = {process.session_id} if process.session_id else {h.session_id for h in process.holds}
        for name in ((process.agent, each) for each in ids - {""}):
            if name not in self.sights and len(self._early) < _MAX_EARLY:
                self._early[name] = (process, self._clock())

    # Sub-agents

    def parent_of(self, file: FileOnDisk) -> str:
        """The parent of a sub-agent's file; "" if it has none, "?" if that is still unknown."""
        if file.parent_id != "?":
            return file.parent_id
        if file.path in self._names:
            return ""
        if file.path not in self._parents:
            parent = self._viewer().parent_of(file)
            if parent == "?" and file.size < WHOLE_BYTES:
                return parent
            self._parents[file.path] = parent
        return self._parents[file.path]

    def set_children(self, found: Iterable[FileOnDisk], since: float) -> None:
        """All existing files, with their parents; those in use since then matter most."""
        self._children.clear()
        for file in found:
            if file.parent_id:
                self._children[file.agent, file.parent_id] += 1
                if file.changed_at >= since:
                    self.matching.add_child(file)

    def child_came(self, path: str) -> Name | None:
        """A sub-agent's file was found: returns the session that has one more sub-agent because of
        it."""
        home = self.places.home_of(path)
        file = self.places.stat_file(home, path) if home is not None else None
        if file is None:
            return None
        parent = self.parent_of(file)
        if parent == "?":
            self._untold.add(path)
        return self._counted(file.agent, parent, 1)

    def child_written(self, file: FileOnDisk, parent: str) -> Name | None:
        """A sub-agent's file was written. Returns the session that thereby has one more, if that
        was unknown when the file was found."""
        self.matching.add_child(file._replace(parent_id=parent))
        if parent == "?" or file.path not in self._untold:
            return None
        self._untold.discard(file.path)
        return self._counted(file.agent, parent, 1)

    def child_went(self, path: str) -> Name | None:
        """A sub-agent's file is gone: returns the session that has one sub-agent fewer because of
        it."""
        home = self.places.home_of(path)
        if home is None:
            return None
        parent = home.store.parent_id(path[len(home.path) + 1 :])
        if parent == "?":
            parent = self._parents.get(path, "")
        return self._counted(home.agent, parent, -1)

    def _counted(self, agent: str, parent: str, by: int) -> Name | None:
        if parent in ("", "?"):
            return None
        name = (agent, parent)
        self._children[name] = max(0, self._children[name] + by)
        return name

    # Forgetting

    def tidy(self, since: float) -> None:
        """Forgets sessions without a process that were not active since then; and of the others
        without a process, all but the newest."""
        loose = [
            (sight.session.look.last_at or 0.0, sight.session.changed_at, name)
            for name, sight in self.sights.items()
            if (session := self.sessions.get(name)) is None or session.process is None
        ]
        loose.sort(reverse=True)
        for place, (last_at, changed_at, name) in enumerate(loose):
            if place >= MAX_SESSIONS or max(last_at, changed_at) < since:
                self._forget(name)
        if len(self._parents) > MAX_SESSIONS:
            self._parents = {}  # determined again where it matters
        if len(self._untold) > MAX_SESSIONS:
            self._untold = set()
        since = self._clock() - _EARLY_S
        self._early = {name: early for name, early in self._early.items() if early[1] >= since}

    def _forget(self, name: Name) -> None:
        sight = self.sights.pop(name)
        self.sessions.pop(name, None)
        self._limits.pop(name, None)
        self.revision += 1
        self.changed.pop(name, None)
        self.removed[name] = self.revision
        if len(self.removed) > _MAX_GONE:
            self.removed, self.first_revision = {}, self.revision
        if self._names.get(sight.session.path) == name:
            del self._names[sight.session.path]


def _worth(sight: Sight) -> tuple[bool, float]:
    look = sight.session.look
    return look.used_tokens is not None, look.last_at or sight.session.changed_at
