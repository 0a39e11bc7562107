"""`segue logs RUN`: what happened in a run, also while it goes on."""

import sys
import time
from collections.abc import Iterator
from datetime import datetime, tzinfo
from pathlib import Path

import click

from segue.cli.kept import driver, find, opened
from segue.cli.news import news
from segue.cli.out import Out
from segue.cli.render import as_json as to_json
from segue.cli.telling import clean
from segue.core import machine
from segue.core.run import Created, Finish, Run, Step
from segue.errors import InputError
from segue.io import clock
from segue.runner.folders import RunFolder
from segue.runner.journal import decisions_of
from segue.store import projection
from segue.store.port import Entry, Store

_LOOK_S = 0.25
_CHUNK = 1 << 16


@click.command()
@click.argument("run")
@click.option("-f", "--follow", is_flag=True, help="Go on until the run is over.")
@click.option("--json", "as_json", is_flag=True, help="One event a line.")
@click.option("--leg", type=click.IntRange(min=1), metavar="N", help="This leg alone.")
@click.option("--agent-output", is_flag=True, help="What the agent printed, as it did.")
@click.option("--stderr", "errors", is_flag=True, help="What it printed to stderr.")
def command(
    run: str, follow: bool, as_json: bool, leg: int | None, agent_output: bool, errors: bool
) -> None:
    """Print what happened in RUN: dated lines, events (--json), or the agent's own output."""
    is_output = agent_output or errors
    if as_json and is_output:
        raise InputError("--json and --agent-output exclude each other")
    with opened() as store:
        found = find(store, run)
        if leg is not None and leg > found.leg and (found.state.is_final or not follow):
            raise InputError(f"{found.id} has {found.leg} legs, and no leg {leg}")
        try:
            if is_output:
                _print_output(store, found, "stderr" if errors else "stdout", leg, follow)
            else:
                _print_log(store, found, as_json, leg, follow)
        except KeyboardInterrupt:  # the usual way to leave it
            sys.exit(130)


def _print_log(store: Store, run: Run, as_json: bool, leg: int | None, follow: bool) -> None:
    teller = Teller(clock.local_zone())
    for entries in _portions(store, run.id, follow):
        for entry in entries:
            lines = [to_json(entry.as_object())] if as_json else teller.lines(entry)
            if leg is None or _concerns(entry, leg):
                for line in lines:
                    click.echo(line)
        sys.stdout.flush()


def _portions(store: Store, run_id: str, follow: bool) -> Iterator[list[Entry]]:
    """What is written, and then what is added, until the run is over."""
    seq, version, is_told = 0, None, False
    while True:
        if (now := store.version()) != version:
            version = now
            run = store.run(run_id)  # first: if it is over, what is read next is all of it
            if entries := store.log(run_id, seq):
                seq = entries[-1].seq
                yield entries
            if not follow or run is None or run.state.is_final:
                return
            if not is_told and driver(store, run) is None:
                is_told = True
                said = f"no segue drives {run_id} now; to go on: segue resume {run_id}"
                click.echo(f"segue: {said}", err=True)
        time.sleep(_LOOK_S)


def _concerns(entry: Entry, leg: int) -> bool:
    told = [entry.data, *entry.decisions]
    return any(each.get("leg") == leg for each in told)


class Teller:
    """Makes lines of a log, entry by entry from the first one on."""

    def __init__(self, tz: tzinfo) -> None:
        self.tz = tz
        self.run: Run | None = None

    def lines(self, entry: Entry) -> list[str]:
        """The dated lines of the next entry; most have none."""
        try:
            said = self._said(entry)
        except (ValueError, KeyError):  # a newer segue's
            self.run, said = None, [f"{clean(entry.kind)}: {clean(entry.state)}"]
        return [f"{self._dated(entry.at)}  {line}" for line in said]

    def _said(self, entry: Entry) -> list[str]:
        if entry.seq == 1:
            self.run = projection.first_run(entry)
        before = self.run
        if before is None:
            return [f"{clean(entry.kind)}: {clean(entry.state)}"]
        fact = Created() if entry.seq == 1 else projection.fact_of(entry)
        after = machine.step(before, fact, at=entry.at, draw=entry.draw or 0.0).run
        self.run = after
        # What was decided is what is written, also by another version.
        decisions = tuple(decisions_of(entry.decisions))
        said = news(before, fact, Step(after, decisions), now=entry.at, tz=self.tz)
        if entry.seq == 1:
            said = [f"{before.id}: {clean(before.agent)} in {clean(before.cwd)}", *said]
        for decision in decisions:
            if isinstance(decision, Finish):
                said.append(f"{decision.state.value}: {clean(decision.outcome.what)}")
        return said

    def _dated(self, at: float) -> str:
        try:
            return datetime.fromtimestamp(at, self.tz).strftime("%Y-%m-%d %H:%M:%S")
        except (ValueError, OverflowError, OSError):
            return "?"


def _print_output(store: Store, run: Run, name: str, leg: int | None, follow: bool) -> None:
    """Leg by leg; the newest one's as it grows."""
    folder, out, number = RunFolder(run.id).path, Out(), leg or 1
    place = 0
    while not out.is_gone:
        now = store.run(run.id) or run
        file = folder / f"leg-{number:03}" / name
        # Read after the state: what is there by then is all of a leg that is over.
        place = _copy(file, place, out)
        is_last = number >= now.leg or leg is not None
        if not is_last:
            number, place = number + 1, 0
        elif not follow or now.state.is_final or number < now.leg:
            return
        else:
            time.sleep(_LOOK_S)


def _copy(file: Path, place: int, out: Out) -> int:
    """All from there on; where it ends."""
    try:
        with file.open("rb") as source:
            source.seek(place)
            while chunk := source.read(_CHUNK):
                out.write(chunk)
                out.finish()
                place += len(chunk)
    except FileNotFoundError:
        pass  # it was not started, or its output was deleted
    except OSError as fault:
        raise InputError(f"{file}: cannot be read: {fault.strerror}") from None
    return place
