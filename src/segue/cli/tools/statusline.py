"""`segue statusline`: claude's status line, from the daemon or without one."""

import os
import sys

import click

from segue import client
from segue.core.sessions.types import Session
from segue.errors import InputError
from segue.system import clock
from segue.system.config.policies import Policies
from segue.system.files import state
from segue.views import printing
from segue.watch.server.status_line import line


@click.command()
@click.option("--no-color", is_flag=True, help="Plain text.")
@click.option("--no-daemon", is_flag=True, help="Read the session directly, without the daemon.")
def command(no_color: bool, no_daemon: bool) -> None:
    """Print a status line for the JSON that claude passes on stdin: how full the window is, the
    zone, the growth, the distance to the handoff, the plan's limits.

    The command that `segue setup claude` installs prints the same in a tenth of the time.
    """
    if sys.stdin.isatty():
        raise InputError("no JSON from claude on stdin; to let claude call it: segue setup claude")
    given = sys.stdin.buffer.read(client.MAX_BYTES)
    payload = client.parsed(given)
    color = not no_color and not os.environ.get("NO_COLOR")
    width = os.environ.get("COLUMNS", "")
    columns = int(width) if width.isdecimal() and len(width) < 6 else 0
    body = client.with_terminal(given, columns, color)
    answer = None
    if not no_daemon:
        answer = client.ask(state.socket_path(), "/v1/statusline", body, client.HOOK_S)
    if answer is not None and answer[1]:
        text = answer[1].decode("utf-8", "replace").rstrip("\n")
        printing.say(printing.painted(text), color=color)
        return
    session = _session(payload)
    policies = Policies(os.environ)
    own = line(payload, session, policies.policy, clock.now(), columns, color)
    printing.say(printing.painted(own), color=color)


def _session(payload: dict[str, object]) -> Session | None:
    """The session that the payload is about, from its session file; None if there is no such
    file."""
    path = payload.get("transcript_path")
    if not isinstance(path, str) or not os.path.isfile(path):
        return None
    from segue.views.machine import Machine, with_machine

    file = os.path.realpath(path)

    def look(machine: Machine) -> list[Session]:
        survey = machine.survey
        survey.found = [f for f in survey.found if os.path.realpath(f.path) == file]
        return survey.sessions(survey.active(), machine.processes, machine.now)

    _, found = with_machine(look)
    return found[0] if found else None
