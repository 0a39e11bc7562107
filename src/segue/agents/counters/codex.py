"""Counts Codex's rollout files.

Each line says in its first bytes what it is, so most lines are passed over after a look at those.
A token count tells the last request and the thread's sum; it is repeated when nothing was asked,
so it counts when the sum has changed.
"""

import re
from struct import pack

import msgspec
from msgspec import Raw, Struct

from segue.agents.counters.base import Tally, key_of, milliseconds
from segue.agents.fields import JSON, amount, instant, items, number, obj, text, whole
from segue.agents.records import read_line
from segue.core.ledger import Ledger
from segue.core.session import LimitSeen, Todo

_PAYLOAD = b'"payload":{"type":"'
_HEAD_BYTES = 140  # time, number and type come before the payload
# The first letters tell what matters; commands and what they print are most of a file, and tell
# nothing here.
_COUNT, _CALLS = b"token", (b"funct", b"custo")
_SILENT = (b'"type":"token_usage_record"', b'"type":"world_state"')
_PATCHED = re.compile(
    r"^\*\*\* (?:Add|Update|Delete) File: (.+?)\s*$|^\*\*\* Move to: (.+?)\s*$", re.M
)
_MOST = 1 << 53
_SCOPES = {300: "five_hour", 10_080: "seven_day"}
_PLACES = (("primary", b'"primary":{'), ("secondary", b'"secondary":{'))
_NUMBERS = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
    "total_tokens",
)


class _Usage(Struct, gc=False):
    input_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0


class _Info(Struct, gc=False):
    last_token_usage: _Usage | None = None
    total_token_usage: _Usage | None = None


class _Payload(Struct, gc=False):
    info: _Info | None = None
    rate_limits: Raw = Raw(b"null")


class _Line(Struct, gc=False):
    payload: _Payload
    timestamp: str = ""


_line = msgspec.json.Decoder(_Line).decode


class CodexCounter:
    """See `Counter`."""

    def __init__(self, tally: Tally, ledger: Ledger) -> None:
        self.tally, self.ledger = tally, ledger
        self.model = str(tally.memory.get("model", ""))
        known = tally.memory.get("total")
        self.total = _Usage(*known) if known else None
        # The last word on each plan window, by place and length: read at the end.
        self.said_limits: dict[tuple[str, bytes], tuple[str, bytes]] = {}
        self.stamp = ""

    def feed(self, data: bytes) -> None:
        find = data.find
        start, size = 0, len(data)
        while start < size:
            end = find(b"\n", start)
            if end < 0:
                end = size
            place = find(_PAYLOAD, start, start + _HEAD_BYTES)
            kind = data[place + 19 : place + 24] if 0 <= place < end else b""
            if kind == _COUNT:
                self.tokens(data[start:end])
            elif kind in _CALLS:
                plan = find(b'"update_plan"', place, end)
                if plan > 0 or find(b"*** Begin Patch", place, end) > 0:
                    self.take(data[start:end])
            elif kind == b"task_":
                if find(b"complete", place, place + 40) > 0:
                    self.take(data[start:end])
            elif kind == b"threa" and not self.model:  # thread_settings_applied
                self.take(data[start:end])
            elif not kind:
                place = find(b'"type":"', start, min(start + _HEAD_BYTES, end))
                if place < 0 or not data.startswith(_SILENT, place):
                    self.take(data[start:end])
            start = end + 1

    def close(self) -> None:
        for (place, _), (stamp, limits) in self.said_limits.items():
            self.limit(place, stamp, obj(read_line(limits)))
        self.said_limits = {}
        self.tally.memory["model"] = self.model
        self.tally.memory["total"] = _numbers(self.total) if self.total else None
        self.tally.last_at = instant(self.stamp) or self.tally.last_at

    def tokens(self, line: bytes) -> None:
        """A token count in its usual form, which is most of what is decoded."""
        try:
            record = _line(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            self.take(line)
            return
        payload = record.payload
        if payload.info is not None:
            self.count(record.timestamp, payload.info)
        self.hear_limits(record.timestamp, bytes(payload.rate_limits))

    def take(self, line: bytes) -> None:
        """Any other record, or one in another form: other order of keys, blanks."""
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
                self.count(stamp, _Info(_usage(last), _usage(total)))
                self.hear_limits(stamp, msgspec.json.encode(obj(payload, "rate_limits")))
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
        """The first record; a resumed session may repeat it."""
        spawned = text(payload, "source", "subagent", "thread_spawn", "parent_thread_id")
        self.tally.session_id = self.tally.session_id or text(payload, "id")
        self.tally.parent_id = self.tally.parent_id or spawned
        self.tally.forked_from = (
            self.tally.forked_from or text(payload, "forked_from_id") or spawned
        )
        self.tally.cwd = self.tally.cwd or text(payload, "cwd")

    def count(self, stamp: str, info: _Info) -> None:
        """The last request, if the thread's sum has changed since the record before."""
        last, total, before = info.last_token_usage, info.total_token_usage, self.total
        if total is not None:
            self.total = _sane(total)
        if last is None or (total is not None and self.total == before):
            return
        numbers = _numbers(_sane(last))
        if not any(numbers[:5]):  # made up by the client: a sum without parts
            return
        given, cached, written, said, _, _ = numbers
        cached = min(cached, given)
        written = min(written, given - cached)
        at_ms = milliseconds(stamp)
        key = key_of(pack("<7q", at_ms, *numbers), self.model.encode("utf-8", "replace"))
        self.ledger.add(
            key if at_ms else 0,
            at_ms,
            self.model,
            0,
            given - cached - written,
            said,
            cached,
            written,
        )
        self.stamp = stamp or self.stamp

    def hear_limits(self, stamp: str, limits: bytes) -> None:
        """A reply without the headers overwrites them with nulls: the last that says something
        counts, for each window."""
        if b'"used_percent"' not in limits:
            return
        if b": " in limits or b" :" in limits:
            limits = msgspec.json.encode(read_line(limits))
        for place, opening in _PLACES:
            start = limits.find(opening)
            if start >= 0:
                plan = limits[start : limits.find(b"}", start)]
                if b'"used_percent":null' not in plan:
                    length = plan.find(b'"window_minutes":')
                    window = plan[length + 17 : length + 24] if length > 0 else b""
                    self.said_limits.pop((place, window), None)  # so that the last comes last
                    self.said_limits[place, window] = (stamp, limits)

    def limit(self, place: str, stamp: str, limits: JSON) -> None:
        plan = obj(limits, place)
        used = number(plan, "used_percent")
        if used is not None:
            minutes = whole(plan, "window_minutes") or 0
            scope = _SCOPES.get(minutes, f"{minutes}_minutes" if minutes else place)
            self.tally.limits[scope] = LimitSeen(
                used_percent=used,
                resets_at=instant(plan.get("resets_at")),
                seen_at=instant(stamp),
                rejected=bool(text(limits, "rate_limit_reached_type")) and used >= 100,
            )

    def tool(self, payload: JSON) -> None:
        said = text(payload, "arguments") or text(payload, "input")
        if text(payload, "name") == "update_plan":
            plan = [obj(item) for item in items(_given(said), "plan")]
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
        elif "*** " in said:
            patch = said if text(payload, "input") else _words(_given(said))
            for found in _PATCHED.finditer(patch):
                self.tally.changed(found[1] or found[2])


def _given(said: str) -> object:
    """A tool's arguments, which are JSON in a string."""
    return read_line(said.encode("utf-8", "replace"))


def _words(given: object) -> str:
    """All strings of a command's arguments."""
    if isinstance(given, str):
        return given
    if isinstance(given, dict):
        return "\n".join(map(_words, given.values()))
    return "\n".join(map(_words, given)) if isinstance(given, list) else ""


def _numbers(usage: _Usage) -> list[int]:
    return [
        usage.input_tokens,
        usage.cached_input_tokens,
        usage.cache_write_input_tokens,
        usage.output_tokens,
        usage.reasoning_output_tokens,
        usage.total_tokens,
    ]


def _sane(usage: _Usage) -> _Usage:
    """Without what is no count of tokens, and would not fit into the index."""
    numbers = _numbers(usage)
    if min(numbers) >= 0 and max(numbers) < _MOST:
        return usage
    return _Usage(*(n if 0 < n < _MOST else 0 for n in numbers))


def _usage(given: JSON) -> _Usage | None:
    return _Usage(*(amount(given, name) for name in _NUMBERS)) if given else None
