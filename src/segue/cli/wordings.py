"""`segue wordings`: what segue knows that agents print, and the user's own additions."""

import sys
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from segue import api
from segue.cli import inputs, render
from segue.core.wording import Catalogue, Reason, Where, Wording
from segue.ending import CHANNELS, Channel, Ending, Source
from segue.errors import InputError
from segue.io import clock, config, files
from segue.io import wordings as loader


@click.group("wordings")
def command() -> None:
    """List, test and check the wordings that segue knows.

    Your own stand in wordings.toml in the config folder, and go before ours.
    """


@command.command("list")
@click.option(
    "--reason",
    type=click.Choice(get_args(Reason)),
    metavar="REASON",
    help="Only those of one reason; none: what is not a stop.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def list_(reason: str | None, as_json: bool) -> None:
    """All wordings, yours first."""
    inputs.say()
    catalogue = api.load_catalogue(config.policy().exit_patterns)
    shown = [w for w in catalogue.wordings if reason in (None, w.reason)]
    if as_json:
        click.echo(render.as_json({"wordings": [msgspec.to_builtins(w) for w in shown]}))
        return
    for wording in shown:
        example = wording.example[0] if wording.example else wording.pattern
        click.echo(f"{wording.id:<34}{wording.reason:<18}{' '.join(example.split())[:80]}")
    click.echo(f"{len(shown)} wordings", err=True)


@command.command()
@click.argument("message", required=False)
@click.option("--agent", metavar="A", help="Who printed it.")
@click.option("--channel", type=click.Choice(CHANNELS), default="tui", help="Where it stood.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def test(message: str | None, agent: str | None, channel: Channel, as_json: bool) -> None:
    """Which wordings a MESSAGE matches ("-" or nothing: standard input), and the verdict."""
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
        click.echo(render.as_json(verdict))
    else:
        click.echo(render.explanation(judgement, policy, now=now, tz=zone))


@command.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
def check(file: Path | None) -> None:
    """Check a wordings FILE, or yours: every entry, every pattern, every example."""
    chosen = [file] if file is not None else config.wording_files()
    if not chosen:
        raise InputError(f"no wordings of yours in {config.folder()}; name a FILE to check")
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
    said = [(w.id, untrue(catalogue, name, w)) for name, w in entries if w in catalogue.wordings]
    lying = [name for name, untruths in said if untruths]
    problems += [line for _, untruths in said for line in untruths]
    for problem in problems:
        click.echo(f"segue: {problem}", err=True)
    bad = len(wrong) + len(catalogue.faults) + len(lying)
    click.echo(f"{len(catalogue.wordings) - len(lying)} good, {bad} with a fault")
    sys.exit(1 if problems else 0)


def untrue(catalogue: Catalogue, file: str, wording: Wording) -> list[str]:
    """The examples of a wording that it does not match, and the exceptions that it does."""
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
