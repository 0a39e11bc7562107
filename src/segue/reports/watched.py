"""What the daemon did in a period, session by session."""

from collections.abc import Iterator
from typing import Any

from segue.reports.types import WatchedReport, WatchedWhat
from segue.watch.log import Log, Note

_KINDS = ("metrics", "wake", "takeup")
_WAKES: dict[str, WatchedWhat] = {
    "resume": "resumed",
    "relayed": "relayed",
    "leave": "left alone",
    "rest": "left alone",
    "ask": "needs you",
}


def watched_since(log: Log, since: float) -> list[WatchedReport]:
    """What the daemon did to sessions since then, or why it did nothing, the oldest first. The same
    thing is listed once."""
    found: list[WatchedReport] = []
    for note in notes_since(log, since, _KINDS):
        details = _of(note)
        if details is None:
            continue
        same = (details.session_id, details.what, details.why)
        if not any((each.session_id, each.what, each.why) == same for each in found):
            found.append(details)
    return found


def notes_since(log: Log, since: float, kinds: tuple[str, ...]) -> Iterator[Note]:
    """The notes of these kinds from that time on, the oldest first."""
    seq = 0
    while notes := log.since(seq, kinds):
        seq = notes[-1].seq
        yield from (note for note in notes if note.at >= since)


def _of(note: Note) -> WatchedReport | None:
    what: WatchedWhat | None
    match note.kind:
        case "metrics":
            is_done = note.data.get("outcome") == "done"
            what = "handed over" if is_done else "handoff failed"
        case "takeup":
            what = "resumed"
        case _:
            what = _WAKES.get(_text(note.data, "verdict"))
    if what is None:
        return None
    return WatchedReport(
        at=note.at,
        agent=note.agent,
        session_id=note.session_id,
        project=note.project,
        what=what,
        why=_text(note.data, "why"),
    )


def _text(data: dict[str, Any], key: str) -> str:
    return str(data.get(key) or "")[:300]
