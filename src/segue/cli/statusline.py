"""`segue statusline`: claude's status line, from the daemon or without one."""

import os
import sys

import click

from segue import client
from segue.core.session import Session
from segue.errors import InputError
from segue.io import clock, state
from segue.io.settings import load
from segue.watch.line import line


@click.command()
@click.option("--no-color", is_flag=True, help="Plain text.")
def command(no_color: bool) -> None:
    """Print one line for the JSON that claude gives a status line on stdin: how full the window is,
    the zone, the growth, the way to the handoff, the plan's limits.

    What `segue setup claude` installs says the same in a tenth of the time.
    """
    if sys.stdin.isatty():
        raise InputError("give it claude's JSON on stdin; `segue setup claude` has claude do that")
    given = sys.stdin.buffer.read(client.MOST_BYTES)
    payload = client.parsed(given)
    color = not no_color and not os.environ.get("NO_COLOR")
    width = os.environ.get("COLUMNS", "")
    columns = int(width) if width.isdecimal() and len(width) < 6 else 0
    body = client.with_terminal(given, columns, color)
    said = client.ask(state.socket_path(), "/v1/statusline", body, client.HOOK_S)
    if said is not None and said[1]:
        click.echo(said[1].decode("utf-8", "replace").rstrip("\n"), color=color)
        return
    session = _session(payload)
    cwd = session.cwd if session is not None and os.path.isdir(session.cwd) else os.getcwd()
    model = session.model if session is not None else ""
    policy = load(cwd, os.environ).policy("claude", model)
    click.echo(line(payload, session, policy, clock.now(), columns, color), color=color)


def _session(payload: dict[str, object]) -> Session | None:
    """The session that the payload is about, as its file tells."""
    path = payload.get("transcript_path")
    if not isinstance(path, str) or not os.path.isfile(path):
        return None
    from segue.cli.machine import list_sessions, resolve, with_machine

    _, listed = with_machine(list_sessions)
    found = resolve(listed, path)
    return found[0] if found else None
