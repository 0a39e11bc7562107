"""Counts Codex's rollout files.

The first bytes of each line show its type, so most lines are skipped after these bytes. A token
count has the last request and the thread's sum. It is repeated without a new request, so it counts
only if the sum has changed.
"""

import re
from struct import pack
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

from segue.agents.contracts.counter import Tally, key_of, milliseconds
from segue.agents.shared.fields import JSON, amount, instant, items, number, obj, text, whole
from segue.agents.shared.lines import read_line
from segue.core.sessions.ledger import Ledger
from segue.core.sessions.remarks import LimitSeen, Todo

_PAYLOAD = b'"payload":{"type":"'
_HEAD_BYTES = 140  # time, number and type come before the payload
# The first letters decide what matters. Commands and their output are most of a file and do not
# matter here.
_COUNT, _COMPLETE, _SETTINGS = b"token_count", b"task_comple", b"thread_sett"
_CALLS, _OUTPUT = (b"function_ca", b"custom_tool"), b'_output"'
_CONTEXT = b'"type":"turn_context"'
_SILENT = (b'"type":"token_usage_record"', b'"type":"world_state"')
_PATCHED = re.compile(
    r"^\*\*\* (?:Add|Update|Delete) File: (.+?)\s*$|^\*\*\* Move to: (.+?)\s*$", re.M
)
_MAX_TOKENS = 1 << 53
_SCOPES = {300: "five_hour", 10_080: "seven_day"}

_Count = Annotated[int, Meta(ge=0, lt=_MAX_TOKENS)]
"""Anything else is not a count of tokens and would not fit into the index; such records are read
slowly."""


class _Usage(Struct, gc=False):
    input_tokens: _Count = 0
    cached_input_tokens: _Count = 0
    cache_write_input_tokens: _Count = 0
    output_tokens: _Count = 0
    reasoning_output_tokens: _Count = 0
    total_tokens: _Count = 0


class _Info(Struct, gc=False):
    total_token_usage: _Usage | None = None
    last_token_usage: _Usage | None = None


class _Plan(Struct, gc=False):
    used_percent: float | None = None
    window_minutes: float | None = None
    resets_at: float | str | None = None


class _Limits(Struct, gc=False):
    primary: _Plan | None = None
    secondary: _Plan | None = None
    rate_limit_reached_type: str | None = None


class _Payload(Struct, gc=False):
    info: _Info | None = None
    rate_limits: _Limits | None = None


class _Line(Struct, kw_only=True, gc=False):
    timestamp: str = ""
    payload: _Payload


_line = msgspec.json.Decoder(_Line).decode


class CodexCounter:
    """See `Counter`."""

    def __init__(self, tally: Tally, ledger: Ledger) -> None:
        self.tally, self.ledger = tally, ledger
        self.model = str(tally.memory.get("model", ""))
        known = tally.memory.get("total")
        self.total = _Usage(*known) if known else None
        # The last value for each plan window, by place and length; read at the end.
        self.reported: dict[tuple[str, float | None], tuple[str, _Plan, bool]] = {}

    def feed(self, data: bytes, size: int) -> None:
        find = data.find
        start = 0
        while start < size:
            end = find(b"\n", start, size)
            if end < 0:
                end = size
            place = find(_PAYLOAD, start, start + _HEAD_BYTES)
            kind = data[place + 19 : place + 30] if 0 <= place < end else b""
            if kind == _COUNT:
                self.tokens(data[start:end])
            elif kind in _CALLS:
                if find(_OUTPUT, place, place + 50) < 0 and (
                    find(b'"update_plan"', place, end) > 0
                    or find(b"*** Begin Patch", place, end) > 0
                ):
                    self.take(data[start:end])
            elif kind == _COMPLETE and find(b'"event_msg"', start, place) > 0:
                self.ledger.end_turn()
            elif kind == _COMPLETE or (kind == _SETTINGS and not self.model):
                self.take(data[start:end])
            elif not kind:
                place = find(b'"type":"', start, min(start + _HEAD_BYTES, end))
                if place < 0 or not (
                    data.startswith(_SILENT, place) or self.is_known(data, place, end)
                ):
                    self.take(data[start:end])
            start = end + 1

    def is_known(self, data: bytes, place: int, end: int) -> bool:
        """Whether this is a turn's context without news: the same model, wherever it names one."""
        if not (self.model and self.tally.cwd and data.startswith(_CONTEXT, place)):
            return False
        named = data.count(b'"model":', place, end)
        return 0 < named == data.count(b'"model":"%b"' % self.model.encode(), place, end)

    def close(self) -> None:
        for (place, _), (stamp, plan, is_reached) in self.reported.items():
            self.limit(place, stamp, plan, is_reached)
        self.reported = {}
        self.tally.memory["model"] = self.model
        self.tally.memory["total"] = astuple(self.total) if self.total else None

    def tokens(self, line: bytes) -> None:
        """Takes a token count in its usual form, which is most of what is decoded."""
        try:
            record = _line(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self.take(line)
            return
        payload = record.payload
        if payload.info is not None:
            self.count(record.timestamp, payload.info)
        if payload.rate_limits is not None:
            self.hear(record.timestamp, payload.rate_limits)

    def take(self, line: bytes) -> None:
        """Takes any other record, or one in another form: other order of keys, blanks."""
        if not line.strip(b"\0\r\t "):
            return
        record = read_line(line)
        if not isinstance(record, dict):
            self.tally.unread += 1
            return
        stamp = text(record, "timestamp")
        self.tally.started_at = self.tally.started_at or instant(stamp)
        payload = obj(record, "payload")
        match text(record, "type"), text(payload, "type"):
            case "event_msg", "token_count":
                info = obj(payload, "info")
                last, total = obj(info, "last_token_usage"), obj(info, "total_token_usage")
                self.count(stamp, _Info(_usage(total), _usage(last)))
                self.hear(stamp, _limits(obj(payload, "rate_limits")))
            case "event_msg", "task_complete":
                self.ledger.end_turn()
            case "event_msg", "thread_settings_applied":
                self.model = self.model or text(payload, "thread_settings", "model")
            case "turn_context", _:
                self.model = text(payload, "model") or self.model
                self.tally.cwd = self.tally.cwd or text(payload, "cwd")
            case "session_meta", _:
                self.began(payload)
            case "compacted", _:
                self.tally.compactions += 1
            case "response_item", "function_call" | "custom_tool_call":
                self.tool(payload)

    def began(self, payload: JSON) -> None:
        """Takes the first record; a resumed session may repeat it."""
        spawned = text(payload, "source", "subagent", "thread_spawn", "parent_thread_id")
        self.tally.session_id = self.tally.session_id or text(payload, "id")
        self.tally.forked_from = (
            self.tally.forked_from or text(payload, "forked_from_id") or spawned
        )
        self.tally.cwd = self.tally.cwd or text(payload, "cwd")

    def count(self, stamp: str, info: _Info) -> None:
        """Counts the last request if the thread's sum has changed since the previous record."""
        last, total = info.last_token_usage, info.total_token_usage
        if total is not None:
            if total == self.total:
                return
            self.total = total
        if last is None:
            return
        numbers = astuple(last)
        given, cached, written, output, thought, _ = numbers
        if not (given or cached or written or output or thought):
            return  # made up by the client: a sum without parts
        cached = min(cached, given)
        written = min(written, given - cached)
        at_ms = milliseconds(stamp)
        model = self.model
        key = key_of(pack("<7q", at_ms, *numbers) + model.encode("utf-8", "replace"))
        fresh = given - cached - written
        self.ledger.add(key if at_ms else 0, at_ms, model, 0, fresh, output, cached, written)

    def hear(self, stamp: str, limits: _Limits) -> None:
        """Takes limits. After a reply without the headers they are null, so the last value that is
        not null counts, for each window."""
        is_reached = bool(limits.rate_limit_reached_type)
        for place, plan in (("primary", limits.primary), ("secondary", limits.secondary)):
            if plan is not None and plan.used_percent is not None:
                key = (place, plan.window_minutes)
                self.reported.pop(key, None)  # so that the last comes last
                self.reported[key] = (stamp, plan, is_reached)

    def limit(self, place: str, stamp: str, plan: _Plan, is_reached: bool) -> None:
        used = number(plan.used_percent)
        if used is not None:
            minutes = whole(plan.window_minutes) or 0
            scope = _SCOPES.get(minutes, f"{minutes}_minutes" if minutes else place)
            self.tally.limits[scope] = LimitSeen(
                used_percent=used,
                resets_at=instant(plan.resets_at),
                seen_at=instant(stamp),
                rejected=is_reached and used >= 100,
            )

    def tool(self, payload: JSON) -> None:
        arguments = text(payload, "arguments") or text(payload, "input")
        if text(payload, "name") == "update_plan":
            plan = [obj(item) for item in items(_read_arguments(arguments), "plan")]
            self.tally.todos = {
                str(place): Todo(
                    text(item, "step"),
                    "completed"
                    if item.get("status") == "completed"
                    else "in_progress"
                    if item.get("status") == "in_progress"
                    else "pending",
                )
                for place, item in enumerate(plan, 1)
            }
        elif "*** " in arguments:
            patch = arguments if text(payload, "input") else _words(_read_arguments(arguments))
            for found in _PATCHED.finditer(patch):
                self.tally.changed(found[1] or found[2])


def _read_arguments(arguments: str) -> object:
    """A tool's arguments, which are JSON in a string."""
    return read_line(arguments.encode("utf-8", "replace"))


def _words(given: object) -> str:
    """All strings of a command's arguments."""
    if isinstance(given, str):
        return given
    if isinstance(given, dict):
        return "\n".join(map(_words, given.values()))
    return "\n".join(map(_words, given)) if isinstance(given, list) else ""


def _usage(given: JSON) -> _Usage | None:
    if not given:
        return None
    numbers = (amount(given, name) for name in _Usage.__struct_fields__)
    return _Usage(*(n if n < _MAX_TOKENS else 0 for n in numbers))


def _limits(given: JSON) -> _Limits:
    return _Limits(
        _plan(obj(given, "primary")),
        _plan(obj(given, "secondary")),
        text(given, "rate_limit_reached_type"),
    )


def _plan(given: JSON) -> _Plan:
    resets = given.get("resets_at")
    return _Plan(
        number(given, "used_percent"),
        number(given, "window_minutes"),
        resets if isinstance(resets, str) else number(resets),
    )


COUNTER = CodexCounter
