"""`segue limits`: the limits of each account, how much is used, and when they reset."""

import os

import click

from segue import agents, fleet
from segue.core.accounts import KEEP_S
from segue.errors import InputError
from segue.system import clock
from segue.views import limits, printing
from segue.views.machine import list_sessions, say_notes, with_machine


@click.command()
@click.argument("account", required=False)
@click.option("--clear", is_flag=True, help="Forget the recorded limits, so that runs try at once.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(account: str | None, clear: bool, as_json: bool) -> None:
    """Show each account's limits: how much is used, when they reset, who saw that and when.

    A limit that one run or session hits applies to everything on the same account: nobody else
    tries before the reset, then one goes first, and the others follow after its first reply.
    ACCOUNT is an id from the list, or an agent's name.
    """
    if clear:
        _clear(account)
        return
    now = clock.now()
    machine, sessions = with_machine(
        lambda machine: list_sessions(machine, now - KEEP_S), with_processes=False
    )
    say_notes(machine)
    found = limits.known_limits(sessions, now, os.environ, fleet.open_accounts())
    if account is not None:
        found = [each for each in found if account in (each.id, each.agent)]
        if not found and account not in agents.names():
            raise InputError(f"no account or agent {account!r}; `segue limits` lists the accounts")
    if as_json:
        printing.say_json({"accounts": [limits.as_dict(each, now) for each in found]})
        return
    if not found:
        whose = f" for {account}" if account is not None else ""
        learns = "segue learns them from what agents report"
        printing.say(f"no limits are recorded{whose} yet: {learns}", err=True)
    for each in found:
        printing.say("\n".join(limits.lines(each, now, clock.local_zone())))


def _clear(account: str | None) -> None:
    known = fleet.open_accounts()
    ids = [each.id for each in known.all(clock.now()) if account in (None, each.id, each.agent)]
    if account is not None and not ids:
        raise InputError(f"no limit is recorded for {account!r}; `segue limits` lists the accounts")
    cleared = known.clear(ids)
    message = f"forgotten: {', '.join(cleared)}" if cleared else "no limits are recorded"
    printing.say(message, err=True)
