"""Sessions that died with unfinished work, for programs and for people; and the runs that continue
them."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from segue.core.resumes.rescues import Way
from segue.core.runs.types import Origin
from segue.core.sessions.types import Session
from segue.core.stops.reasons import StopReason
from segue.views import printing, tables
from segue.views.verdicts import duration, iso

_INDENT = 4
_ID_CHARS = 8


class Dead(Struct, frozen=True, kw_only=True):
    """A session to rescue: why it stopped, and the ways to continue it, the best first."""

    session: Session
    reason: StopReason
    task: str = ""  # on one line, without secrets
    ways: tuple[Way, ...] = ()
    is_cut: bool = False  # whether its file ends in the middle of a record


class Work(Struct, frozen=True, kw_only=True):
    """What is left of a session's work in its folder."""

    files: int = 0  # how many files it wrote
    there: int = 0
    uncommitted: int | None = None  # changes in its repository; None: unknown
    is_gone: bool = False  # whether the folder itself is gone


def as_dict(dead: Dead) -> dict[str, Any]:
    """A session in its documented form (docs/rescue.md)."""
    session, reading = dead.session, dead.session.reading
    return {
        "agent": session.agent,
        "session_id": session.session_id,
        "path": session.path,
        "cwd": session.cwd or None,
        "task": dead.task,
        "reason": dead.reason.value,
        "stopped_at": iso(session.last_at),
        "retry_at": iso(session.stop.retry_at) if session.stop is not None else None,
        "context": None
        if reading is None
        else {
            "used": reading.used_tokens,
            "window": reading.window_tokens,
            "percent": reading.percent,
            "zone": session.zone.value if session.zone is not None else None,
        },
        "ways": list(dead.ways),
    }


def origin_as_dict(origin: Origin) -> dict[str, Any]:
    """The session that a run continues, in its documented form."""
    return {
        "agent": origin.agent,
        "session_id": origin.session_id,
        "path": origin.path,
        "reason": origin.stop.reason.value,
        "stopped_at": iso(origin.stopped_at),
        "same_session": origin.is_same,
        "changed": origin.changed or None,
    }


def rescued_from(origin: Origin) -> str:
    """The origin of a run, in a few words."""
    return f"rescued from {origin.agent} session {origin.session_id}"


def rescued(origin: Origin) -> str:
    """The line that announces a rescued run."""
    how = "resuming the same session"
    if not origin.is_same:
        how = "continuing in a new session, with a checkpoint"
    return f"{rescued_from(origin)} ({origin.stop.reason.description}): {how}"


def lines(shown: Sequence[tuple[Dead, Work | None]], now: float, width: int) -> list[str]:
    """A few lines for each session, numbered from 1."""
    found = []
    for number, (dead, work) in enumerate(shown, 1):
        found += _block(number, dead, work, now, width)
    return found


def _block(number: int, dead: Dead, work: Work | None, now: float, width: int) -> list[str]:
    session, blank = dead.session, " " * _INDENT
    project = printing.style(printing.one_line(tables.project(session)), bold=True)
    short = session.session_id[:_ID_CHARS] or "?"
    name = printing.one_line(f"{session.agent} {short}")
    why = printing.style(dead.reason.description, fg="red")
    when = tables.ago(session.last_at, now)
    head = f"{number:>2}. {project}  {printing.style(name, dim=True)}  {why}, {when}"
    how = goes_on(dead, now)
    if session.reading is not None:
        reading = session.reading
        window = tables.short(reading.window_tokens)
        how = f"{how}; context {reading.fraction:.0%} of {window}"
    if work is not None and work.is_gone:
        how = (
            f"its folder is gone; if it moved: segue rescue {printing.one_line(short)} --in FOLDER"
        )
    task = printing.one_line(dead.task) or "(its first prompt cannot be read)"
    lines = [head, f"{blank}{_cut(task, width - _INDENT)}", f"{blank}{how}"]
    if work is not None and (changes := in_tree(work)):
        lines.append(f"{blank}{printing.style(changes, dim=True)}")
    return lines


def goes_on(dead: Dead, now: float) -> str:
    """When and how a session can be resumed."""
    stop = dead.session.stop
    retry_at = stop.retry_at if stop is not None else None
    limited = retry_at is not None and retry_at > now and dead.reason is StopReason.RATE_LIMIT
    when = f"in {duration(retry_at - now)}" if limited and retry_at is not None else "now"
    way = dead.ways[0] if dead.ways else "other_agent"
    how = {
        "same_session": "in the same session",
        "new_session": "in a new session",
        "other_agent": "with another agent (--agent)",
    }[way]
    return f"can resume {when}, {how}"


def in_tree(work: Work) -> str:
    """What is left of a session's work, in words; "" if unknown."""
    parts = []
    if work.files:
        parts.append(f"{work.there} of {_counted(work.files, 'file')} it wrote still exist")
    if work.uncommitted is not None:
        changes = _counted(work.uncommitted, "uncommitted change")
        parts.append(changes if work.uncommitted else "nothing uncommitted")
    return "; ".join(parts)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(1, most - 1)] + "…"
