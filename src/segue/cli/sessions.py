"""`segue sessions`: the list of all sessions."""

import json
import os
import re
from functools import partial

import click

from segue import agents
from segue.cli import tables
from segue.cli.machine import list_sessions, say_notes, with_machine
from segue.core.session import Session, State
from segue.errors import InputError
from segue.io import clock
from segue.transcripts.find import MARKDOWN

_AGO = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@click.command()
@click.option("--agent", metavar="NAME", help="Only this agent's.")
@click.option("--project", metavar="FOLDER", help="Only of this folder, or of one with this name.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in State]),
    help="Only in this state; may be given more than once.",
)
@click.option("--since", metavar="TIME", help="Only active since: 90m, 12h, 7d, or a time.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(
    agent: str | None,
    project: str | None,
    states: tuple[str, ...],
    since: str | None,
    as_json: bool,
) -> None:
    """List sessions, the most recently active first."""
    named = _agent(agent) if agent else None
    begin = None if since is None else _instant(since, clock.now())
    machine, listed = with_machine(partial(list_sessions, since=begin))
    found = [
        session
        for session in listed
        if (named is None or session.agent == named)
        and (project is None or _is_of(session, project))
        and (not states or session.state.value in states)
        and (begin is None or (session.last_at or 0) >= begin or session.state.is_live)
    ]
    say_notes(machine)
    if as_json:
        click.echo(json.dumps({"sessions": [tables.as_dict(session) for session in found]}))
    elif found:
        tables.show(found, machine.now)
    else:
        click.echo("no sessions" if not machine.found else "no sessions like that", err=True)


def _agent(name: str) -> str:
    found = agents.canonical(name)
    known = (*agents.stores(), MARKDOWN)
    if found not in known:
        raise InputError(f"agent {name!r} keeps no sessions here; known: {', '.join(known)}")
    return found


def _is_of(session: Session, project: str) -> bool:
    path = os.path.realpath(os.path.expanduser(project))
    folder = os.path.realpath(session.cwd) if session.cwd else ""
    return bool(folder) and (folder == path or os.path.basename(folder) == project)


def _instant(given: str, now: float) -> float:
    if ago := _AGO.fullmatch(given):
        return now - float(ago[1]) * _UNITS[ago[2]]
    try:
        return clock.parse_instant(given, clock.local_zone())
    except InputError:
        raise InputError(
            f"time {given!r} is not one; write 90m, 12h, 7d, unix seconds or 2026-11-15T20:30:00Z"
        ) from None
