"""The sessions of this machine, for the commands that show them."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import click

from segue.core.policy import Policy
from segue.core.session import Process, Session
from segue.errors import InputError
from segue.io import clock, config, state
from segue.io.sqlite import raise_if_ours
from segue.transcripts import find
from segue.transcripts.index import Index, open_index, set_aside
from segue.transcripts.survey import Survey, make_judge

Result = TypeVar("Result")

RECENT_S = 24 * 3600.0


@dataclass(frozen=True)
class Machine:
    """Everything a command needs to look at sessions."""

    homes: list[find.Home]
    found: list[find.Found]  # with sub-agents' parents, as far as they are told
    index: Index
    policy: Policy
    survey: Survey
    processes: list[Process]
    now: float


def with_machine(
    work: Callable[[Machine], Result], *, with_processes: bool = True
) -> tuple[Machine, Result]:
    """What `work` finds on this machine. Says on stderr, in one line each, what was odd. An index
    that opens, and breaks while `work` reads it, is set aside, and the work done again."""
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
        click.echo(f"segue: {note}", err=True)


def _look_around(index: Index, *, with_processes: bool) -> Machine:
    now = clock.now()
    policy = config.policy()
    homes = find.homes(os.environ, config.homes())
    found = find.sessions(homes)
    survey = Survey(
        homes,
        found,
        index,
        policy,
        judge=make_judge(policy, now),
        environment=os.environ,
        price_window=_price_window,
    )
    processes: list[Process] = []
    if with_processes:
        from segue.io.processes import living

        processes = living(homes)
    return Machine(homes, survey.found, index, policy, survey, processes, now)


def _price_window(model: str) -> int | None:
    from segue.io import prices

    return prices.window_tokens(model)


def list_sessions(machine: Machine, since: float | None = None) -> list[Session]:
    """Sessions that were active since then or have an agent behind them, the newest first."""
    seen = machine.survey.seen(since, machine.processes)
    sessions = machine.survey.sessions(seen, machine.processes, machine.now)
    if since is None:
        return sessions
    recent = {(s.path, s.look.session_id) for s in seen if s.changed_at >= since}
    return [s for s in sessions if s.state.is_live or (s.path, s.session_id) in recent]


def say_notes(machine: Machine, most: int = 5) -> None:
    """What could not be read, one line each."""
    notes = machine.survey.notes
    for note in notes[:most]:
        click.echo(f"segue: {note}", err=True)
    if len(notes) > most:
        click.echo(f"segue: and {len(notes) - most} more that could not be read", err=True)


def resolve(sessions: Sequence[Session], name: str) -> list[Session]:
    """Sessions that a name may mean: an id or the beginning of one, a file, a project's folder or
    the last part of it. What fits exactly goes before what only begins so."""
    path = os.path.realpath(os.path.expanduser(name))
    ways: tuple[Callable[[Session], bool], ...] = (
        lambda s: s.session_id == name,
        lambda s: os.path.realpath(s.path) == path,
        lambda s: len(name) >= 2 and s.session_id.startswith(name),
        lambda s: bool(s.cwd) and os.path.realpath(s.cwd) == path,
        lambda s: bool(s.cwd) and os.path.basename(s.cwd.rstrip("/")) == name,
    )
    for fits in ways:
        found = [session for session in sessions if fits(session)]
        if found:
            return found
    return []


def choose(sessions: Sequence[Session], name: str) -> Session:
    """The one session that a name means; raises InputError with the list if there are several."""
    found = resolve(sessions, name)
    if len(found) == 1:
        return found[0]
    if not found:
        raise InputError(f"no session {name!r}; `segue sessions` lists them")
    lines = [f"  {s.session_id}  {s.agent}  {s.cwd or s.path}  {s.state.value}" for s in found[:20]]
    more = f"\n  and {len(found) - 20} more" if len(found) > 20 else ""
    raise InputError(f"{name!r} may be one of {len(found)}:\n" + "\n".join(lines) + more)
