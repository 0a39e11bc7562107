"""The options that `classify` and `explain` share, and how they become an ending."""

from collections.abc import Callable
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, get_args

import click
from msgspec import Struct

from segue.agents.ending import CHANNELS, Channel, Ending, Source, channel_of
from segue.agents.shared.lines import decode
from segue.api import checked, load_catalogue
from segue.cli.support.numbers import Whole
from segue.core.stops.types import EndedBy
from segue.errors import InputError
from segue.system import clock
from segue.system.config import config
from segue.system.files import files
from segue.views import printing

EXAMPLES = Path(__file__).parents[2] / "examples"


class ClassifyInput(Struct, frozen=True, kw_only=True):
    """The user's input: the ending, and the time and time zone to classify it in. `notes`: anything
    odd about it."""

    ending: Ending
    now: float
    tz: tzinfo
    notes: tuple[str, ...] = ()


def ending_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that describe an ending."""
    options = (
        click.argument("file", required=False),
        click.option("--agent", metavar="A", help="Whose output it is: claude, codex, opencode …"),
        click.option("--stdout", metavar="F", help="The agent's stdout."),
        click.option("--stderr", metavar="F", help="The agent's stderr."),
        click.option("--transcript", metavar="F", help="The agent's session file."),
        click.option(
            "--exit-code",
            type=Whole(),
            metavar="N",
            help="A negative number means killed by that signal.",
        ),
        click.option(
            "--ended-by",
            type=click.Choice(get_args(EndedBy)),
            default="unknown",
            help="Who ended it, if known.",
        ),
        click.option(
            "--channel", type=click.Choice(CHANNELS), help="What FILE is; guessed by default."
        ),
        click.option("--now", metavar="T", help="Classify as of this time (unix seconds or ISO)."),
        click.option(
            "--tz", metavar="ZONE", help="Time zone for times that name none; default: yours."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def collect(
    *,
    file: str | None,
    agent: str | None,
    stdout: str | None,
    stderr: str | None,
    transcript: str | None,
    exit_code: int | None,
    ended_by: str,
    channel: Channel | None,
    now: str | None,
    tz: str | None,
) -> ClassifyInput:
    """Reads all input that the user named. Raises InputError with one line if there is none, or if
    it cannot be read."""
    zone = clock.parse_zone(tz) if tz else clock.local_zone()
    sources: list[Source] = []
    notes: list[str] = []
    named: list[tuple[str | None, Channel, str]] = [
        (stdout, "stdout", "stdout"),
        (stderr, "stderr", "stderr"),
        (transcript, "transcript", "transcript"),
    ]
    if file is not None:
        name = "stdin" if file == "-" else Path(file).name
        named.append((file, channel or channel_of(file), name))
    elif channel is not None:
        raise InputError("--channel needs a FILE")
    if sum(path == "-" for path, *_ in named) > 1:
        raise InputError("only one input can be standard input (-)")
    for path, kind, name in named:
        if path is None:
            continue
        found = files.read(path)
        notes += (*found.notes, *_cut_off(found.text, name))
        sources.append(
            Source(text=found.text, channel=kind, name=name, first_line=found.first_line)
        )
    if not sources and exit_code is None and ended_by == "unknown":
        raise InputError(
            "nothing to classify: name a FILE, or give --stdout, --stderr, --transcript or"
            " --exit-code"
        )
    return ClassifyInput(
        ending=Ending(
            sources=tuple(sources), agent=agent, exit_code=exit_code, ended_by=checked(ended_by)
        ),
        now=clock.parse_instant(now, zone) if now else clock.now(),
        tz=zone,
        notes=tuple(notes),
    )


def say(given: ClassifyInput | None = None) -> None:
    """Prints warnings before the verdict: about odd input, and about errors in the user's own
    wordings."""
    faults = load_catalogue(config.policy().exit_patterns).faults
    for line in (*(given.notes if given else ()), *faults):
        printing.complain(line)


def _cut_off(text: str, name: str) -> list[str]:
    last = text.rstrip().rpartition("\n")[2].strip()
    if last.startswith('{"') and decode(last) is None:
        return [f"{name}: the last line is cut off; the rest of it is missing"]
    return []


def examples() -> list[str]:
    """The names of the bundled recordings."""
    return sorted(place.name for place in EXAMPLES.iterdir() if place.is_dir())


def example(name: str) -> ClassifyInput:
    """A bundled recording of a real run, by its name. Raises InputError if there is none."""
    place = EXAMPLES / name
    if name not in examples():
        raise InputError(f"no example {name!r}; choose one of {', '.join(examples())}")
    sources = tuple(
        Source(text=files.read(place / kind).text, channel=kind, name=kind)
        for kind in ("stdout", "stderr")
        if (place / kind).is_file()
    )
    code = int((place / "exit_code").read_text())
    ending = Ending(sources=sources, agent=name.partition("-")[0], exit_code=code)
    now = clock.parse_instant((place / "now").read_text().strip(), UTC)
    return ClassifyInput(ending=ending, now=now, tz=UTC)
