"""Finds agents that the user started: a session has only one writer, and the user has priority."""

import os
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from segue.agents.signs import SIGNS
from segue.core.sessions import alive
from segue.core.sessions.types import Process
from segue.sessions import database, find
from segue.system.process import processes


def working_on(
    agent: str, session_id: str, path: str, cwd: str, env: Mapping[str, str]
) -> Process | None:
    """The process that has this session open, or that was started to continue the newest session
    of this folder, if that is this one; None if there is none, or only a guess."""
    homes = [home for home in find.homes(env) if home.agent == agent]
    if not homes or not session_id:
        return None
    living = [found for process in processes.living(homes) if (found := _sure(process, agent))]
    subject = alive.Subject(
        key=session_id, agent=agent, session_id=session_id, path=path, cwd=cwd, is_open=True
    )
    subjects = [subject]
    if any(process.goes_on for process in living):
        subjects = list(_beside(subject, homes))
    return alive.behind(subjects, living).get(session_id)


def _sure(process: Process, agent: str) -> Process | None:
    """A process that reports what it works on. If an agent hides that, its user may have opened
    the newest session: the user has priority."""
    if process.certain or process.goes_on:
        return process
    signs = SIGNS.get(agent)
    if signs and signs.hides_arguments and processes.has_terminal(process.pid):
        return replace(process, goes_on=True)
    return None


def _beside(subject: alive.Subject, homes: Sequence[find.Home]) -> Iterator[alive.Subject]:
    """The session and the others of its folder, with the times of their last records."""
    files = find.sessions(homes)
    if any(home.store.database for home in homes):
        for file in files:
            for row in _rows(file.path):
                yield replace(
                    subject,
                    key=row.session_id,
                    session_id=row.session_id,
                    path=file.path,
                    cwd=row.cwd,
                    parent_id=row.parent_id,
                    last_at=row.changed_at,
                )
        return
    own = next((f for f in files if _is_of(f, subject)), None)
    if own is None:
        yield subject
        return
    # Agents without a database that show nothing else have a folder for each of the user's.
    for file in files:
        if os.path.dirname(file.path) == os.path.dirname(own.path):
            yield replace(
                subject,
                key=subject.key if file is own else file.path,
                session_id=subject.session_id if file is own else file.session_id,
                path=file.path,
                last_at=file.stamp[3] / 1e9,
            )


def _is_of(file: find.FileOnDisk, subject: alive.Subject) -> bool:
    return file.path == subject.path if subject.path else file.session_id == subject.session_id


def _rows(path: str) -> list[database.Row]:
    try:
        return database.sessions(path)
    except database.Unreadable:
        return []
