"""`segue notes`: what the daemon saw, decided and did."""

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from segue.cli.render import duration
from segue.errors import InputError
from segue.io import state
from segue.watch.log import LOG_NAME, Log, Note, open_log

_LOOK_S = 0.5
_QUIET = ("reading", "health", "hook", "turn", "order", "daemon", "paused")
"""Kinds that are only shown if they are asked for."""


@click.command()
@click.argument("session", required=False)
@click.option("--kind", "kinds", multiple=True, help="Only such: crossing, stop, wake, handoff, …")
@click.option("-n", "count", type=click.IntRange(min=1), default=50, help="How many at most.")
@click.option("-f", "--follow", is_flag=True, help="Stay, and print what is added.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a note.")
def command(
    session: str | None, kinds: tuple[str, ...], count: int, follow: bool, as_json: bool
) -> None:
    """Print the last notes of the daemon: zones, reminders, stops, decisions, handoffs.

    SESSION is an id or the beginning of one. Works without a daemon, too.
    """
    place = os.path.join(state.state_folder(), LOG_NAME)
    if not os.path.exists(place):
        raise InputError("nothing was noted yet; start the daemon: segue watch")
    log, said = open_log(place)
    if said:
        click.echo(f"segue: {said}", err=True)

    steps: dict[str, str] = {}

    def is_wanted(note: Note) -> bool:
        if session and not note.session_id.startswith(session):
            return False
        if note.kind == "handoff" and not as_json:
            before, step = steps.get(_text(note.data, "id")), _step(note)
            steps[_text(note.data, "id")] = step
            if step == before:
                return False
        return note.kind in kinds if kinds else as_json or note.kind not in _QUIET

    show = _as_json if as_json else _as_line
    try:
        last = 0
        for note in _last(log, is_wanted, count):
            last = note.seq
            _print(show, note)
        last = max(last, log.version() if not follow else last)
        while follow:
            for note in log.since(last):
                last = note.seq
                if is_wanted(note):
                    _print(show, note)
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        pass
    finally:
        log.close()


def _last(log: Log, is_wanted: Callable[[Note], bool], count: int) -> list[Note]:
    found: list[Note] = []
    seq = 0
    while notes := log.since(seq):
        seq = notes[-1].seq
        found = [*found, *filter(is_wanted, notes)][-count:]
    return found


def _print(show: Callable[[Note], str], note: Note) -> None:
    if line := show(note):
        click.echo(line)


def _as_json(note: Note) -> str:
    from segue.watch.api import note_dict

    return json.dumps(note_dict(note))


def _as_line(note: Note) -> str:
    told = "; ".join(_told(note))
    if not told:
        return ""
    at = click.style(time.strftime("%d %b %H:%M:%S", time.localtime(note.at)), dim=True)
    folder = note.project.rstrip("/").rpartition("/")[2]
    whose = f"{note.agent} in {folder} ({note.session_id[:8]})" if note.agent else "segue watch"
    return f"{at}  {whose}  {told}"


def _told(note: Note) -> Iterator[str]:
    data = note.data
    match note.kind:
        case "crossing":
            yield f"{_text(data, 'zone')} at {_percent(data.get('fraction'))}"
        case "reading":
            yield f"{data.get('input_tokens', 0):,} tokens and what is cached"
        case "health":
            details = data.get("details")
            usage = details.get("context_usage") if isinstance(details, dict) else None
            check = f"{_text(data, 'check_type')}: {_text(data, 'status')}"
            yield f"health {check} at {_percent(usage)}"
        case "reminder":
            yield f"reminded at {_percent(data.get('fraction'))}"
        case "stop":
            yield f"stopped: {_text(data, 'reason')} ({_text(data, 'state')})"
        case "wake":
            why = _text(data, "why")
            yield f"{_text(data, 'verdict')}{f': {why}' if why else ''}"
        case "handoff":
            cycle = data.get("cycle")
            yield f"handoff {_text(data, 'id')}: {_step(note)}"
            yield from filter(None, [_text(cycle, "why") if isinstance(cycle, dict) else ""])
        case "metrics":
            took = data.get("duration_s")
            after = f" after {duration(took)}" if isinstance(took, int | float) else ""
            yield f"handoff {_text(data, 'id')} is {_text(data, 'outcome')}{after}"
        case "checkpoint":
            yield f"kept before a compaction: {_text(data, 'file')}"
        case _:
            yield f"{note.kind} {json.dumps(data)[:120]}"


def _step(note: Note) -> str:
    cycle = note.data.get("cycle")
    return _text(cycle, "step") if isinstance(cycle, dict) else ""


def _text(data: dict[str, Any], key: str) -> str:
    """Without control characters: what stands in sessions must not move the cursor."""
    value = str(data.get(key) or "")
    return "".join(char if char.isprintable() else " " for char in value)[:300]


def _percent(value: Any) -> str:
    return f"{value:.0%}" if isinstance(value, int | float) else "?"
