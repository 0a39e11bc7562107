"""`segue sessions`: the list of all sessions."""

import os
from functools import partial

import click

from segue import agents
from segue.cli.support.times import instant
from segue.core.nearest import did_you_mean
from segue.core.sessions.types import Session, SessionState
from segue.errors import InputError
from segue.sessions.find import MARKDOWN
from segue.system import clock
from segue.system.files import files
from segue.views import printing, tables
from segue.views.machine import list_sessions, say_notes, with_machine


@click.command()
@click.option("--agent", metavar="NAME", help="Only this agent's.")
@click.option(
    "--project", metavar="FOLDER", help="Only those of this folder, or of a folder with this name."
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in SessionState]),
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
    begin = None if since is None else instant(since, clock.now())
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
        printing.say_json({"sessions": [tables.as_dict(session) for session in found]})
    elif found:
        tables.show(found, machine.now)
    else:
        printing.say("no sessions" if not machine.found else "no matching sessions", err=True)


def _agent(name: str) -> str:
    found = agents.canonical(name)
    known = (*agents.stores(), MARKDOWN)
    if found not in known:
        hint = did_you_mean(name, known) or f"choose one of {', '.join(known)}"
        raise InputError(f"--agent {name}: no such agent; {hint}")
    return found


def _is_of(session: Session, project: str) -> bool:
    path = files.real(os.path.expanduser(project))
    folder = files.real(session.cwd) if session.cwd else ""
    return bool(folder) and (folder == path or os.path.basename(folder) == project)
