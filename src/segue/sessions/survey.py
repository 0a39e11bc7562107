"""The current state of all sessions on this machine, from files, the index and running agents.

All in one file: one pass from files and processes to sessions; each step needs the one before.
"""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from segue.agents.contracts.profile import Profile
from segue.core.sessions import alive
from segue.core.sessions.forecasts.forecast import forecast
from segue.core.sessions.look import look_at
from segue.core.sessions.reading import Reading
from segue.core.sessions.spend import Spend
from segue.core.sessions.types import Look, Process, Session, state_of
from segue.core.sessions.windows import Window
from segue.core.stops.fold import Turn
from segue.core.stops.types import Stop
from segue.errors import SegueError
from segue.sessions import database, parents
from segue.sessions.count.index import Index
from segue.sessions.find import FileOnDisk, Home, Stamp, profile_of, project_folder
from segue.sessions.look import Judge, NotASession, judged, look
from segue.sessions.windows import PriceWindow, Windows, priced_window
from segue.system.config.policies import PolicyFor
from segue.system.files.files import is_path
from segue.system.files.sqlite import is_damage

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Look).decode


class ExaminedSession(NamedTuple):
    """A session and the last look at it."""

    agent: str
    path: str
    look: Look
    changed_at: float


class Survey:
    """Looks at sessions, stores the results in the index, and lists anything odd in `notes`. Raises
    only sqlite3.DatabaseError, if the index is broken."""

    def __init__(
        self,
        homes: Sequence[Home],
        found: Sequence[FileOnDisk],
        index: Index | None,
        policy_for: PolicyFor,
        *,
        judge: Judge,
        environment: Mapping[str, str],
        price_window: PriceWindow = priced_window,
    ) -> None:
        self.homes = {home.path: home for home in homes}
        self.index, self.policy_for, self.judge = index, policy_for, judge
        self.notes: list[str] = []
        self.windows = Windows(environment, partial(self._priced, price_window))
        self.known = index.looks() if index is not None else {}
        self.new: list[tuple[str, Stamp, bytes]] = []
        self.found, new = parents.resolve(found, self.homes, index)
        if index is not None:
            self._write(partial(index.keep_parents, new))

    def active(
        self, since: float | None = None, processes: Sequence[Process] = ()
    ) -> list[ExaminedSession]:
        """The sessions that were active since then, and those that one of these processes may have
        open; without their sub-agents."""
        wanted = _Selection(since, processes)
        sightings: list[ExaminedSession] = []
        for file in self.found:
            if self.homes[file.home].store.database:
                sightings += self._in_database(file, wanted)
            elif not file.parent_id and wanted.has(
                file.agent, file.session_id, file.path, file.changed_at
            ):
                found = self.look_at_file(file)
                if found is not None:
                    sightings.append(ExaminedSession(file.agent, file.path, found, file.changed_at))
        if self.index is not None:
            self._write(partial(self.index.keep_looks, self.new))
        self.new = []
        return sightings

    def _write(self, keep: Callable[[], None]) -> None:
        try:
            keep()
        except sqlite3.Error as fault:
            if is_damage(fault):
                raise
            # It is only a cache: the results are still valid.
            self.notes.append(f"the index was not written: {fault}")

    def look_at_file(self, file: FileOnDisk) -> Look | None:
        """What the end of a file shows; None if it is not a session, or cannot be read. New looks
        are added to `new`."""
        cached = self.stored_look(file.path, file.stamp)
        if cached is not None:
            return cached
        try:
            found = self._new_look(file)
            self._keep(file.path, file.stamp, found)
        except (NotASession, FileNotFoundError):
            return None
        except sqlite3.Error:
            raise
        except Exception as fault:  # whatever is in one file, the others are shown
            name = file.session_id or os.path.basename(file.path)
            return Look(session_id=name, last_at=file.changed_at, unreadable=why_not(fault))
        return found

    def _new_look(self, file: FileOnDisk) -> Look:
        found = look(file, profile_of(file.agent), self.judge)
        found.session_id = file.session_id or found.session_id or os.path.basename(file.path)
        found.cwd = found.cwd if is_path(found.cwd) else ""
        store = self.homes[file.home].store
        if found.cwd:
            found.cwd = store.folder(file.path[len(file.home) + 1 :], found.cwd)
        elif store.projects:
            found.cwd = project_folder(file.home, store, file.path)
        self._remember(file, found)
        return found

    def _remember(self, file: FileOnDisk, found: Look) -> None:
        """The window size that was seen earlier, although that record is too far back to be read
        now."""
        stamp, data = self.known.get(file.path, ((0, 0, 0, 0), b""))
        if stamp[:2] == file.stamp[:2] and stamp[2] <= file.size:
            old = self._decoded(data)
            if old is not None and old.model == found.model:
                found.accepted_tokens = max(found.accepted_tokens, old.accepted_tokens)

    def stored_look(self, name: str, stamp: Stamp) -> Look | None:
        """An earlier look, if the file has not changed since. Called before each look: callers that
        store looks elsewhere than in `known` put that one there first."""
        old = self.known.get(name)
        return self._decoded(old[1]) if old is not None and old[0] == stamp else None

    @staticmethod
    def _decoded(data: bytes) -> Look | None:
        try:
            return _decode(data)
        except msgspec.MsgspecError:
            return None

    def _keep(self, name: str, stamp: Stamp, found: Look) -> None:
        self.new.append((name, stamp, _encode(found)))

    def _in_database(self, file: FileOnDisk, wanted: "_Selection") -> list[ExaminedSession]:
        profile = profile_of(file.agent)
        if profile is None:
            return []
        sightings = []
        try:
            for row in database.sessions(file.path):
                if row.parent_id or not wanted.has(file.agent, row.session_id, "", row.changed_at):
                    continue
                name = f"{file.path}#{row.session_id}"
                stamp = (*file.stamp[:2], round(row.changed_at * 1000), 0)
                found = self.stored_look(name, stamp)
                if found is None:
                    found = self._look_at_row(file.path, row, profile)
                    if not found.unreadable:
                        self._keep(name, stamp, found)
                sightings.append(ExaminedSession(file.agent, file.path, found, row.changed_at))
        except database.Unreadable as fault:
            self.notes.append(str(fault))
        return sightings

    def _look_at_row(self, path: str, row: database.Row, profile: Profile) -> Look:
        try:
            found = self._look_in_row(path, row, profile)
            _encode(found)  # what cannot be stored cannot be reported either
        except (sqlite3.Error, database.Unreadable):
            raise
        except Exception as fault:  # whatever is in one row, the others are shown
            return Look(
                session_id=row.session_id,
                last_at=row.changed_at,
                unreadable=why_not(fault),
            )
        return found

    def _look_in_row(self, path: str, row: database.Row, profile: Profile) -> Look:
        last = 60
        while True:
            records = database.records(path, row.session_id, last)
            at_end = look_at(profile.parse(records))
            asked = sum(r.data["table"] == "message" for r in records)
            if at_end.is_settled or asked < last:
                break
            last *= 8
        found = judged(at_end, profile, self.judge)
        found.session_id, found.cwd = row.session_id, row.cwd if is_path(row.cwd) else ""
        found.model = found.model or row.model
        found.started_at, found.last_at = row.started_at, found.last_at or row.changed_at
        return found

    # Sessions

    def sessions(
        self,
        sightings: Sequence[ExaminedSession],
        processes: Sequence[Process],
        now: float,
        *,
        only: Callable[[ExaminedSession], bool] | None = None,
    ) -> list[Session]:
        """Sessions with their state, the most recently active first. `only`: which of them are
        wanted; the others are used to decide which process belongs to which session."""
        sightings = _each_once(sightings)
        subjects = [
            alive.Subject(
                key=_key(s),
                agent=s.agent,
                session_id=s.look.session_id,
                path=s.path,
                cwd=s.look.cwd,
                last_at=s.look.last_at or s.changed_at,
                is_open=not s.look.awaits_user,
            )
            for s in sightings
        ]
        children = [file for file in self.found if file.parent_id]
        subjects += [
            alive.Subject(
                key=file.path,
                agent=file.agent,
                session_id=file.session_id,
                path=file.path,
                parent_id=file.parent_id,
            )
            for file in children
        ]
        behind = alive.behind(subjects, processes)
        counts = Counter((file.agent, file.parent_id) for file in children)
        sessions = [
            self.session(s, behind.get(_key(s)), counts[s.agent, s.look.session_id], now)
            for s in sightings
            if only is None or only(s)
        ]
        return sorted(sessions, key=lambda s: s.last_at or 0, reverse=True)

    def session(
        self, sighting: ExaminedSession, process: Process | None, children: int, now: float
    ) -> Session:
        """One session with its state; if it cannot be read, the result says so."""
        try:
            return self.session_of(sighting, process, children, now)
        except (sqlite3.Error, SegueError):
            raise
        except Exception as fault:
            return Session(
                agent=sighting.agent,
                session_id=sighting.look.session_id,
                path=sighting.path,
                cwd=sighting.look.cwd,
                last_at=sighting.changed_at,
                process=process,
                children=children,
                unreadable=why_not(fault),
            )

    def session_of(
        self, sighting: ExaminedSession, process: Process | None, children: int, now: float
    ) -> Session:
        """One session with its state, window, zone and forecast, by the policy that applies to
        it now. Everything that shows or acts on a session gets it from here."""
        look = sighting.look
        # The first records of a session may name no folder; the process that has it open does.
        cwd = look.cwd or (process.cwd if process is not None and process.certain else "")
        policy = self.policy_for(sighting.agent, look.model, cwd)
        window, enforced = self.windows.of(sighting.agent, look, policy)
        reading = _reading(look, window)
        ahead = None
        if reading is not None:
            ahead = forecast(
                reading,
                look.growth,
                policy,
                reserve_tokens=policy.reserve_tokens,
                enforced_at_tokens=enforced,
            )
        notes = look.notes + ((window.note,) if window.note and reading is not None else ())
        return Session(
            agent=sighting.agent,
            session_id=look.session_id,
            path=sighting.path,
            cwd=cwd,
            model=look.model,
            started_at=look.started_at,
            last_at=look.last_at or sighting.changed_at,
            reading=reading,
            zone=ahead.zone if ahead is not None else None,
            forecast=ahead,
            policy=policy,
            enforced_tokens=enforced,
            growth=look.growth,
            limits=look.limits,
            state=state_of(look, process, now),
            stop=look.stop,
            process=process,
            children=children,
            notes=notes,
            unreadable=look.unreadable,
        )

    def _priced(self, price_window: PriceWindow, model: str) -> int | None:
        if self.index is None:
            return price_window(model)
        asked, tokens = self.index.window(model)
        if not asked:
            tokens = price_window(model)
            try:
                self.index.keep_window(model, tokens)
            except sqlite3.Error as fault:
                if is_damage(fault):
                    raise  # otherwise it is looked up again next time
        return tokens


class _Selection:
    """Which sessions are examined: those that were active since a time, those that a process names
    or shows, and those that may belong to a process that does neither (see `core.alive`)."""

    def __init__(self, since: float | None, processes: Sequence[Process]) -> None:
        self.since = since
        self.names: set[tuple[str, str]] = set()
        self.named: set[str] = set()  # agents with a named session
        self.paths: set[str] = set()
        self.first_started_at: dict[
            str, float
        ] = {}  # by agent: the first process that shows nothing
        for process in processes:
            agent = process.agent
            ids = {process.session_id, *(hold.session_id for hold in process.holds)} - {""}
            self.names |= {(agent, name) for name in ids}
            self.named |= {agent} if ids else set()
            self.paths |= {hold.path for hold in process.holds}
            if not process.session_id and not process.holds and process.cwd:
                begun = self.first_started_at.get(agent, process.started_at)
                self.first_started_at[agent] = min(begun, process.started_at)

    def has(self, agent: str, session_id: str, path: str, changed_at: float) -> bool:
        """Whether to look at this file. If its name is not the session's id, it may be wanted."""
        return (
            self.since is None
            or changed_at >= min(self.since, self.first_started_at.get(agent, self.since))
            or path in self.paths
            or ((agent, session_id) in self.names if session_id else agent in self.named)
        )


def _each_once(sightings: Sequence[ExaminedSession]) -> list[ExaminedSession]:
    """A session in several files: a stub that a resume left, a copy in an archive. The one that
    says most counts, then the newest."""
    best: dict[tuple[str, str], ExaminedSession] = {}
    for each in sightings:
        name = (each.agent, each.look.session_id)
        if name not in best or _worth(each) > _worth(best[name]):
            best[name] = each
    return list(best.values())


def _worth(sighting: ExaminedSession) -> tuple[bool, float]:
    return sighting.look.used_tokens is not None, sighting.look.last_at or sighting.changed_at


def _key(sighting: ExaminedSession) -> str:
    return f"{sighting.path}#{sighting.look.session_id}"


def _reading(look: Look, window: Window) -> Reading | None:
    if look.used_tokens is None:
        return None
    parts = look.parts
    if parts is None or parts.total_tokens != look.used_tokens:
        parts = Spend(input_tokens=look.used_tokens)
    return Reading(
        input_tokens=parts.input_tokens,
        cache_write_tokens=parts.cache_write_tokens,
        cache_read_tokens=parts.cache_read_tokens,
        output_tokens=parts.output_tokens,
        window_tokens=window.tokens,
        source="transcript",
        at=look.used_at,
    )


def why_not(fault: Exception) -> str:
    """The reason of an error in a few words, for a file that cannot be read."""
    if isinstance(fault, OSError):
        return (fault.strerror or str(fault)).lower()
    return f"internal error: {type(fault).__name__}"


def make_judge(policy_for: PolicyFor, now: float) -> Judge:
    """Why turns ended, by the policy for all sessions of an agent: its project is only known from
    its file. Wordings are compiled when the first message must be read."""

    def judge(profile: Profile | None, ended: Turn | str) -> Stop:
        from segue.agents import ending
        from segue.api import load_catalogue
        from segue.core.stops.text.reader import MessageReader
        from segue.core.stops.text.wordings import Catalogue
        from segue.system import clock

        policy = policy_for(profile.name if profile is not None else "", "", "")
        needed = isinstance(ended, str) or ending.needs_wordings(ended)
        catalogue = load_catalogue(policy.exit_patterns) if needed else Catalogue(())
        reader = MessageReader(catalogue=catalogue, now=now, tz=clock.local_zone())
        if profile is not None and not isinstance(ended, str):
            return ending.judge_turn(profile, ended, reader, policy).stop
        source = ending.Source(text=str(ended), channel="transcript", name="session")
        return ending.judge(ending.Ending(sources=(source,)), reader, policy).stop

    return judge
