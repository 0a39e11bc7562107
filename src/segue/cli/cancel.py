"""`segue cancel RUN`: ends a run, whoever drives it. Nothing is signalled that segue did not start:
a living segue is asked, and an agent is ended by its keeper."""

import os
import sys
import time
from contextlib import suppress

import click

from segue.agents import drives
from segue.agents.drive import Drive, Launch, Order
from segue.cli.kept import driver, find, opened
from segue.core.run import CancelAsked, Run
from segue.errors import ConfigError, InputError, StateError
from segue.io import clock
from segue.io import settings as layered
from segue.io.leg import Leg
from segue.runner import begin
from segue.runner.begin import Driver
from segue.store.port import Held, Store

_LOOK_S = 0.25
_MOST_S = 60.0


@click.command()
@click.argument("run", metavar="RUN|SESSION")
def command(run: str) -> None:
    """End RUN and its agent. Its work so far stays; segue resume goes on with it.

    Of a SESSION that is run by hand: take back the daemon's handoff or resume. The session itself
    is left alone.
    """
    with opened() as store:
        try:
            found = find(store, run)
        except InputError:
            from segue.cli.asking import remote
            from segue.cli.pause import meant

            if run.startswith("run-") or not remote().is_there():
                raise
            name = meant(run, everything=False)
            click.echo(remote().post("/v1/cancel", {"session": name})["said"])
            return
        if found.state.is_final:
            click.echo(f"{found.id} is over already: {found.state.value}")
            return
        until = time.monotonic() + _MOST_S
        ended = None
        while ended is None and time.monotonic() < until:
            ended = _ask(store, found, until) if driver(store, found) else _end(store, found)
    if ended is None:
        click.echo(
            f"segue: {found.id} was asked to end, and has not after {_MOST_S:.0f} s; to see why:"
            f" segue logs -f {found.id}",
            err=True,
        )
        sys.exit(1)
    what = ended.outcome.what if ended.outcome else ""
    click.echo(f"{ended.id} is {ended.state.value}: {what}".removesuffix(": "))


def _ask(store: Store, run: Run, until: float) -> Run | None:
    """Asks the segue that drives it; None if it is gone before, or the time is over."""
    store.ask(run.id, "cancel", clock.now())
    said = f"{run.id}: asked the segue that drives it"
    click.echo(f"segue: {said} to end it", err=True)
    version = None
    while time.monotonic() < until:
        if (now := store.version()) != version:
            version = now
            found = store.run(run.id)
            if found is not None and found.state.is_final:
                return found
        if driver(store, run) is None:
            found = store.run(run.id)
            return found if found is not None and found.state.is_final else None
        time.sleep(_LOOK_S)
    return None


def _end(store: Store, run: Run) -> Run | None:
    """Ends it here: nobody drives it. None if somebody does after all."""
    drive, program = _driven(run)
    with Driver(store, env=os.environ, prompts={}) as here:
        try:
            loop, _ = here.go_on(run, drive, program, share_tree=True)
        except Held:
            return None
        if loop.run.state.is_final:
            return loop.run
        # Before anything that was decided and not done: nothing new is started to be ended.
        asks = store.asks(run.id)
        loop.journal.add(CancelAsked(), taken=asks[-1].number if asks else 0)
        if loop.run.is_live:
            leg = Leg(loop.crew.folder.leg(loop.run.leg))
            if leg.status().state in ("not_started", "starting"):
                # It may have just come up: then it is told to end as any other.
                with suppress(StateError):
                    leg.sweep_lost()
        return loop.go()


def _driven(run: Run) -> tuple[Drive, tuple[str, ...]]:
    """As far as it is known: to end a leg, its keeper is enough."""
    with suppress(ConfigError):  # to end something must not fail over a slip in a file
        begin.register(layered.load(run.cwd, os.environ))
    drive = drives.find(run.agent)
    if drive is None:
        drive = Drive(agent=run.agent, find=lambda env: None, install="", launch=_nothing)
    return drive, drive.find(os.environ) or (run.agent,)


def _nothing(order: Order) -> Launch:
    raise StateError(f"{order.command[0]} is no agent that segue knows")
