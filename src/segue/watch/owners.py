"""Which run a session belongs to, and which session continues its work. Every view uses this
module, so they all say the same."""

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from segue.core.sessions.types import Session
from segue.errors import StateError
from segue.runs.folders import read
from segue.system.files import state
from segue.watch.log import LOG_NAME, Log

_DONE = "done"


def with_owners(
    sessions: Sequence[Session], log: Log | None = None
) -> tuple[list[Session], list[str]]:
    """The sessions with their runs and successors, and one line for everything that could not be
    read. `log`: the daemon's own, if it is open here."""
    notes: list[str] = []
    found = list(sessions)
    for add in (_with_runs, lambda each: _with_handoffs(each, log)):
        try:
            found = add(found)
        except StateError as fault:  # the sessions are shown anyway
            notes.append(str(fault))
    return found, notes


def is_carried_on(session: Session) -> bool:
    """Whether an unfinished run has the session, or continued its work in another session. If
    that cannot be read, no run counts as having it."""
    try:
        (found,) = _with_runs([session])
    except StateError:
        return False
    if found.run is None:
        return _is_fleets(session)
    return not found.run.is_final or bool(found.handed_over_to)


def _is_fleets(session: Session) -> bool:
    """Whether a fleet's task has it, whose log is elsewhere but whose run folder is here. While the
    fleet cannot be reached, the answer is yes."""
    from segue import fleet
    from segue.errors import ConfigError
    from segue.runs.store.owners import owners

    runs = Path(state.state_folder(), "runs")
    names = (file for file in runs.glob("run-*/leg-*/session") if read(file) == session.session_id)
    try:
        if next(names, None) is None or not fleet.url():
            return False
        with fleet.open_store() as store:
            owner = owners(store, {session.session_id}).get(session.session_id)
    except (StateError, ConfigError):
        return True
    return owner is not None and (not owner.run.is_final or bool(owner.successor))


def _with_runs(sessions: list[Session]) -> list[Session]:
    from segue.runs.store import open_store, runs_path

    if not sessions or not os.path.exists(runs_path()):
        return sessions
    from segue.runs.store.owners import owners

    with open_store() as store:
        known = owners(store, {session.session_id for session in sessions})
    found = []
    for session in sessions:
        owner = known.get(session.session_id)
        if owner is not None:
            session = replace(session, run=owner.run, handed_over_to=owner.successor)
        found.append(session)
    return found


def _with_handoffs(sessions: list[Session], log: Log | None) -> list[Session]:
    """The sessions that were handed over in a terminal."""
    path = os.path.join(state.state_folder(), LOG_NAME)
    if not sessions or (log is None and not os.path.exists(path)):
        return sessions
    own = Log(path) if log is None else log
    try:
        found = successors(own)
    finally:
        if log is None:
            own.close()
    return [
        replace(session, handed_over_to=successor)
        if not session.handed_over_to
        and (successor := found.get((session.agent, session.session_id)))
        else session
        for session in sessions
    ]


def successors(log: Log) -> dict[tuple[str, str], str]:
    """By agent and id, the session that continues another after a handoff in a terminal."""
    found: dict[tuple[str, str], str] = {}
    seq = 0
    while notes := log.since(seq, ("metrics",)):
        for note in notes:
            seq, data = note.seq, note.data
            new = data.get("new_session_id")
            if data.get("outcome") == _DONE and new and new != data.get("session_id"):
                found[str(data.get("agent")), str(data.get("session_id"))] = str(new)
    return found
