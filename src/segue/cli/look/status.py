"""`segue status`: the current and recent sessions."""

import os

import click

from segue.core.sessions.types import Session
from segue.system import clock
from segue.system.files import state
from segue.views import printing, tables
from segue.views.machine import RECENT_S, Machine, list_sessions, say_notes, with_machine
from segue.views.verdicts import duration


@click.command()
@click.option("--watch", is_flag=True, help="Keep refreshing; press q to quit.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout; with --watch one line each.")
def command(watch: bool, as_json: bool) -> None:
    """Show live sessions, and those of the last 24 hours."""
    if watch:
        from segue.cli.support.status_live import watch_status

        watch_status(as_json=as_json)
        return
    machine, found = with_machine(recent)
    say_notes(machine)
    if as_json:
        printing.say_json(as_dict(found))
    elif found:
        tables.show_by_run(found, machine.now)
    else:
        printing.say("no session in the last 24 hours; `segue sessions` lists older ones", err=True)
    if not as_json:
        _say_limits(found, machine.now)
        _say_daemon(machine.now)


def _say_limits(sessions: list[Session], now: float) -> None:
    """Prints the accounts' limits on one line of stderr, if any are known."""
    from segue.views import limits

    found = limits.known_limits(sessions, now, os.environ)
    zone = clock.local_zone()
    if lines := [line for account in found if (line := limits.short(account, now, zone))]:
        printing.say(f"limits: {'; '.join(lines)}", err=True)


def _say_daemon(now: float) -> None:
    """Prints the state of the daemon on stderr, if one is running."""
    if not os.path.exists(state.socket_path()):
        return
    from segue.cli.support.asking import remote
    from segue.errors import SegueError

    try:
        answer = remote().get("/v1/status")
    except SegueError:
        return
    parts = [f"segue watch: running for {duration(answer['uptime_s'])}"]
    parts += [f"paused: {what}" for what in answer["paused"]]
    for each in answer["handoffs"]:
        why = f" ({each['why']})" if each["why"] else ""
        parts.append(f"handoff {each['id']}: {each['step']}{why}")
    for each in answer["waiting"]:
        until = f" for {duration(each['until'] - now)}" if (each["until"] or 0) > now else ""
        parts.append(f"{each['session_id'][:8]}: {each['verdict']}{until}: {each['why']}")
    printing.say("\n  ".join(parts), err=True)


def recent(machine: Machine) -> list[Session]:
    """Live sessions, then those of the last 24 hours, each the newest first."""
    found = list_sessions(machine, machine.now - RECENT_S)
    return sorted(found, key=lambda session: not session.state.is_live)


def as_dict(sessions: list[Session]) -> dict[str, object]:
    """The sessions in their documented form (docs/sessions.md)."""
    return {"sessions": [tables.as_dict(session) for session in sessions]}
