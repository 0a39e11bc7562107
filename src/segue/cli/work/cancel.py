"""`segue cancel RUN`: ends a run, whichever process drives it. A live segue process is asked to end
it; an agent is ended by its keeper. A segue command that does not respond is ended by its pid and
start time, but a program that drives a run through the library is never signalled."""

import os
import signal
import sys
import time
from contextlib import suppress

import click

from segue.agents import drives
from segue.agents.contracts.drive import Drive, Launch, LegOrder
from segue.cli.support.run.lookup import driver, find, folder, opened
from segue.core.runs.types import CancelAsked, Run
from segue.errors import ConfigError, InputError, StateError
from segue.runs.folders import RunFolder
from segue.runs.legs.leg import Leg
from segue.runs.starting import installed_agents
from segue.runs.starting.driver import Driver, is_command
from segue.runs.store import leases
from segue.runs.store.port import Held, Holder, Store
from segue.system import clock
from segue.system.config import settings as layered
from segue.views import printing
from segue.views.run.block import clean, cut

_LOOK_S = 0.25
_MAX_S = 60.0
_REACT_S = 10.0  # a loop reacts within a second, or later while it reads the output of a large leg
_TERM_S = 15.0  # longer than a segue that reacts to SIGTERM takes to end
_END_S = 5.0


@click.command()
@click.argument("run", metavar="[RUN|SESSION]", required=False)
def command(run: str | None) -> None:
    """End RUN and its agent. Its work so far stays, and segue resume can continue it.

    Without RUN, end the unfinished run of this folder; if there are several, list them.

    For a SESSION that you run yourself, cancel the daemon's handoff or resume. The session
    itself is left alone.
    """
    with opened() as store:
        try:
            found = _the_one(store) if run is None else find(store, run)
        except InputError:
            if run is None:
                raise
            from segue.cli.daemon.pause import target
            from segue.cli.support.asking import remote

            if run.startswith("run-") or not remote().is_there():
                raise
            name = target(run, everything=False)
            printing.say(remote().post("/v1/cancel", {"session": name})["said"])
            return
        if found.state.is_final:
            printing.say(f"{found.id} has already ended: {found.state.value}")
            return
        ended = end_run(store, found.id)
    if ended is None:
        printing.say(
            f"segue: {found.id} was asked to end but has not after {_MAX_S:.0f} s; to see why:"
            f" segue logs -f {found.id}{_still_running(found)}",
            err=True,
        )
        sys.exit(1)
    what = ended.outcome.what if ended.outcome else ""
    printing.say(f"{ended.id} is {ended.state.value}: {what}".removesuffix(": "))


def end_run(store: Store, run_id: str) -> Run | None:
    """Ends a run, whichever process drives it, and returns it; None if it has not ended after
    `_MAX_S`, or does not exist. A run that has already ended stays as it is."""
    until = time.monotonic() + _MAX_S
    ended = None
    while ended is None and time.monotonic() < until:
        found = store.run(run_id)
        if found is None or found.state.is_final:
            return found
        ended = _ask(store, found, until) if driver(store, found) else _end(store, found)
    return ended


def _the_one(store: Store) -> Run:
    """The unfinished run of this folder, after a message that says which. Raises InputError if
    there is none, or several: then the user must choose."""
    cwd = folder()
    found = store.runs(cwd=cwd, unfinished=True)
    if not found:
        raise InputError(f"no run to cancel in {cwd}; `segue runs` lists all")
    if len(found) > 1:
        listed = [f"  segue cancel {run.id}  # {cut(clean(run.task), 60)}" for run in found[:20]]
        raise InputError(f"{len(found)} runs are unfinished in {cwd}; choose one:", *listed)
    printing.complain(f"cancelling {found[0].id}: {cut(clean(found[0].task), 60)}")
    return found[0]


def _ask(store: Store, run: Run, until: float) -> Run | None:
    """Asks the process that drives a run to end it, and waits; returns the ended run. None if that
    process is gone first, or the time is up."""
    number = _put(store, run)
    message = f"{run.id}: asked the segue that drives it"
    printing.complain(f"{message} to end it")
    asked_at = time.monotonic()
    pressure = _Pressure(run)
    version = None
    while time.monotonic() < until:
        if (now := store.version()) != version:
            version = now
            found = store.run(run.id)
            if found is not None and found.state.is_final:
                return found
        holder = driver(store, run)
        if holder is None:
            found = store.run(run.id)
            return found if found is not None and found.state.is_final else None
        waited_s = time.monotonic() - asked_at
        if waited_s > _REACT_S and any(ask.number == number for ask in store.asks(run.id)):
            pressure.rise(holder, waited_s - _REACT_S)
        time.sleep(_LOOK_S)
    return None


def _put(store: Store, run: Run) -> int:
    """Stores the request; returns its number. A process that was stopped (SIGSTOP) in the middle of
    a write blocks all others: it is continued, and then ends as requested."""
    try:
        return store.ask(run.id, "cancel", clock.now())
    except StateError:
        holder = driver(store, run)
        if holder is None or not (is_command(holder) and leases.is_here(holder)):
            raise
        leases.send(holder, signal.SIGCONT)
        return store.ask(run.id, "cancel", clock.now())


class _Pressure:
    """Ends a process that drives a run and does not respond: SIGTERM, then SIGKILL. Its work is on
    disk, and `_end` finishes it once the process is gone."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.sent = ""

    def rise(self, holder: Holder, waited_s: float) -> None:
        who = f"process {holder.pid}, which drives {self.run.id},"
        if not (is_command(holder) and leases.is_here(holder)):
            if not self.sent:
                self.sent = "end"
                self._end_leg()
                printing.complain(
                    f"{who} does not respond and is not a segue command: its agent was ended;"
                    " end the process yourself"
                )
        elif not self.sent:
            self.sent = "SIGTERM"
            printing.complain(f"{who} has not responded for {_REACT_S:.0f} s: ending it")
            for number in (signal.SIGTERM, signal.SIGCONT):  # wakes a stopped one
                leases.send(holder, number)
        elif self.sent == "SIGTERM" and waited_s > _TERM_S:
            self.sent = "SIGKILL"
            printing.complain(f"{who} ignores SIGTERM: killing it")
            leases.send(holder, signal.SIGKILL)

    def _end_leg(self) -> None:
        leg = Leg(RunFolder(self.run.id).leg(self.run.leg))
        if leg.status().state in ("starting", "running"):
            leg.command("end-gentle", "end", interrupt=True, patience_s=_END_S)


def _still_running(run: Run) -> str:
    status = Leg(RunFolder(run.id).leg(run.leg)).status()
    if status.state != "running":
        return ""
    return f"; still running: its agent (process {status.agent_pid})"


def _end(store: Store, run: Run) -> Run | None:
    """Ends a run in this process, because no other drives it; returns it. None if one drives it
    after all."""
    drive, program = _driven(run)
    with Driver(store, env=os.environ, prompts={}) as here:
        try:
            loop, _ = here.go_on(run, drive, program, share_tree=True)
        except Held:
            return None
        if loop.run.state.is_final:
            return loop.run
        # Before pending decisions are carried out, so that no leg starts only to be ended.
        asks = store.asks(run.id)
        loop.journal.add(CancelAsked(), taken=asks[-1].number if asks else 0)
        if loop.run.is_live:
            leg = Leg(loop.executor.folder.leg(loop.run.leg))
            if leg.status().state in ("not_started", "starting"):
                # If it has just started after all, it is ended like any other.
                with suppress(StateError):
                    leg.sweep_lost()
        return loop.go()


def _driven(run: Run) -> tuple[Drive, tuple[str, ...]]:
    """How to drive the run's agent, and its command. For an unknown agent, a drive that cannot
    start it: to end a leg, its keeper is enough."""
    with suppress(ConfigError):  # a mistake in a file must not prevent ending a run
        installed_agents.register(layered.load(run.cwd, os.environ))
    drive = drives.find(run.agent)
    if drive is None:
        drive = Drive(agent=run.agent, find=lambda env: None, install="", launch=_nothing)
    return drive, drive.find(os.environ) or (run.agent,)


def _nothing(order: LegOrder) -> Launch:
    raise StateError(f"{order.command[0]} is not an agent that segue knows")
