"""Matches running agents to their sessions.

What a process itself reports or shows comes first. Other agents are matched by folder and time:
the newest session in the process's folder that was written to since the process started, because
a process works on one session at a time. A process that was started to continue the newest
session has it open even before it writes anything.
"""

from collections.abc import Collection, Iterable
from typing import TypeVar

from msgspec import Struct

from segue.core.sessions.types import Hold, Process

_Name = TypeVar("_Name")
_RANKS = {"busy": 3, "waiting": 2, "idle": 1}


class Subject(Struct, frozen=True, kw_only=True):
    """The relevant data of a session."""

    key: str  # its key in the answer: its path, or its id if it shares a database with others
    agent: str
    session_id: str
    path: str  # of its file, or of the database
    cwd: str = ""
    parent_id: str = ""
    last_at: float | None = None
    is_open: bool = False  # its last turn has not ended


def behind(sessions: Iterable[Subject], processes: Iterable[Process]) -> dict[str, Process]:
    """The process that has each session open, by the session's key. A process has one session at
    most, unless it serves others. No process is matched to a sub-agent's session, because the
    parent's process has that open."""
    running: dict[int, Process] = {}
    for process in sorted(processes, key=_rank, reverse=True):
        running.setdefault(process.pid, process)
    known = _SubjectIndex(_concerned(sessions, running.values()))
    found: dict[str, Process] = {}
    loose, servers = [], []
    for process in running.values():
        if process.serves:
            servers.append(process)
        elif process.session_id or process.holds:
            subject = known.of(process)
            if subject is not None:
                found.setdefault(subject.key, process)
        else:
            loose.append(process)
    _guess(known, loose, servers, found)
    for server in servers:
        # A server holds sessions long after the last client has left, so holding one means nothing.
        for hold in server.holds:
            subject = known.holder_session(server.agent, hold)
            if subject is not None and subject.is_open:
                found.setdefault(subject.key, server)
    return found


def _rank(process: Process) -> tuple[int, float, int]:
    """The order by which one of several processes on the same session counts: a working one first,
    then the one that started last."""
    return (_RANKS.get(process.status, 0), process.started_at, process.pid)


def _concerned(sessions: Iterable[Subject], processes: Collection[Process]) -> list[Subject]:
    """The few sessions, of thousands, that any process could have open."""
    holds = [hold for process in processes for hold in process.holds]
    ids = {p.session_id for p in processes} | {hold.session_id for hold in holds}
    paths = {hold.path for hold in holds}
    folders = {_folder(p.cwd) for p in processes}
    wanted = {*ids, *paths, *folders, *(folder + "/" for folder in folders)} - {""}
    return [s for s in sessions if not wanted.isdisjoint((s.cwd, s.session_id, s.path))]


class _SubjectIndex:
    """The sessions that can have a process, by their keys, ids and paths."""

    def __init__(self, sessions: Iterable[Subject]) -> None:
        self.by_key: dict[str, Subject] = {}
        self.by_id: dict[tuple[str, str], Subject] = {}
        self.by_path: dict[tuple[str, str], Subject] = {}
        self.children: set[tuple[str, str]] = set()
        for subject in sessions:
            if subject.parent_id:
                self.children.add((subject.agent, subject.session_id or subject.path))
                continue
            _keep_newer(self.by_key, subject.key, subject)
            # The same session may have two files: a copy, or one that was moved.
            _keep_newer(self.by_id, (subject.agent, subject.session_id), subject)
            _keep_newer(self.by_path, (subject.agent, subject.path), subject)

    def holder_session(self, agent: str, hold: Hold) -> Subject | None:
        """The session that is held open; None if it is unknown."""
        if hold.path and (agent, hold.path) in self.by_path:
            return self.by_path[agent, hold.path]
        return self.by_id.get((agent, hold.session_id)) if hold.session_id else None

    def of(self, process: Process) -> Subject | None:
        """The session that a process reports or holds open; None if that has no file yet."""
        agent = process.agent
        if process.session_id:
            return self.by_id.get((agent, process.session_id))
        latest: tuple[float, str] | None = None
        chosen = None
        for hold in process.holds:
            subject = self.holder_session(agent, hold)
            if subject is None and (agent, hold.session_id or hold.path) in self.children:
                continue  # a process holds its sub-agents' sessions too
            # A terminal that began a new session still holds the old one; the new one has no file
            # at first.
            order = (_active_at(subject, hold), hold.session_id or hold.path)
            if latest is None or order > latest:
                latest, chosen = order, subject
        return chosen


def _guess(
    known: _SubjectIndex, loose: list[Process], servers: list[Process], found: dict[str, Process]
) -> None:
    """Adds to `found` the sessions of processes that report nothing: those in their folders, the
    newest first. Of several processes that fit, the one that started last gets the session, because
    the others fit older sessions better."""
    waiting: dict[tuple[str, str], list[Process]] = {}
    for process in sorted(loose, key=lambda p: (p.started_at, p.pid), reverse=True):
        if process.cwd:
            waiting.setdefault((process.agent, _folder(process.cwd)), []).append(process)
    if not waiting:
        return
    # Clients of a server work on a session that the server holds, and has held since they started.
    served = {server.agent for server in servers}
    holds: dict[str, Hold] = {}
    for server in servers:
        for hold in server.holds:
            subject = known.holder_session(server.agent, hold)
            if subject is not None:
                holds[subject.key] = hold
    order = sorted(
        (s for s in known.by_key.values() if _place(s) in waiting and s.key not in found),
        key=lambda s: (_active_at(s, holds.get(s.key)), *_age(s)),
        reverse=True,
    )
    newest: dict[tuple[str, str], Subject] = {}
    for subject in known.by_key.values():
        _keep_newer(newest, _place(subject), subject)
    for subject in order:
        if subject.agent in served and subject.key not in holds:
            continue
        active_at = _active_at(subject, holds.get(subject.key))
        for process in waiting[_place(subject)]:
            fits = process.database in ("", subject.path)
            is_meant = process.goes_on and newest[_place(subject)] is subject
            if fits and (is_meant or process.started_at <= active_at) and active_at > 0:
                found[subject.key] = process
                waiting[_place(subject)].remove(process)
                break


def _active_at(subject: Subject | None, hold: Hold | None) -> float:
    last_at = subject.last_at if subject is not None else None
    return max(last_at or 0.0, hold.since if hold is not None else 0.0)


def _place(subject: Subject) -> tuple[str, str]:
    return (subject.agent, _folder(subject.cwd))


def _folder(path: str) -> str:
    return path.rstrip("/") or path


def _age(subject: Subject) -> tuple[float, str, str, str]:
    return (subject.last_at or 0.0, subject.path, subject.session_id, subject.key)


def _keep_newer(newest: dict[_Name, Subject], name: _Name, subject: Subject) -> None:
    before = newest.get(name)
    if before is None or _age(before) < _age(subject):
        newest[name] = subject
