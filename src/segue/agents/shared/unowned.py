"""Records that no known agent wrote: how the last one says that its turn ended.

Protocols of agents (JSON-RPC, server-sent events, JSON lines) differ in their frames, but agree on
a few fields: a reason why the turn stopped, a request for a permission, an event whose name says
that something failed. Only these are read, and only from the last record, because what an unknown
record means for the ones before it is unknown too.
"""

import re
from collections.abc import Iterator

from segue.agents.contracts.profile import Record
from segue.agents.shared.fields import JSON, obj, text
from segue.core.stops.events import Ended, Event, Failure
from segue.core.stops.reasons import StopReason

_PLACES = ("", "result", "params", "data", "properties", "update")
_FIELDS = (
    "stopReason",
    "stop_reason",
    "terminal_reason",
    "terminationReason",
    "endReason",
    "reason",
)
_BROKEN = ("error", "failed")  # why it failed stands beside them
_DONE = ("end_turn", "completed", "success", "finished", "task_complete")
_REASONS = {
    **dict.fromkeys(
        (
            "cancelled",
            "canceled",
            "user_cancelled",
            "interrupted",
            "user_interrupt",
            "user_interrupted",
        ),
        StopReason.USER_EXIT,
    ),
    **dict.fromkeys(
        ("max_turn_requests", "max_turns", "max_steps", "max_iterations"), StopReason.MAX_TURNS
    ),
    **dict.fromkeys(("refusal", "content_filter"), StopReason.REFUSAL),
}
_ASKS = re.compile(r"(?i)permission[/._-]?(?:request|asked|required)|request[/._-]?permission")
_AWAITS = re.compile(
    r"(?:awaiting|waiting_for|needs|pending|requires)_(?:user_?)?(?:approval|input|confirmation"
    r"|permission|action|user|answer|reply)?$"
)
_WHOLE = r"(?:run|task|session|turn|agent|conversation|workflow)[./_]"
_ENDS = re.compile(rf"{_WHOLE}(?:completed|finished|succeeded|idle)$")
_DROPS = re.compile(rf"{_WHOLE}(?:cancell?ed|aborted|interrupted)$")
_SPENT = re.compile(r"(?i)(?:^|[./_])budget[./_]?(?:exceeded|exhausted|spent)$")
_FAILS = re.compile(r"(?i)^\w+[./](?:error|failed)$")


def events(records: list[Record]) -> list[Event]:
    """What the last record says about the end of its turn: one event, or none."""
    if not records:
        return []
    record = records[-1]
    data, where = record.data, record.where
    for inner in _parts(data):
        code = next((code for key in _FIELDS if (code := text(inner, key))), "")
        if code in _DONE:
            return [Ended(ok=True, code=code, where=where)]
        if code in _REASONS:
            return [Ended(reason=_REASONS[code], code=code, where=where)]
        if code in _BROKEN and (message := text(inner, "errorMessage")):
            return [Failure(message=message, code=f"turn.{code}", where=where)]
        if _AWAITS.match(code):
            return [Failure(reason=StopReason.NEEDS_USER, code=code, where=where)]
    kind = text(data, "method") or text(data, "type") or text(data, "event")
    if _ASKS.search(kind):
        return [Failure(reason=StopReason.NEEDS_USER, code=kind, where=where)]
    if _SPENT.search(kind):
        return [Ended(reason=StopReason.MAX_BUDGET, code=kind, message=_message(data), where=where)]
    succeeded = kind == "result" and _status(data).lower() in ("success", "succeeded", "completed")
    if succeeded or _ENDS.match(kind):
        return [Ended(ok=True, code=kind, where=where)]
    if _DROPS.match(kind):
        return [Ended(reason=StopReason.USER_EXIT, code=kind, where=where)]
    message = _message(data)
    if _FAILS.match(kind) and any(sign.isalpha() for sign in message):
        return [Failure(message=message, code=kind, where=where)]
    return []


def _parts(data: JSON) -> Iterator[JSON]:
    """The objects of a record that may say why its turn ended; of a conversation, its last."""
    for place in _PLACES:
        yield obj(data, place) if place else data
    messages = data.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else data.get("message")
    if isinstance(last, dict) and last.get("role", "assistant") == "assistant":
        yield last


def _status(data: JSON) -> str:
    return next((status for part in _parts(data) if (status := text(part, "status"))), "")


def _message(data: JSON) -> str:
    for place in _PLACES:
        inner = obj(data, place) if place else data
        for path in (("error", "data", "message"), ("error", "message"), ("error",), ("message",)):
            if message := text(inner, *path):
                return message
    return ""
