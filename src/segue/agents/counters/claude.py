"""Counts Claude Code's transcripts, which are most of what people have: gigabytes of them.

Only records with a usage are looked at: the counter jumps from one to the next and decodes just
those lines, into just the fields it needs. What has no usage is found from there: a compaction
stands between two replies of which the later one is smaller.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from segue.agents.counters.base import UNREADABLE, Tally, key_of, milliseconds
from segue.agents.fields import JSON, amount, instant, items, number, obj, text
from segue.agents.records import read_line
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
        self.used = int(tally.memory.get("used", 0))
        self.since = 0  # in what is fed: the end of the last new reply of the main thread
        self.boundaries = int(tally.memory.get("boundaries", 0))  # since the last reply
        self.head_lines = int(tally.memory.get("head_lines", _HEAD_LINES))  # yet to be looked at
        self.last: tuple[Any, ...] = ()  # the reply before: most records repeat it
        self.key = 0  # its key
        self.mark = b""  # how it is written, from its first count to the request's id
        self.last_stamp = ""
        self.listed = b""

    def feed(self, data: bytes) -> None:
        if self.head_lines:
            self.head(data)
        find, rfind, size = data.find, data.rfind, len(data)
        end = self.since = 0
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
            except (msgspec.MsgspecError, ValueError, RecursionError):
                self.odd(line, data, start)
                continue
            message = record.message
            if message is not None and message.usage is not None:
                self.take(record, message, message.usage, data, start)
                request = find(b'"requestId":"', hit, end)
                stop = find(b'"', request + 13, end) if request > 0 else -1
                self.mark = data[hit:stop] if stop > 0 and message.id else b""
            elif record.data is not None and record.data.message is not None:
                inner = record.data.message.message
                if inner is not None and inner.usage is not None:
                    self.count(record.data.message, inner, inner.usage, True)
        self.boundaries += data.count(_BOUNDARY, self.since)

    def repeats(self, data: bytes, gap: int, hit: int) -> bool:
        """Whether a record with the same usage and request as the one before is dealt with by a
        look at its first bytes: another block of the same reply, not the turn's end."""
        start = data.rfind(b"\n", gap, hit) + 1 or gap
        name = data.find(b'"name":"', start, min(start + _HEAD_BYTES, hit))
        if name < 0 or data.find(b'"end_turn"', hit - 100, hit) >= 0:
            return False
        if data[name + 8 : name + 12] not in _TELLING:
            return True
        place = data.find(b'"input":{"file_path":"', name, name + 60)
        if place < 0 or data.find(b'"isSidechain":false', start, name) < 0:
            return False
        path = data[place + 22 : data.find(b'"', place + 22)]
        if b"\\" in path:
            return False
        self.tally.changed(path.decode("utf-8", "replace"))
        return True

    def take(
        self, record: _Line, message: _Message, usage: _Usage, data: bytes, start: int
    ) -> None:
        """A reply's record. Before a reply of the main thread that is smaller than the last there
        may be a compaction; looking for it everywhere would cost as much as all the rest."""
        side = record.is_sidechain is True
        if self.count(record, message, usage, side):
            if not side:
                used = sum(self.last[4:])
                if used < self.used:
                    passed = data.count(_BOUNDARY, self.since, start)
                    self.tally.compactions += self.boundaries + passed
                self.used, self.boundaries, self.since = used, 0, start
        elif record.is_api_error_message:
            self.limits(data[start:].partition(b"\n")[0])
        if not side and message.content.__class__ is list:
            self.tools(message.content)

    def close(self) -> None:
        self.tally.memory["used"] = self.used
        self.tally.memory["boundaries"] = self.boundaries
        self.tally.memory["head_lines"] = self.head_lines
        self.read_list()
        if self.last_stamp:
            self.tally.last_at = instant(self.last_stamp) or self.tally.last_at

    def head(self, data: bytes) -> None:
        """When it began, and where: prompts come before the first reply."""
        start = 0
        while self.head_lines and start < len(data):
            end = data.find(b"\n", start)
            end = len(data) if end < 0 else end
            try:
                record = _head(data[start:end])
            except UNREADABLE:
                record = _Head()
            self.tally.started_at = self.tally.started_at or instant(record.timestamp)
            self.tally.session_id = self.tally.session_id or record.session_id
            self.tally.cwd = self.tally.cwd or record.cwd
            known = self.tally.cwd and self.tally.started_at is not None
            self.head_lines = 0 if known else self.head_lines - 1
            start = end + 1

    def count(self, record: _Told, message: _Message, usage: _Usage, side: bool) -> bool:
        """Takes a request in; whether it is a new one."""
        given, said = usage.input_tokens, usage.output_tokens
        read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        parts = usage.cache_creation
        if parts is not None:
            written = parts.ephemeral_5m_input_tokens + parts.ephemeral_1h_input_tokens or written
        ends = message.stop_reason == "end_turn"
        same = (message.id, record.request_id, side, ends, given, said, read, written)
        if same == self.last and message.id:
            return False
        if given < 0 or said < 0 or read < 0 or written < 0 or not given + said + read + written:
            return False
        again = same[:2] == self.last[:2]  # the same reply, further on
        if not again:
            named = f"{message.id}\0{record.request_id}".encode("utf-8", "replace")
            self.key = key_of(named) if message.id else 0
        self.last = same
        new = self.ledger.add(
            self.key,
            0 if again and self.key else milliseconds(record.timestamp),
            message.model,
            (SIDE if side else 0) | (ENDS_TURN if ends else 0),
            given,
            said,
            read,
            written,
        )
        if new:
            self.last_stamp = record.timestamp
        return new

    def odd(self, line: bytes, data: bytes, start: int) -> None:
        """A record with fields that are not what they should be: what can be read of it counts."""
        value = read_line(line)
        if not isinstance(value, dict):
            self.tally.unread += 1
            return
        inner = value if obj(value, "message", "usage") else obj(value, "data", "message")
        message = obj(inner, "message")
        usage, parts = obj(message, "usage"), obj(message, "usage", "cache_creation")
        self.take(
            _Line(
                timestamp=text(inner, "timestamp"),
                request_id=text(inner, "requestId"),
                is_sidechain=inner.get("isSidechain") is True or inner is not value,
                is_api_error_message=inner.get("isApiErrorMessage") is True,
            ),
            _Message(
                id=text(message, "id"),
                model=text(message, "model"),
                stop_reason=text(message, "stop_reason"),
                content=[
                    _Block(text(block, "name"), Raw(msgspec.json.encode(obj(block, "input"))))
                    for block in items(message, "content")
                ],
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
            data,
            start,
        )

    def limits(self, line: bytes) -> None:
        """An error of the API may say which plan window is used up."""
        record = obj(read_line(line))
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
                except UNREADABLE:
                    continue
                self.tally.changed(place.file_path or place.notebook_path)
            elif name == "TodoWrite":
                self.listed = bytes(block.input)  # the whole list each time: only the last counts
            elif name in _LISTS:
                self.read_list()
                self.tool(name, obj(read_line(bytes(block.input))))

    def read_list(self) -> None:
        """The list as it was last written, before it is changed or needed."""
        if self.listed:
            self.tool("TodoWrite", obj(read_line(self.listed)))
            self.listed = b""

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
