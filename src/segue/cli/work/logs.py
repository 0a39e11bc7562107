"""`segue logs RUN`: what happened in a run, even while it is running."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from segue.cli.support import interrupts
from segue.cli.support.numbers import Whole
from segue.cli.support.run.lookup import driver, find_or_newest, opened
from segue.core.runs.types import Run
from segue.errors import InputError
from segue.fleet.conversations import following, wait_for_last, whole
from segue.fleet.database import FleetDatabase
from segue.runs.folders import RunFolder
from segue.runs.legs.words import Utterance
from segue.runs.results import is_here
from segue.runs.store.port import Entry, Store
from segue.system import clock
from segue.views import printing
from segue.views.lines.runs import Teller
from segue.views.out import Out
from segue.views.verdicts import as_json as to_json

_LOOK_S = 0.25
_CHUNK = 1 << 16


@click.command()
@click.argument("run", required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the run ends.")
@click.option("--json", "as_json", is_flag=True, help="One event per line.")
@click.option("--leg", type=Whole(min=1), metavar="N", help="Only this leg.")
@click.option("--agent-output", is_flag=True, help="The agent's own output, unchanged.")
@click.option("--stderr", "errors", is_flag=True, help="The agent's stderr.")
@click.option(
    "--transcript", is_flag=True, help="The conversation, with each tool call on one line."
)
def command(
    run: str | None,
    follow: bool,
    as_json: bool,
    leg: int | None,
    agent_output: bool,
    errors: bool,
    transcript: bool,
) -> None:
    """Print what happened in RUN: dated lines, events (--json), the conversation, or the agent's
    own output. In a fleet, the agent's words appear between the dated lines.

    Without RUN, print the newest run of this folder.
    """
    is_output = agent_output or errors
    if transcript and is_output:
        raise InputError("--transcript and --agent-output cannot be combined")
    if as_json and is_output:
        raise InputError("--json and --agent-output cannot be combined")
    with opened() as store:
        found = find_or_newest(store, run)
        if leg is not None and leg > found.leg and (found.state.is_final or not follow):
            raise InputError(f"{found.id} has {found.leg} legs; there is no leg {leg}")
        if is_output and isinstance(store, FleetDatabase) and not is_here(found):
            raise InputError(_elsewhere(store, found))
        try:
            with interrupts.caught():
                if transcript:
                    _print_transcript(store, found, leg, as_json, follow)
                elif is_output:
                    _print_output(store, found, "stderr" if errors else "stdout", leg, follow)
                else:
                    _print_log(store, found, as_json, leg, follow)
        except KeyboardInterrupt:  # the usual way to end it
            sys.exit(130)


def _elsewhere(store: FleetDatabase, run: Run) -> str:
    from segue.fleet.output import machine_of

    return (
        f"{run.id} is on {machine_of(store, run.id)}, and what the agent printed stays there;"
        f" the conversation: segue logs {run.id} --transcript"
    )


def _print_transcript(store: Store, run: Run, leg: int | None, as_json: bool, follow: bool) -> None:
    from segue.views.report.transcripts import TranscriptLines, as_list

    legs: Iterable[tuple[int, list[Utterance]]]
    if follow:
        pieces = following(store, run, lambda: interrupts.wait(_LOOK_S))
        legs = ((piece.leg, piece.utterances) for piece in pieces)
    else:
        legs = whole(store, run).items()
    lines, shown = TranscriptLines(), 0
    for number, utterances in legs:
        if leg is not None and number != leg:
            continue
        if as_json:
            printing.say_json({"run": run.id, "leg": number, "said": as_list(utterances)})
            sys.stdout.flush()
            continue
        if number != shown:
            shown, lines = number, TranscriptLines()
            printing.say(printing.style(f"── leg {number} ──", bold=True))
        for line in lines.of(utterances):
            printing.say(line)
        sys.stdout.flush()


def _print_log(store: Store, run: Run, as_json: bool, leg: int | None, follow: bool) -> None:
    teller = Teller(clock.local_zone())
    words = None
    if isinstance(store, FleetDatabase) and not as_json:
        from segue.views.lines.words import DatedWords

        words = DatedWords(store, run.id, clock.local_zone(), leg)
    for entries in _portions(store, run, follow):
        if words is not None:
            words.look()
        for entry in entries:
            for line in words.until(entry.at) if words is not None else ():
                printing.say(line)
            lines = [to_json(entry.as_object())] if as_json else teller.lines(entry)
            if leg is None or _concerns(entry, leg):
                for line in lines:
                    printing.say(line)
        for line in words.until(None) if words is not None else ():
            printing.say(line)
        sys.stdout.flush()


def _portions(store: Store, run: Run, follow: bool) -> Iterator[list[Entry]]:
    """The existing entries; with `follow`, then new ones until the run has ended."""
    seq, version, is_told = 0, None, False
    while True:
        if (now := store.version()) != version:
            version = now
            found = store.run(run.id)  # before the log: if it has ended, the log is complete
            run = found or run
            if found is not None and run.state.is_final and follow:
                wait_for_last(store, run, lambda: interrupts.wait(_LOOK_S))
            entries = store.log(run.id, seq)
            seq = entries[-1].seq if entries else seq
            yield entries
            if not follow or found is None or run.state.is_final:
                return
            if not is_told and driver(store, run) is None:
                is_told = True
                hint = f"no segue drives {run.id} now; to resume: segue resume {run.id}"
                printing.complain(hint)
        interrupts.wait(_LOOK_S)


def _concerns(entry: Entry, leg: int) -> bool:
    values = [entry.data, *entry.decisions]
    return any(each.get("leg") == leg for each in values)


def _print_output(store: Store, run: Run, name: str, leg: int | None, follow: bool) -> None:
    """Prints the output of a leg, or of all legs in order. With `follow`, until the run has
    ended."""
    folder, out, number = RunFolder(run.id).path, Out(), leg or 1
    place = 0
    while not out.is_gone:
        now = store.run(run.id) or run
        file = folder / f"leg-{number:03}" / name
        # After the state: if the leg has ended by then, its output is complete.
        place = _copy(file, place, out)
        is_last = number >= now.leg or leg is not None
        if not is_last:
            number, place = number + 1, 0
        elif not follow or now.state.is_final or number < now.leg:
            return
        else:
            interrupts.wait(_LOOK_S)


def _copy(file: Path, place: int, out: Out) -> int:
    """Prints a file from an offset to its end; returns the new offset."""
    try:
        with file.open("rb") as source:
            source.seek(place)
            while chunk := source.read(_CHUNK):
                out.write(chunk)
                out.finish()
                place += len(chunk)
    except FileNotFoundError:
        pass  # the leg was not started, or its output was deleted
    except OSError as fault:
        raise InputError(f"{file}: cannot be read: {fault.strerror}") from None
    return place
