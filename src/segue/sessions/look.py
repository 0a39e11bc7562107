"""Looks at one session: from the end of its file to what `status` shows about it."""

import os
from collections.abc import Callable

from segue.agents.contracts.profile import Profile, Record
from segue.agents.markdown import session as markdown
from segue.core.sessions.forecasts.growth import growth
from segue.core.sessions.look import TailLook, look_at
from segue.core.sessions.types import Look, StopSeen
from segue.core.stops.events import Failure
from segue.core.stops.fold import Turn
from segue.core.stops.reasons import StopReason
from segue.core.stops.text.readout import text_reading
from segue.core.stops.types import RateLimitInfo, Stop
from segue.sessions import find, tail
from segue.sessions.find import FileOnDisk

Judge = Callable[[Profile | None, Turn | str], Stop]
"""Why a turn ended; takes the turn of an agent's records, or the text of a Markdown session."""

_MARKDOWN_BYTES = 1 << 20


class NotASession(Exception):  # noqa: N818 - not an error: a Markdown file like any other
    """A file in a place for sessions that is not a session."""


def look(found: FileOnDisk, profile: Profile | None, judge: Judge) -> Look:
    """What the end of a session file shows. Raises OSError if it cannot be read."""
    handle = find.open_file(found.path)
    try:
        if profile is None:
            return _look_at_markdown(handle, found, judge)
        return _look_at_records(handle, found, profile, judge)
    finally:
        os.close(handle)


def _look_at_records(handle: int, found: FileOnDisk, profile: Profile, judge: Judge) -> Look:
    def view(records: list[Record]) -> TailLook:
        return look_at(profile.parse(records))

    if found.is_document:
        end, capped = view(tail.document(handle, found.size)), False
    else:
        end, capped = tail.read_back(handle, found.size, view, lambda view: view.is_settled)
    look, first = judged(end, profile, judge), Look()
    if not look.cwd or not look.session_id or not look.model:
        first = view(tail.head(handle)).look
    look.session_id = look.session_id or first.session_id
    look.cwd, look.model = look.cwd or first.cwd, look.model or first.model
    look.started_at, look.last_at = first.started_at, look.last_at or first.last_at
    look.told_window_tokens = look.told_window_tokens or first.told_window_tokens
    if capped and look.used_tokens is None:
        look.notes = (f"no reply in its last {tail.CAP_BYTES >> 20} MB; the rest was not read",)
    if not found.is_document and found.size:
        look.is_cut = os.pread(handle, 1, found.size - 1) not in (b"\n", b"")
    return look


def judged(tail_look: TailLook, profile: Profile, judge: Judge) -> Look:
    """What the end of a file shows, with the verdict on its last turn."""
    turn, look = tail_look.turn, tail_look.look
    look.growth = growth(tail_look.samples)
    look.stop = _redacted_stop(judge(profile, turn) if turn.seen else None)
    look.awaits_user = _awaits_user(turn)
    return look


def _awaits_user(turn: Turn) -> bool:
    if turn.ended is not None:
        return True
    failure: Failure | None = turn.failure
    return failure is not None and failure.reason is StopReason.NEEDS_USER


def _redacted_stop(stop: Stop | None) -> StopSeen | None:
    if stop is None:
        return None
    from segue.core.secrets.redact import redact  # most sessions have not failed

    why = redact(stop.evidence[0].quote)[0] if stop.evidence else ""
    details = stop.details
    source = details.retry_source if isinstance(details, RateLimitInfo) else None
    return StopSeen(stop.reason, stop.confidence, stop.retry_at, why, source)


def _look_at_markdown(handle: int, found: FileOnDisk, judge: Judge) -> Look:
    text = os.pread(handle, _MARKDOWN_BYTES, 0).decode("utf-8", "replace")
    flow = markdown.workflow(text)
    if flow is None or not flow.has_steps:  # notes and agents' own files have a status too
        raise NotASession(found.path)
    if found.size > _MARKDOWN_BYTES:  # the front matter, and the end
        front = text[: len(text) - len(markdown.body(text))]
        end = os.pread(handle, _MARKDOWN_BYTES, found.size - _MARKDOWN_BYTES)
        text = front + end.decode("utf-8", "replace")
    tokens = text_reading(text.split("\n"))
    return Look(
        session_id=found.session_id,
        cwd=os.path.dirname(found.path),
        last_at=found.changed_at,
        used_tokens=tokens.used if tokens else None,
        told_window_tokens=tokens.window if tokens else None,
        accepted_tokens=tokens.used if tokens else 0,
        stop=_redacted_stop(judge(None, text)),
        awaits_user=flow.is_complete,
    )
