"""`segue wordings`: the messages of agents that segue knows, and the user's own additions."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
from msgspec import Struct

from segue import api
from segue.agents.ending import CHANNELS, Channel, Ending, Source, channel_of
from segue.cli.support import inputs
from segue.core.policy import Policy
from segue.core.stops.reasons import StopReason
from segue.core.stops.text import drafts
from segue.core.stops.text.wordings import NOT_A_STOP, Catalogue, Reason, Where, Wording
from segue.errors import InputError
from segue.system import clock, doubts
from segue.system.config import config
from segue.system.config import wordings as loader
from segue.system.files import files
from segue.views import printing
from segue.views import verdicts as render

_REVIEWED_LINES = 12


class Tried(Struct, frozen=True, kw_only=True):
    """How a wording changes verdicts: on the user's text, and on `examples` other texts. `changed`:
    a line for each of those that get another verdict."""

    before: StopReason
    after: StopReason
    works: bool
    examples: int
    changed: tuple[str, ...]


@click.group("wordings")
def command() -> None:
    """List, test, check and draft the wordings that segue knows.

    Your own are in wordings.toml in the config folder, and take precedence over the bundled
    ones.
    """


@command.command("list")
@click.option(
    "--reason",
    type=click.Choice(get_args(Reason)),
    metavar="REASON",
    help="Only wordings of this reason; none: of messages that are no stop.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def list_(reason: str | None, as_json: bool) -> None:
    """List all wordings, yours first."""
    inputs.say()
    catalogue = api.load_catalogue(config.policy().exit_patterns)
    shown = [w for w in catalogue.wordings if reason in (None, w.reason)]
    if as_json:
        listed = {"wordings": [msgspec.to_builtins(w) for w in shown]}
        printing.say(render.as_json(printing.with_schema(listed)))
        return
    for wording in shown:
        example = wording.example[0] if wording.example else wording.pattern
        printing.say(f"{wording.id:<34}{wording.reason:<18}{' '.join(example.split())[:80]}")
    printing.say(f"{len(shown)} wordings", err=True)


@command.command()
@click.argument("message", required=False)
@click.option("--agent", metavar="A", help="The agent that printed it.")
@click.option(
    "--channel", type=click.Choice(CHANNELS), default="tui", help="Where the message appeared."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def test(message: str | None, agent: str | None, channel: Channel, as_json: bool) -> None:
    """Show which wordings match MESSAGE ("-" or nothing: standard input), and the verdict."""
    inputs.say()
    text = files.read("-").text if message in (None, "-") else str(message)
    source = Source(text=text, channel=channel, name="message")
    now, zone = clock.now(), clock.local_zone()
    policy = config.policy()
    judgement = api.examine(Ending(sources=(source,), agent=agent), now=now, tz=zone, policy=policy)
    if as_json:
        verdict: dict[str, Any] = render.as_dict(judgement.stop)
        verdict["matched"] = sorted({s.evidence.rule for s in judgement.signs})
        verdict["lost"] = {s.evidence.rule: s.lost for s in judgement.lost}
        printing.say(render.as_json(verdict))
    else:
        printing.say(render.explanation(judgement, policy, now=now, tz=zone))


@command.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def check(file: Path | None, as_json: bool) -> None:
    """Check every entry, pattern and example in a wordings FILE, or in yours."""
    chosen = [file] if file is not None else config.wording_files()
    if not chosen:
        raise InputError(f"you have no wordings in {config.folder()}; name a FILE to check")
    if file is not None and not file.is_file():
        raise InputError(f"{file}: no such file")
    entries: list[tuple[str, Wording]] = []
    wrong = []
    for one in chosen:
        found, faults = loader.read(one)
        entries += ((one.name, wording) for wording in found)
        wrong += faults
    catalogue = Catalogue(entries)
    problems = [str(fault) for fault in (*wrong, *catalogue.faults)]
    failures = [
        (w.id, untrue(catalogue, name, w)) for name, w in entries if w in catalogue.wordings
    ]
    lying = [name for name, untruths in failures if untruths]
    problems += [line for _, untruths in failures for line in untruths]
    bad = len(wrong) + len(catalogue.faults) + len(lying)
    good = len(catalogue.wordings) - len(lying)
    if as_json:
        printing.say_json({"good": good, "bad": bad, "problems": problems})
    else:
        for problem in problems:
            printing.complain(problem)
        printing.say(f"{good} valid, {bad} invalid")
    sys.exit(1 if problems else 0)


@command.command()
@click.argument("file")
@click.option(
    "--reason",
    required=True,
    type=click.Choice(get_args(Reason)),
    metavar="REASON",
    help="The correct reason; none: not a stop.",
)
@click.option(
    "--line",
    "given_line",
    metavar="TEXT",
    help="The line with the message; by default segue looks for it.",
)
@click.option("--agent", metavar="A", help="The agent that printed it.")
@click.option("--channel", type=click.Choice(CHANNELS), help="What FILE is; guessed by default.")
@click.option(
    "--write", is_flag=True, help="Add it to your wordings.toml if no other verdict changes."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def suggest(
    file: str,
    reason: Reason,
    given_line: str | None,
    agent: str | None,
    channel: Channel | None,
    write: bool,
    as_json: bool,
) -> None:
    """Draft a wording for a FILE whose verdict is unknown or wrong ("-": standard input).

    segue tries it on FILE and on all of its examples: exit code 0 means that FILE gets REASON
    and no other verdict changes.
    """
    text = files.read(file).text
    policy = config.policy()
    line = given_line or drafts.line_of(text, policy.tail_lines)
    if not line:
        raise InputError(f"{file}: no line in it looks like a message; name one with --line")
    wording = drafts.draft(line, reason)
    source = Source(text=text, channel=channel or channel_of(file), name=file)
    tried = _tried(wording, Ending(sources=(source,), agent=agent), policy)
    entry = drafts.as_toml(wording)
    good = tried.works and not tried.changed
    written = _append(entry) if write and good else None
    if as_json:
        printing.say_json(
            {
                "wording": msgspec.to_builtins(wording),
                "toml": entry,
                "before": tried.before.value,
                "after": tried.after.value,
                "examples": tried.examples,
                "changed": list(tried.changed),
                "written": None if written is None else str(written),
            }
        )
    else:
        printing.say(entry)
        _tell(tried, reason, written)
    sys.exit(0 if good else 1)


def _tell(tried: Tried, reason: str, written: Path | None) -> None:
    wanted = "unknown" if reason == NOT_A_STOP else reason
    if tried.works:
        printing.complain(f"with it, the verdict is {tried.after.value} (without: {tried.before})")
    else:
        printing.complain(
            f"with it, the verdict is still {tried.after.value}, not {wanted}; "
            "name the line with the message: --line TEXT"
        )
    for change in tried.changed:
        printing.complain(f"it would change another verdict: {change}")
    if not tried.changed:
        printing.complain(f"{tried.examples} other texts keep their verdicts")
    if written is not None:
        printing.complain(f"added to {written}")
    elif tried.works and not tried.changed:
        printing.complain(f"to use it, run it again with --write, or add it to {_own_file()}")


def _own_file() -> Path:
    return config.folder() / "wordings.toml"


def _append(entry: str) -> Path:
    """Appends an entry to the user's own wordings; returns their file. Raises InputError if it
    cannot be written."""
    place = _own_file()
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = place.read_text("utf-8") if place.exists() else ""
        with place.open("a", encoding="utf-8") as own:
            own.write(("" if not before or before.endswith("\n\n") else "\n") + entry)
    except (OSError, UnicodeDecodeError) as fault:
        raise InputError(f"{place}: {getattr(fault, 'strerror', None) or fault}") from None
    return place


@command.command()
@click.option("--since", default="30d", metavar="AGE", help="How far back, e.g. 7d or 12h.")
@click.option("--clear", is_flag=True, help="Delete all of them.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def review(since: str, clear: bool, as_json: bool) -> None:
    """Show stops of your runs that were unknown or uncertain.

    Their texts are stored only on this machine, without secrets, for two months.
    """
    if clear:
        printing.say(f"deleted {doubts.clear()} texts")
        return
    now, zone, age_s = clock.now(), clock.local_zone(), _age_s(since)
    shown = [d for d in doubts.load() if d.at >= now - age_s]
    if as_json:
        printing.say_json({"doubts": [doubts.as_dict(d) for d in shown]})
        return
    for doubt in shown:
        head = f"{render.time_of_day(doubt.at, now, zone)}  {doubt.agent}  {doubt.reason}"
        printing.say(
            printing.style(f"{head} · {doubt.confidence:.0%} sure  {doubt.where}", bold=True)
        )
        for line in doubt.text.splitlines()[-_REVIEWED_LINES:]:
            printing.say(f"  {line}")
    if not shown:
        printing.say(f"no uncertain stops in the last {render.duration(age_s)}")
        return
    printing.complain(
        f"{len(shown)} uncertain stops; save a text to a file and run: "
        "segue wordings suggest FILE --reason REASON"
    )


def _age_s(text: str) -> float:
    found = re.fullmatch(r"(\d{1,5})\s*([smhdw])", text.strip())
    if found is None:
        raise InputError(f"--since: {text!r} is not an age; write 30d, 12h or 90m")
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}[found[2]]


def _tried(wording: Wording, ending: Ending, policy: Policy) -> Tried:
    """Judges the text, every example of every wording and every bundled recording, without and with
    the wording."""
    plain = api.load_catalogue(policy.exit_patterns)
    extended = _with(wording)
    wanted = StopReason.UNKNOWN if wording.reason == NOT_A_STOP else StopReason(wording.reason)

    def reason(text: Ending, catalogue: Catalogue) -> StopReason:
        return api.examine(text, now=0.0, policy=policy, catalogue=catalogue).stop.reason

    changed, count = [], 0
    for name, text in _texts(plain):
        count += 1
        before, after = reason(text, plain), reason(text, extended)
        if before is not after:
            changed.append(f"{name}: {after.value}, now {before.value}")
    after = reason(ending, extended)
    return Tried(
        before=reason(ending, plain),
        after=after,
        works=after is wanted,
        examples=count,
        changed=tuple(changed),
    )


def _with(wording: Wording) -> Catalogue:
    return loader.load(config.wording_files(), extra=[wording])


def _texts(catalogue: Catalogue) -> Iterator[tuple[str, Ending]]:
    for entry in catalogue.wordings:
        agent = entry.agents[0] if entry.agents else None
        for example in (*entry.example, *entry.except_for):
            source = Source(text=example, channel="tui", name="example")
            yield entry.id, Ending(sources=(source,), agent=agent)
    for name in inputs.examples():
        yield name, inputs.example(name).ending


def untrue(catalogue: Catalogue, file: str, wording: Wording) -> list[str]:
    """A line for each example that a wording does not match, and for each exception that it
    does."""
    agent = wording.agents[0] if wording.agents else None
    missed = [e for e in wording.example if not _matches(catalogue, wording, e, agent)]
    caught = [e for e in wording.except_for if _matches(catalogue, wording, e, agent)]
    return [
        *(f"{file}: {wording.id}: does not match its example {e!r}" for e in missed),
        *(f"{file}: {wording.id}: matches {e!r}, which it must not" for e in caught),
    ]


def _matches(catalogue: Catalogue, wording: Wording, text: str, agent: str | None) -> bool:
    places: tuple[Where, ...] = wording.where
    return any(h.wording.id == wording.id for p in places for h in catalogue.find(text, p, agent))
