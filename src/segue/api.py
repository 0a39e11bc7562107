"""`from segue import classify`: the classifier for programs. It reads the input, returns a verdict
and never raises.

Everything inside is pure; this file reads the files and the clock.
"""

import logging
from collections.abc import Sequence
from datetime import tzinfo
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from segue.agents.ending import CHANNELS, Channel, Ending, Source, channel_of, judge
from segue.core.policy import Policy
from segue.core.stops.classify import Judgement
from segue.core.stops.reasons import StopReason
from segue.core.stops.text.reader import MessageReader
from segue.core.stops.text.wordings import Catalogue, Wording
from segue.core.stops.types import EndedBy, Evidence, Stop
from segue.errors import InputError, SegueError
from segue.system import clock
from segue.system.config import config, wordings
from segue.system.files import files

if TYPE_CHECKING:
    from segue.agents.counterfactuals import Counterfactual

log = logging.getLogger("segue")
log.addHandler(logging.NullHandler())  # a library does not print; the command line says faults

Given = str | bytes | Path


def classify(
    source: Given | None = None,
    *,
    agent: str | None = None,
    channel: Channel | None = None,
    stdout: Given | None = None,
    stderr: Given | None = None,
    transcript: Given | None = None,
    exit_code: int | None = None,
    ended_by: EndedBy = "unknown",
    now: float | None = None,
    tz: tzinfo | None = None,
    policy: Policy | None = None,
) -> Stop:
    """Explains why an agent stopped. Takes text, bytes or a `Path` to read; `source` is for a
    single input, and `channel` says what it is (for a path, its name decides; text counts as
    stdout). If reading fails, the problem is logged and the verdict is `unknown` with
    confidence 0 and the problem as evidence: the caller never crashes over a verdict."""
    try:
        given = [
            (source, channel or _channel_of(source)),
            (stdout, "stdout"),
            (stderr, "stderr"),
            (transcript, "transcript"),
        ]
        sources = [_source(text, c) for text, c in given if text is not None]
        ending = Ending(
            sources=tuple(sources),
            agent=agent,
            exit_code=whole_code(exit_code),
            ended_by=checked(ended_by),
        )
        return examine(ending, now=now, tz=tz, policy=policy).stop
    except Exception as fault:  # the promise of this function
        log.warning("segue could not read an ending: %s", fault)
        return unreadable(str(fault))


def examine(
    ending: Ending,
    *,
    now: float | None = None,
    tz: tzinfo | None = None,
    policy: Policy | None = None,
    catalogue: Catalogue | None = None,
) -> Judgement:
    """The verdict with all signs, for input that was already read."""
    policy = policy or config.policy()
    reader = MessageReader(
        catalogue=catalogue or load_catalogue(policy.exit_patterns),
        now=clock.now() if now is None else now,
        tz=tz or clock.local_zone(),
    )
    judgement = judge(ending, reader, policy)
    if judgement.stop.reason is StopReason.USER_EXIT and judgement.stop.resume == "none":
        log.info("Session ended by user, not auto-resuming")
    return judgement


def counterfactuals(
    ending: Ending,
    judgement: Judgement,
    *,
    now: float | None = None,
    tz: tzinfo | None = None,
    policy: Policy | None = None,
) -> list["Counterfactual"]:
    """What would have to be different for another verdict; each alternative is really judged."""
    from segue.agents import counterfactuals as others

    policy = policy or config.policy()
    reader = MessageReader(
        catalogue=load_catalogue(policy.exit_patterns),
        now=clock.now() if now is None else now,
        tz=tz or clock.local_zone(),
    )
    return others.counterfactuals(ending, judgement, reader, policy)


def load_catalogue(exit_patterns: Sequence[str] = ()) -> Catalogue:
    """The bundled wordings and the user's, compiled once as long as no file changes; invalid
    entries are logged, and the rest works."""
    files = config.wording_files()
    stamps = tuple((file, file.stat().st_mtime_ns, file.stat().st_size) for file in files)
    return _catalogue(tuple(exit_patterns), stamps)


@lru_cache(maxsize=4)
def _catalogue(
    exit_patterns: tuple[str, ...], stamps: tuple[tuple[Path, int, int], ...]
) -> Catalogue:
    extra = [
        Wording(
            id=f"policy.exit_patterns.{number}",
            reason="user_exit",
            pattern=pattern,
            where=("prompt", "line"),
            scope="exit_command",
            example=(),
        )
        for number, pattern in enumerate(exit_patterns, start=1)
    ]
    catalogue = wordings.load((file for file, *_ in stamps), extra=extra)
    for fault in catalogue.faults:
        log.warning("%s", fault)
    return catalogue


def checked(ended_by: str) -> EndedBy:
    """`ended_by` as one of its four words; raises InputError for another."""
    if ended_by not in get_args(EndedBy):
        raise InputError(f"ended_by {ended_by!r} is not one of {', '.join(get_args(EndedBy))}")
    return ended_by  # type: ignore[return-value]


def whole_code(code: object) -> int | None:
    """An exit code as a whole number, or None; raises InputError for anything else."""
    if code is None or (isinstance(code, int) and not isinstance(code, bool)):
        return code
    raise InputError(f"exit_code {code!r} is not a whole number")


def _channel_of(source: Given | None) -> Channel:
    return channel_of(source.name) if isinstance(source, Path) else "stdout"


def unreadable(fault: str) -> Stop:
    """The verdict on input that could not be read."""
    return Stop(
        reason=StopReason.UNKNOWN,
        confidence=0.0,
        evidence=(Evidence("input", fault, "input"),),
        remediation="Give segue a file that it can read.",
    )


def _source(given: Given, channel: Channel) -> Source:
    if channel not in CHANNELS:
        raise InputError(f"channel {channel!r} is not one of {', '.join(CHANNELS)}")
    if isinstance(given, Path):
        found = files.read(given)
    elif isinstance(given, bytes):
        found = files.decode(given, channel)
    elif isinstance(given, str):
        found = files.FileText(given)
    else:
        raise InputError(f"{channel}: expected text, bytes or a Path, got {type(given).__name__}")
    for note in found.notes:
        log.info("%s", note)
    return Source(text=found.text, channel=channel, name=channel, first_line=found.first_line)


__all__ = ["SegueError", "classify", "examine", "load_catalogue", "unreadable"]
