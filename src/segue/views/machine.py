"""The sessions of this machine, for every view that shows them."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from segue.core.names import SessionName, matching
from segue.core.sessions.types import Process, Session
from segue.errors import InputError
from segue.sessions import find
from segue.sessions.count.index import Index, open_index, set_aside
from segue.sessions.survey import Survey, make_judge
from segue.system import clock
from segue.system.config import config
from segue.system.config.policies import Policies
from segue.system.files import files, state
from segue.system.files.sqlite import raise_if_ours
from segue.views import printing
from segue.watch import owners

Result = TypeVar("Result")

RECENT_S = 24 * 3600.0
_HISTORY_FILES = 50


@dataclass(frozen=True)
class Machine:
    """Everything that a command needs to list sessions, as of `now`."""

    homes: list[find.Home]
    found: list[find.FileOnDisk]  # with the parents of sub-agents' sessions, where known
    index: Index
    survey: Survey
    policies: Policies
    processes: list[Process]
    now: float


def with_machine(
    work: Callable[[Machine], Result], *, with_processes: bool = True
) -> tuple[Machine, Result]:
    """Calls `work` with this machine's sessions. Prints anything odd on stderr, one line each. If
    the index turns out to be damaged, it is set aside and `work` is called again. The caller closes
    `machine.index`, or leaves that to the end of the process."""
    index, note = open_index(state.index_path())
    _say(note)
    try:
        machine = _look_around(index, with_processes=with_processes)
        return machine, work(machine)
    except sqlite3.DatabaseError as fault:
        index.close()
        raise_if_ours(fault, index.path)
        index, note = set_aside(index, str(fault))
    _say(note)
    machine = _look_around(index, with_processes=with_processes)
    return machine, work(machine)


def _say(note: str) -> None:
    if note:
        printing.complain(note)


def _look_around(index: Index, *, with_processes: bool) -> Machine:
    now = clock.now()
    policies = Policies(os.environ)
    homes = find.homes(os.environ, config.homes())
    found = find.sessions(homes)
    survey = Survey(
        homes,
        found,
        index,
        policies.policy,
        judge=make_judge(policies.policy, now),
        environment=os.environ,
    )
    processes: list[Process] = []
    if with_processes:
        from segue.system.process.processes import living

        processes = living(homes)
    return Machine(homes, survey.found, index, survey, policies, processes, now)


def list_sessions(machine: Machine, since: float | None = None) -> list[Session]:
    """Sessions that were active since then or that an agent has open, the newest first."""
    sightings = machine.survey.active(since, machine.processes)
    sessions = machine.survey.sessions(sightings, machine.processes, machine.now)
    sessions, notes = owners.with_owners(sessions)
    machine.survey.notes += notes
    if since is None:
        return sessions
    recent = {(s.path, s.look.session_id) for s in sightings if s.changed_at >= since}
    return [s for s in sessions if s.state.is_live or (s.path, s.session_id) in recent]


def say_notes(machine: Machine, most: int = 5) -> None:
    """Prints what could not be read, one line each, at most `most` of them."""
    notes = [*machine.policies.notes, *machine.survey.notes]
    for note in notes[:most]:
        printing.complain(note)
    if len(notes) > most:
        printing.complain(f"and {len(notes) - most} more that could not be read")


def choose(sessions: Sequence[Session], name: str) -> Session:
    """The one session that a name refers to. Raises InputError if there is none, or several; then
    with a list."""
    if not name.strip():
        raise InputError("SESSION is empty; `segue sessions` lists them")
    found = matching(name, sessions, lambda s: SessionName(s.session_id, s.path, s.cwd), _real)
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"no session {name!r}; `segue sessions` lists them")
    lines = [f"  {s.session_id}  {s.agent}  {s.cwd or s.path}  {s.state.value}" for s in found[:20]]
    more = [f"  and {len(found) - 20} more"] if len(found) > 20 else []
    raise InputError(f"{name!r} matches {len(found)} sessions; name one by its id:", *lines, *more)


def _real(path: str) -> str:
    return files.real(os.path.expanduser(path))


def sizes_of(machine: Machine, listed: Sequence[Session]) -> dict[str, tuple[int, ...]]:
    """The context sizes after each reply of these sessions, by session file; files that changed are
    counted first. Left out: sessions of agents that store all of them in one database."""
    from segue.core.sessions.ledger import Ledger
    from segue.sessions.count.account import samples
    from segue.sessions.count.count import Batch

    wanted = {session.path for session in listed}
    databases = {home.agent for home in machine.homes if home.store.database}
    files = [
        file
        for file in machine.found
        if file.path in wanted and not file.parent_id and file.agent not in databases
    ]
    known = machine.index.stamps([home.path for home in machine.homes])
    batch = Batch(machine.index, machine.found, known)
    for file in files:
        if known.get(file.path) != file.stamp:
            batch.add(file)
    batch.finish()
    found = {}
    for file in files:
        if (row := machine.index.counted(file.path)) is not None:
            sizes = samples(Ledger(row.ledger, row.models))
            found[file.path] = tuple(sample.used_tokens for sample in sizes)
    return found


def project_costs(machine: Machine, listed: Sequence[Session], session: Session) -> list[int]:
    """The tokens that earlier tasks needed, with the same agent in the same project as a session.
    From the newest sessions; files that changed are counted first. Empty for agents that store all
    sessions in one database, because its rows do not distinguish projects."""
    from segue.core.sessions.forecasts.growth import task_costs
    from segue.core.sessions.ledger import Ledger
    from segue.sessions.count.account import samples
    from segue.sessions.count.count import Batch

    if any(home.store.database for home in machine.homes if home.agent == session.agent):
        return []
    same = {s.path for s in listed if s.agent == session.agent and s.cwd == session.cwd}
    files = sorted(
        (f for f in machine.found if f.path in same and not f.parent_id),
        key=lambda file: file.changed_at,
        reverse=True,
    )[:_HISTORY_FILES]
    known = machine.index.stamps([home.path for home in machine.homes])
    batch = Batch(machine.index, machine.found, known)
    for file in files:
        if known.get(file.path) != file.stamp:
            batch.add(file)
    batch.finish()
    rows = [machine.index.counted(file.path) for file in files]
    return [
        cost
        for row in rows
        if row is not None
        for cost in task_costs(samples(Ledger(row.ledger, row.models)))
    ]
