"""`segue classify`: why did this agent stop?"""

import sys
from typing import Any

import click
import msgspec

from segue import api
from segue.agents.ending import CHANNELS, Ending, Source
from segue.agents.shared.lines import decode
from segue.cli.support import inputs
from segue.errors import InputError
from segue.system import clock
from segue.system.config import config
from segue.views import printing
from segue.views import verdicts as render


@click.command("classify")
@inputs.ending_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--batch", is_flag=True, help="Read JSON lines on stdin, write a verdict for each.")
@click.option(
    "--example",
    is_flag=False,
    flag_value="all",
    metavar="[NAME]",
    help="Classify a bundled recording of a real run; without a name, all of them.",
)
def command(*, as_json: bool, batch: bool, example: str | None, **options: Any) -> None:
    """Explain why an agent stopped, from its output, session file or exit code.

    FILE is anything the agent wrote: its output, a log or its session file; "-" is standard
    input. Exit code 0 means that there is a verdict, 2 that nothing could be read.
    """
    asked = [name for name, value in options.items() if value not in (None, "unknown")]
    if asked and (batch or example is not None):
        name = "FILE" if asked[0] == "file" else f"--{asked[0].replace('_', '-')}"
        raise InputError(f"{name} cannot be combined with --batch or --example")
    if batch:
        sys.exit(_batch())
    if example is not None:
        _examples(example, as_json)
        return
    given = inputs.collect(**options)
    inputs.say(given)
    _print(given, as_json)


def _print(given: inputs.ClassifyInput, as_json: bool, name: str | None = None) -> None:
    policy = config.policy()
    judgement = api.examine(given.ending, now=given.now, tz=given.tz, policy=policy)
    if as_json:
        printing.say(render.as_json(render.as_dict(judgement.stop, name)))
    else:
        printing.say(render.for_people(judgement.stop, policy, now=given.now, tz=given.tz))


def _examples(name: str, as_json: bool) -> None:
    names = inputs.examples() if name == "all" else [name]
    for place, one in enumerate(names):
        given = inputs.example(one)
        if not as_json:
            printing.say(
                ("\n" if place else "") + printing.style(f"{one}: a recorded run", underline=True)
            )
        _print(given, as_json, one)


def _batch() -> int:
    """One verdict per line, in order; a line that cannot be read gets a verdict that says so."""
    policy, failed = config.policy(), 0
    inputs.say()
    if sys.stdin is None:
        raise InputError("standard input is closed; --batch reads JSON lines there")
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        request: dict[str, Any] = {}
        try:
            request = _request(line)
            tz = request.get("tz")
            zone = clock.local_zone() if tz is None else clock.parse_zone(tz)
            now = request.get("now")
            at = clock.now() if now is None else clock.parse_instant(now, zone)
            stop = api.examine(_ending(request), now=at, tz=zone, policy=policy).stop
        except Exception as fault:  # one bad line must not end the others
            failed += 1
            printing.complain(f"line {number}: {fault}")
            stop = api.unreadable(f"line {number}: {fault}")
        printing.say(render.as_json(render.as_dict(stop, request.get("id"))))
        sys.stdout.flush()  # a caller may wait for this verdict before it asks for the next
    return 1 if failed else 0


def _request(line: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = decode(line.decode("utf-8", "replace"))
    if not isinstance(value, dict):
        raise InputError('not a JSON object; write {"id": …, "text": …}')
    return value


def _ending(request: dict[str, Any]) -> Ending:
    text, channel = request.get("text", ""), request.get("channel") or "stdout"
    agent = request.get("agent")
    if not isinstance(text, str):
        raise InputError("text must be a string")
    if channel not in CHANNELS:
        raise InputError(f"channel {channel!r} is not one of {', '.join(CHANNELS)}")
    if agent is not None and not isinstance(agent, str):
        raise InputError(f"agent {agent!r} is not a name")
    return Ending(
        sources=(Source(text=text, channel=channel, name=channel),),
        agent=agent,
        exit_code=api.whole_code(request.get("exit_code")),
        ended_by=api.checked(request.get("ended_by") or "unknown"),
    )
