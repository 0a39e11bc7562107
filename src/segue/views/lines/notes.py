"""The daemon's notes in words."""

from collections.abc import Iterator
from typing import Any

import msgspec

from segue.core.terminals.visible import to_json
from segue.views.verdicts import duration
from segue.watch.log import Note

QUIET = ("reading", "health", "hook", "turn", "order", "daemon", "paused", "live")
"""Kinds of notes that are shown only on request."""
_VERDICTS = {
    "leave": "left alone",
    "ask": "needs your permission",
    "wait": "waiting",
    "stand_by": "standing by",
    "resume": "resumed",
    "relay": "relayed",
    "failed": "not resumed",
    "rest": "left to you",
}
"""What the daemon decided about a stopped session."""


def parts(note: Note) -> Iterator[str]:
    """The text of a note, in parts."""
    data = note.data
    match note.kind:
        case "crossing":
            yield f"{text(data, 'zone')} at {_percent(data.get('fraction'))}"
        case "reading":
            yield f"{data.get('input_tokens', 0):,} tokens and what is cached"
        case "health":
            details = data.get("details")
            usage = details.get("context_usage") if isinstance(details, dict) else None
            check = f"{text(data, 'check_type')}: {text(data, 'status')}"
            yield f"health {check} at {_percent(usage)}"
        case "reminder":
            yield f"reminded at {_percent(data.get('fraction'))}"
        case "stop":
            yield f"stopped: {_spaced(text(data, 'reason'))} ({_spaced(text(data, 'state'))})"
        case "wake":
            why = text(data, "why")
            verdict = text(data, "verdict")
            yield f"{_VERDICTS.get(verdict, verdict)}{f': {why}' if why else ''}"
        case "takeup":
            yield f"resumed, try {text(data, 'try')}: {text(data, 'why')}"
        case "handoff":
            cycle = data.get("cycle")
            yield f"handoff {text(data, 'id')}: {_spaced(step(note))}"
            yield from filter(None, [text(cycle, "why") if isinstance(cycle, dict) else ""])
        case "metrics":
            took = data.get("duration_s")
            after = f" after {duration(took)}" if isinstance(took, int | float) else ""
            yield f"handoff {text(data, 'id')} is {_spaced(text(data, 'outcome'))}{after}"
        case "arrival":
            yield f"after handoff {text(data, 'id')}: {_repeated(data)}"
        case "checkpoint":
            yield f"kept before a compaction: {text(data, 'file')}"
        case _:
            yield f"{note.kind} {to_json(data)[:120]}"


def _repeated(data: dict[str, Any]) -> str:
    from segue.core.handoffs.digest import Repeats
    from segue.views.run.story import repeated

    try:
        found = msgspec.convert(data, Repeats)
    except msgspec.ValidationError:
        return "unreadable"
    return repeated(found)


def step(note: Note) -> str:
    """The step in a note about a handoff; "" if it has none."""
    cycle = note.data.get("cycle")
    return text(cycle, "step") if isinstance(cycle, dict) else ""


def text(data: dict[str, Any], key: str) -> str:
    """A value of a note as text without control characters (session content must not move the
    cursor), of limited length; "" if there is none."""
    value = str(data.get(key) or "")
    return "".join(char if char.isprintable() else " " for char in value)[:300]


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _percent(value: Any) -> str:
    return f"{value:.0%}" if isinstance(value, int | float) else "?"
