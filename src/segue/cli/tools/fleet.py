"""`segue fleet`: the machines that share one queue."""

import click

from segue import fleet as fleets
from segue.errors import InputError, StateError
from segue.fleet import machines
from segue.fleet.database import FleetDatabase, shown
from segue.fleet.machines import Machine
from segue.views import printing
from segue.views.run_block import clean, countdown


@click.group()
def command() -> None:
    """Look after the machines that share one queue (docs/fleet.md)."""


def _opened() -> FleetDatabase:
    where = fleets.url()
    if not where:
        raise InputError(
            'this machine works alone; a fleet begins with url = "postgresql://…" under [fleet] in'
            " config.toml"
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
    """List the machines: who is heard, who takes work, and what they carry."""
    with _opened() as db:
        found = machines.machines(db)
        carried = machines.carried(db)
    if as_json:
        listed = [
            {
                "machine": each.id, "name": each.name, "is_alive": each.is_alive,
                "is_drained": each.is_drained, "silent_s": round(each.silent_s, 1),
                "lease_s": each.lease_s, "protocol": each.protocol,
                "tasks": carried.get(each.id, []),
            }
            for each in found
        ]  # fmt: skip
        printing.say_json({"database": shown(fleets.url()), "machines": listed})
        return
    if not found:
        printing.say("no machine yet; on each of them: segue worker", err=True)
        return
    for each in found:
        state = "drained" if each.is_drained else "at work"
        if not each.is_alive:
            state = f"silent for {countdown(each.silent_s)}: its work is taken over"
        tasks = ", ".join(carried.get(each.id, [])) or "no task"
        printing.say(f"{clean(each.name)} ({each.id})  {state}  {tasks}")


@command.command()
@click.argument("machine")
@click.option("--undo", is_flag=True, help="Let it take new work again.")
def drain(machine: str, undo: bool) -> None:
    """Make MACHINE take no new work; what it has begun goes on to its end."""
    with _opened() as db:
        found = _find(db, machine)
        machines.drain(db, found.id, is_drained=not undo)
    said = "takes new work again" if undo else "takes no new work; what it has begun goes on"
    printing.say(f"{clean(found.name)} {said}")


@command.command()
@click.argument("machine")
def forget(machine: str) -> None:
    """Delete MACHINE, which is gone for good: its tasks are taken over at once."""
    with _opened() as db:
        found = _find(db, machine)
        if found.is_alive:
            raise InputError(
                f"{found.name} was heard {found.silent_s:.0f} s ago: drain it, end its worker, and"
                f" wait until it is silent for {found.lease_s:.0f} s"
            )
        machines.forget(db, found.id)
    printing.say(f"{clean(found.name)} is forgotten")
