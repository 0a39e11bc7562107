"""Counts Claude Code's transcripts, which are most of what people have: gigabytes of them.

Only records with a usage are looked at: the counter jumps from one to the next and decodes just
those lines, into just the fields it needs. What has no usage is found from there: a compaction
stands between two replies of which the later one is smaller.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from segue.agents.counters.base import Tally, key_of, milliseconds
from segue.agents.fields import JSON, amount, instant, items, number, obj, text
from segue.agents.records import decode
from segue.core.ledger import ENDS_TURN, SIDE, Ledger
from segue.core.session import LimitSeen, Todo, TodoStatus

_USAGE = b'"input_tokens"'  # the longer the word, the faster it is found
_BOUNDARY = b'"compact_boundary"'
_HEAD_LINES = 8
_HEAD_BYTES = 700  # a block's name comes early
_WRITERS = {"Edit", "MultiEdit", "Write", "NotebookEdit"}
_LISTS = {"TodoWrite", "TaskCreate", "TaskUpdate"}
_TELLING = {name[:4].encode() for name in _WRITERS | _LISTS}


class _Written(Struct, gc=False):
    ephemeral_5m_input_tokens: int = 0
    ephemeral_1h_input_tokens: int = 0


class _Usage(Struct, gc=False):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_creation: _Written | None = None


class _Block(Struct, gc=False):
    name: str = ""
    input: Raw = Raw(b"")


class _Message(Struct, gc=False):
    usage: _Usage | None = None
    id: str = ""
    model: str = ""
    stop_reason: str | None = None
    content: list[_Block] | str | None = None


class _Told(Struct, rename="camel", gc=False):
    message: _Message | None = None
    timestamp: str = ""
    request_id: str = ""
    is_sidechain: bool | None = False


class _Data(Struct, gc=False):
    message: _Told | None = None


class _Line(_Told, rename="camel", gc=False):
    session_id: str = ""
    cwd: str = ""
    is_api_error_message: bool | None = False
    data: _Data | None = None  # a sub-agent's record, told in its parent's file


class _Head(Struct, rename="camel", gc=False):
    timestamp: str = ""
    session_id: str = ""
    cwd: str = ""


class _Path(Struct, gc=False):
    file_path: str = ""
    notebook_path: str = ""


_line = msgspec.json.Decoder(_Line).decode
_head = msgspec.json.Decoder(_Head).decode
_path = msgspec.json.Decoder(_Path).decode


class ClaudeCounter:
    """See `Counter`."""

    def __init__(self, tally: Tally, ledger: Ledger) -> None:
        self.tally, self.ledger = tally, ledger
        self.used = ledger.last_main_tokens()
        self.boundaries = int(tally.memory.get("boundaries", 0))  # since the last reply
        self.fed = tally.started_at is not None
        self.last: tuple[Any, ...] = ()  # the reply before: most records repeat it
        self.mark = b""  # how it is written, from its first count to the request's id
        self.last_stamp = ""
        self.listed = b""

    def feed(self, data: bytes) -> None:
        if not self.fed:
            self.head(data)
        find, rfind, size = data.find, data.rfind, len(data)
        end = 0
        while (hit := find(_USAGE, end)) >= 0:
            gap = end
            end = find(b"\n", hit)
            if end < 0:
                end = size
            mark = self.mark
            if mark and data[hit : hit + len(mark)] == mark and self.repeats(data, gap, hit):
                continue
            start = rfind(b"\n", gap, hit) + 1 or gap
            line = data[start:end]
            try:
                record = _line(line)
            except (msgspec.MsgspecError, ValueError):
                self.odd(line)
                continue
            message = record.message
            if message is not None and message.usage is not None:
                side = record.is_sidechain is True
                if self.count(record, message, message.usage, side) and not side:
                    self.told(data, gap, start)
                elif record.is_api_error_message:
                    self.limits(line)
                request = find(b'"requestId":"', hit, end)
                stop = find(b'"', request + 13, end) if request > 0 else -1
                self.mark = data[hit:stop] if stop > 0 else b""
                if not side and message.content.__class__ is list:
                    self.tools(message.content)
            elif record.data is not None and record.data.message is not None:
                inner = record.data.message.message
                if inner is not None and inner.usage is not None:
                    self.count(record.data.message, inner, inner.usage, True)
        self.boundaries += data.count(_BOUNDARY, end)

    def repeats(self, data: bytes, gap: int, hit: int) -> bool:
        """Whether a record with the same usage and request as the one before says nothing more:
        another block of the same reply that is not the turn's end and no tool that matters."""
        start = data.rfind(b"\n", gap, hit) + 1 or gap
        name = data.find(b'"name":"', start, start + _HEAD_BYTES)
        if name < 0 or data[name + 8 : name + 12] in _TELLING:
            return False
        return data.find(b'"end_turn"', hit - 100, hit) < 0

    def close(self) -> None:
        self.tally.memory["boundaries"] = self.boundaries
        if self.listed:
            self.tool("TodoWrite", obj(decode(self.listed.decode("utf-8", "replace"))))
            self.listed = b""
        if self.last_stamp:
            self.tally.seen_at(instant(self.last_stamp))

    def head(self, data: bytes) -> None:
        """When it began, and where: prompts come before the first reply."""
        start = 0
        for _ in range(_HEAD_LINES):
            end = data.find(b"\n", start)
            try:
                record = _head(data[start : end if end >= 0 else len(data)])
            except (msgspec.MsgspecError, ValueError):
                record = _Head()
            self.tally.seen_at(instant(record.timestamp))
            self.tally.session_id = self.tally.session_id or record.session_id
            self.tally.cwd = self.tally.cwd or record.cwd
            if end < 0 or (self.tally.cwd and self.tally.started_at is not None):
                break
            start = end + 1
        self.fed = self.tally.started_at is not None

    def count(self, record: _Told, message: _Message, usage: _Usage, side: bool) -> bool:
        """Takes a request in; whether it is a new one."""
        given, said = usage.input_tokens, usage.output_tokens
        read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        parts = usage.cache_creation
        if parts is not None:
            written = parts.ephemeral_5m_input_tokens + parts.ephemeral_1h_input_tokens or written
        ends = message.stop_reason == "end_turn"
        same = (message.id, record.request_id, side, ends, given, said, read, written)
        if same == self.last:
            return False
        if given < 0 or said < 0 or read < 0 or written < 0 or not given + said + read + written:
            return False
        self.last, self.last_stamp = same, record.timestamp
        return self.ledger.add(
            key_of(f"{message.id}\0{record.request_id}".encode()) if message.id else 0,
            milliseconds(record.timestamp),
            message.model,
            (SIDE if side else 0) | (ENDS_TURN if ends else 0),
            given,
            said,
            read,
            written,
        )

    def told(self, data: bytes, gap: int, start: int) -> None:
        """A reply of the main thread. Before one that is smaller than the last there may be a
        compaction; looking for it everywhere would cost as much as all the rest."""
        used = sum(self.last[4:])
        if used < self.used:
            self.tally.compactions += self.boundaries + data.count(_BOUNDARY, gap, start)
        self.used, self.boundaries = used, 0

    def odd(self, line: bytes) -> None:
        """A record with fields that are not what they should be: what can be read of it counts."""
        value = decode(line.decode("utf-8", "replace"))
        if not isinstance(value, dict):
            self.tally.unread += 1
            return
        inner = value if obj(value, "message", "usage") else obj(value, "data", "message")
        message = obj(inner, "message")
        usage, parts = obj(message, "usage"), obj(message, "usage", "cache_creation")
        side = inner.get("isSidechain") is True or inner is not value
        self.count(
            _Told(timestamp=text(inner, "timestamp"), request_id=text(inner, "requestId")),
            _Message(
                id=text(message, "id"),
                model=text(message, "model"),
                stop_reason=text(message, "stop_reason"),
            ),
            _Usage(
                input_tokens=amount(usage, "input_tokens"),
                output_tokens=amount(usage, "output_tokens"),
                cache_read_input_tokens=amount(usage, "cache_read_input_tokens"),
                cache_creation_input_tokens=amount(usage, "cache_creation_input_tokens"),
                cache_creation=_Written(
                    amount(parts, "ephemeral_5m_input_tokens"),
                    amount(parts, "ephemeral_1h_input_tokens"),
                ),
            ),
            side,
        )
        for block in items(message, "content") if not side else ():
            self.tool(text(block, "name"), obj(block, "input"))

    def limits(self, line: bytes) -> None:
        """An error of the API may say which plan window is used up."""
        record = obj(decode(line.decode("utf-8", "replace")))
        limits = obj(record, "quotaLimits") or obj(record, "apiErrorParams", "rate_limit_info")
        if limits:
            used = number(limits, "utilization")
            self.tally.limits[text(limits, "rateLimitType") or "plan"] = LimitSeen(
                used_percent=None if used is None else used * 100,
                resets_at=instant(limits.get("resetsAt")),
                seen_at=instant(record.get("timestamp")),
                rejected=text(limits, "status") in ("", "rejected"),
            )

    def tools(self, blocks: list[_Block]) -> None:
        for block in blocks:
            name = block.name
            if name in _WRITERS:
                try:
                    place = _path(block.input)
                except msgspec.MsgspecError:
                    continue
                self.tally.changed(place.file_path or place.notebook_path)
            elif name == "TodoWrite":
                self.listed = bytes(block.input)  # the whole list each time: only the last counts
            elif name in _LISTS:
                self.tool(name, obj(decode(bytes(block.input).decode("utf-8", "replace"))))

    def tool(self, name: str, given: JSON) -> None:
        """What a tool was asked to do, as far as a later session must know it."""
        tally = self.tally
        if name in _WRITERS:
            tally.changed(text(given, "file_path") or text(given, "notebook_path"))
        elif name == "TodoWrite":
            listed = [obj(item) for item in items(given, "todos")]
            tally.todos = {
                str(place): Todo(text(item, "content"), _status(item.get("status")))
                for place, item in enumerate(listed, 1)
            }
        elif name == "TaskCreate":  # numbered by the client in the order of their creation
            place = str(int(tally.memory.get("tasks", 0)) + 1)
            tally.memory["tasks"] = int(place)
            tally.todos[place] = Todo(text(given, "subject") or text(given, "description"))
        elif name == "TaskUpdate":
            old = tally.todos.get(text(given, "taskId"))
            if given.get("status") == "deleted":
                tally.todos.pop(text(given, "taskId"), None)
            elif old is not None:
                said = text(given, "subject") or old.text
                state = _status(given.get("status")) if "status" in given else old.status
                tally.todos[text(given, "taskId")] = Todo(said, state)


def _status(value: Any) -> TodoStatus:
    if value == "in_progress":
        return "in_progress"
    return "completed" if value in ("completed", "done") else "pending"
