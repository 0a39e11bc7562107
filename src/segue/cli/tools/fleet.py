"""`segue fleet`: the machines that share one queue."""

from typing import Any

import click

from segue import fleet as fleets
from segue.cli.support.numbers import Decimal, Whole
from segue.core.accounts import limited_until
from segue.core.sessions.shapes import duration
from segue.errors import InputError, StateError
from segue.fleet import accounts, machines
from segue.fleet.accounts import AccountCap
from segue.fleet.database import PROTOCOL, FleetDatabase, without_password
from segue.fleet.machines import Machine
from segue.system import clock
from segue.views import printing
from segue.views.run.block import clean, counted
from segue.views.verdicts import iso


@click.group()
def command() -> None:
    """Manage the machines that share one queue (docs/fleet.md)."""


def _opened() -> FleetDatabase:
    where = fleets.url()
    if not where:
        raise InputError(
            'this machine is not in a fleet; to join one, set url = "postgresql://…" under [fleet]'
            " in config.toml"
        )
    try:
        return FleetDatabase(where)
    except StateError as fault:
        raise InputError(str(fault)) from None


def _find(db: FleetDatabase, name: str) -> Machine:
    found = [m for m in machines.machines(db) if name in (m.id, m.name)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{m.name} ({m.id})" for m in machines.machines(db)) or "none"
    what = "several machines are" if found else "no machine is"
    raise InputError(f"{what} called {name!r}; known: {known}")


@command.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def status(as_json: bool) -> None:
    """List the machines: when each was last seen, whether it takes work, and its tasks."""
    with _opened() as db:
        found = machines.machines(db)
        carried = machines.carried(db)
    if as_json:
        listed = [
            {
                "machine": each.id, "name": each.name, "is_alive": each.is_alive,
                "is_drained": each.is_drained, "silent_s": round(each.silent_s, 1),
                "lease_s": each.lease_s, "protocol": each.protocol,
                "labels": list(each.offer.labels), "agents": list(each.offer.agents),
                "accounts": list(each.offer.accounts), "jobs": each.offer.jobs or None,
                "tasks": carried.get(each.id, []),
            }
            for each in found
        ]  # fmt: skip
        printing.say_json({"database": without_password(fleets.url()), "machines": listed})
        return
    if not found:
        printing.say("no machines yet; to add one, run segue worker on it", err=True)
        return
    for each in found:
        tasks = carried.get(each.id, [])
        printing.say(f"{clean(each.name)} ({each.id})  {_state(each)}")
        places = f"{len(tasks)} of {each.offer.jobs}" if each.offer.jobs else str(len(tasks))
        parts = [f"tasks {places}", f"agents {', '.join(each.offer.agents) or 'none'}"]
        if each.offer.labels:
            parts.append(f"labels {', '.join(each.offer.labels)}")
        printing.say(f"  {'; '.join(parts)}")
        for task in tasks:
            printing.say(f"  {task}")


def _state(machine: Machine) -> str:
    if not machine.is_alive:
        return f"last seen {duration(machine.silent_s)} ago; other machines take over its tasks"
    state = f"last seen {duration(machine.silent_s)} ago"
    if machine.is_drained:
        state += "; drained: takes no new tasks"
    if machine.protocol != PROTOCOL:
        state += f"; speaks protocol {machine.protocol}, this segue {PROTOCOL}"
    return state


@command.command("accounts")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def list_accounts(as_json: bool) -> None:
    """List the accounts of all machines, with their limits, caps and costs."""
    with _opened() as db:
        offered: dict[str, list[str]] = {}
        for machine in machines.machines(db):
            for name in machine.offer.accounts:
                offered.setdefault(name, []).append(machine.name)
        caps = {cap.account: cap for cap in accounts.caps(db)}
        spent = accounts.spend_by_account(db)
    limited = {
        each.id: until
        for each in fleets.open_accounts().all(clock.now())
        if (until := limited_until(each, clock.now())) is not None
    }
    rows = []
    for name in sorted({*offered, *caps, *limited, *spent}):
        cap, limit = caps.get(name), limited.get(name)
        rows.append(
            {
                "account": name, "machines": offered.get(name, []),
                "limited_until": iso(limit.resets_at) if limit is not None else None,
                "max_tasks": cap.max_tasks if cap is not None else None,
                "max_cost_usd": cap.max_cost_usd if cap is not None else None,
                "cost_usd": round(spent.get(name, 0.0), 4),
            }
        )  # fmt: skip
    if as_json:
        printing.say_json({"accounts": rows})
        return
    if not rows:
        printing.say("no accounts yet; each worker registers its own", err=True)
    for row in rows:
        printing.say(_account_line(row))


def _account_line(row: dict[str, Any]) -> str:
    parts = [f"on {counted(len(row['machines']), 'machine')}", f"${row['cost_usd']:.2f} in 24 h"]
    if row["max_cost_usd"] is not None:
        parts[-1] += f" of ${row['max_cost_usd']:g}"
    if row["max_tasks"] is not None:
        parts.append(f"at most {counted(row['max_tasks'], 'task')} at once")
    if row["limited_until"] is not None:
        parts.append(f"limited until {row['limited_until']}")
    return f"{row['account']}  {'; '.join(parts)}"


@command.command()
@click.argument("account")
@click.option("--tasks", type=Whole(1), metavar="N", help="At most N tasks at once.")
@click.option(
    "--usd",
    type=Decimal(0, min_open=True),
    metavar="X",
    help="At most X dollars in 24 hours.",
)
@click.option("--none", "is_none", is_flag=True, help="Remove the account's caps.")
def cap(account: str, tasks: int | None, usd: float | None, is_none: bool) -> None:
    """Limit what ACCOUNT does on all machines together: tasks at once, dollars in 24 hours.

    Once an account has spent its dollars, it starts no new leg until it is below the cap again;
    running legs continue. `segue fleet accounts` lists the accounts. Costs are at the API's list
    prices.
    """
    if is_none == (tasks is not None or usd is not None):
        raise InputError("pass --tasks N, --usd X or both, or --none to remove the caps")
    with _opened() as db:
        known = {name for m in machines.machines(db) for name in m.offer.accounts}
        known |= {each.account for each in accounts.caps(db)} | set(accounts.spend_by_account(db))
        if account not in known:
            names = ", ".join(sorted(known)) or "none yet"
            raise InputError(f"no account is called {account!r}; known: {names}")
        accounts.set_cap(db, AccountCap(account=account, max_tasks=tasks, max_cost_usd=usd))
    caps = [f"at most {counted(tasks, 'task')} at once"] if tasks is not None else []
    caps += [f"${usd:g} in 24 hours"] if usd is not None else []
    printing.say(f"{account}: {', '.join(caps) or 'no caps'}")


@command.command()
@click.argument("machine")
@click.option("--undo", is_flag=True, help="Let it take new tasks again.")
def drain(machine: str, undo: bool) -> None:
    """Stop MACHINE from taking new tasks. It finishes the tasks that it has started."""
    with _opened() as db:
        found = _find(db, machine)
        machines.drain(db, found.id, is_drained=not undo)
    effect = "takes new tasks again" if undo else "finishes its tasks and takes no new ones"
    printing.say(f"{clean(found.name)} {effect}")


@command.command()
@click.argument("machine")
def forget(machine: str) -> None:
    """Remove MACHINE, which is gone for good. Other machines take over its tasks at once."""
    with _opened() as db:
        found = _find(db, machine)
        if found.is_alive:
            raise InputError(
                f"{found.name} was last seen {found.silent_s:.0f} s ago: run `segue fleet drain"
                f" {found.id}`, end its worker, and try again {found.lease_s:.0f} s later"
            )
        machines.forget(db, found.id)
    printing.say(f"removed {clean(found.name)}")
