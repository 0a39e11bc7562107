"""Finds the sessions of this machine that died without segue."""

import os
from collections.abc import Sequence

from segue.agents import drives
from segue.agents.contracts.drive import Drive
from segue.core.resumes.rescues import died_of, has_work_left, ways
from segue.core.sessions.types import Look, Session
from segue.core.stops.reasons import StopReason
from segue.errors import InputError
from segue.sessions.survey import ExaminedSession
from segue.sessions.tasks import Tasks
from segue.views.machine import Machine, choose
from segue.views.rescues.listing import Dead, Work
from segue.watch import owners

_GIT_S = 1.0


def find(machine: Machine, since: float | None, *, with_all: bool) -> tuple[list[Dead], list[str]]:
    """The sessions that stopped since then with unfinished work and belong to no run, the newest
    first; and the ids of unfinished runs that other such sessions belong to and no process drives.
    `with_all`: also sessions that finished or that the user ended."""
    sightings = machine.survey.active(since, machine.processes)

    def is_wanted(each: ExaminedSession) -> bool:
        reason = died_of(each.look)
        is_new = since is None or each.changed_at >= since
        return is_new and (has_work_left(reason) or (with_all and reason is not None))

    found = machine.survey.sessions(sightings, machine.processes, machine.now, only=is_wanted)
    found, notes = owners.with_owners(found)
    machine.survey.notes += notes
    runs = {s.run.id: None for s in found if s.run is not None and not s.run.is_driven}
    runs = {run: None for run in runs if _is_unfinished(run, found)}
    alone = [
        s
        for s in found
        if s.process is None and s.run is None and not s.handed_over_to and not s.unreadable
    ]
    looks = {(each.path, each.look.session_id): each.look for each in sightings}
    tasks = Tasks(machine.index, machine.found).of(alone)
    driven = _Driven()
    dead = [
        _dead(session, looks[session.path, session.session_id], task, driven)
        for session, task in zip(alone, tasks, strict=True)
    ]
    return dead, list(runs)


def _is_unfinished(run: str, sessions: Sequence[Session]) -> bool:
    return any(s.run is not None and s.run.id == run and not s.run.is_final for s in sessions)


def named(machine: Machine, name: str) -> Dead:
    """The session that a name refers to, even if it is live or part of a run. Raises InputError if
    there is none, or several, or if it cannot be read."""
    sightings = machine.survey.active(None, machine.processes)
    sessions = machine.survey.sessions(sightings, machine.processes, machine.now)
    session = choose(sessions, name)
    (session,), notes = owners.with_owners([session])
    machine.survey.notes += notes
    if session.unreadable:
        raise InputError(f"{session.path} cannot be read: {session.unreadable}")
    looks = {(each.path, each.look.session_id): each.look for each in sightings}
    look = looks[session.path, session.session_id]
    (task,) = Tasks(machine.index, machine.found).of([session])
    return _dead(session, look, task, _Driven())


class _Driven(dict[str, Drive | None]):
    """The drive of each agent, looked up once; None if segue cannot run it."""

    def __missing__(self, agent: str) -> Drive | None:
        return self.setdefault(agent, drives.find(agent))


def _dead(session: Session, look: Look, task: str, driven: _Driven) -> Dead:
    drive = driven[session.agent]
    reason = died_of(look) or StopReason.UNKNOWN
    return Dead(
        session=session,
        reason=reason,
        task=task,
        is_cut=look.is_cut,
        ways=ways(
            reason,
            is_driven=drive is not None,
            resumes=drive is not None and drive.resumes and _fits(session, drive),
            is_cut=look.is_cut,
        ),
    )


def _fits(session: Session, drive: Drive) -> bool:
    """Whether a session still fits into its window after a resume, which makes sessions of some
    agents larger."""
    reading = session.reading
    if reading is None or drive.resume_factor <= 1.0:
        return True
    return reading.used_tokens * drive.resume_factor <= reading.window_tokens


def works(machine: Machine, shown: Sequence[Dead]) -> list[Work]:
    """What is left of each session's work in its folder, in the same order."""
    from segue.system.git import git

    written = _written_files(machine, [dead.session for dead in shown])
    changes: dict[str, int | None] = {}
    found = []
    for dead, files in zip(shown, written, strict=True):
        cwd = dead.session.cwd
        if not cwd or not os.path.isdir(cwd):
            found.append(Work(is_gone=bool(cwd)))
            continue
        if cwd not in changes:
            state = git.status(cwd, max_s=_GIT_S)
            is_told = state is not None and bool(state.digest)
            changes[cwd] = len(state.status.splitlines()) if state and is_told else None
        present = sum(os.path.lexists(os.path.join(cwd, path)) for path in files)
        found.append(Work(files=len(files), there=present, uncommitted=changes[cwd]))
    return found


def _written_files(machine: Machine, sessions: Sequence[Session]) -> list[list[str]]:
    """The files that each session wrote, counted as `show` counts them."""
    from segue.sessions.count.count import Batch, tally_of

    files = {file.path: file for file in machine.found}
    known = machine.index.stamps([home.path for home in machine.homes])
    batch = Batch(machine.index, machine.found, known)
    databases = {home.agent for home in machine.homes if home.store.database}
    for session in sessions:
        file = files.get(session.path)
        if file is None or session.agent in databases:
            continue
        if known.get(file.path) != file.stamp:
            batch.add(file)
    batch.finish()
    found = []
    for session in sessions:
        if session.agent in databases:
            found.append(_changed(session))
            continue
        row = machine.index.counted(session.path)
        paths = tally_of(row).files if row is not None else ()
        found.append([path for path in paths if "\0" not in path])
    return found


def _changed(session: Session) -> list[str]:
    from segue.sessions import database

    try:
        return database.files_changed(session.path, session.session_id)
    except database.Unreadable:
        return []
