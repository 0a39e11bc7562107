"""Counts Claude Code's transcripts, which are most of what people have: gigabytes of them.

Only records with usage are decoded, and only the fields that are needed. They show where to search
for the rest: a compaction can only be between two replies of which the later one is smaller.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from segue.agents.contracts.counter import UNREADABLE, Tally, key_of, milliseconds
from segue.agents.shared.fields import JSON, amount, instant, items, number, obj, text
from segue.agents.shared.lines import read_line
from segue.core.sessions.ledger import ENDS_TURN, SIDE, Ledger
from segue.core.sessions.remarks import LimitSeen, Todo, TodoStatus

_USAGE = b'"input_tokens"'
_GIVEN = b'"message":{"role":"user"'
_HEAD_BYTES = 600
_BOUNDARY = b'"compact_boundary"'
_HEAD_LINES = 8
_HELD_CHUNKS = 4
_WRITERS = {"Edit", "MultiEdit", "Write", "NotebookEdit"}
_LISTS = {"TodoWrite", "TaskCreate", "TaskUpdate"}
_TELLING = _WRITERS | _LISTS


# Fields are in the order of the records, which makes decoding faster.
class _CacheWrites(Struct, gc=False):
    ephemeral_5m_input_tokens: int = 0
    ephemeral_1h_input_tokens: int = 0


class _Usage(Struct, gc=False):
    input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    output_tokens: int = 0
    cache_creation: _CacheWrites | None = None


class _Block(Struct, gc=False):
    id: str | None = ""
    name: str = ""
    input: Raw = Raw(b"")


class _Message(Struct, gc=False):
    model: str = ""
    id: str = ""
    content: list[_Block] | str | None = None
    stop_reason: str | None = None
    usage: _Usage | None = None


class _Record(Struct, rename="camel", gc=False):
    is_sidechain: bool | None = False
    message: _Message | None = None
    request_id: str = ""
    timestamp: str = ""


class _Data(Struct, gc=False):
    message: _Record | None = None


class _Line(_Record, rename="camel", gc=False):
    is_api_error_message: bool | None = False
    data: _Data | None = None  # a sub-agent's record in its parent's file


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
        self.since = 0  # in the fed data: the end of the last new reply on the main thread
        self.boundaries = int(tally.memory.get("boundaries", 0))  # since the last reply
        self.head_lines = int(tally.memory.get("head_lines", _HEAD_LINES))  # not looked at yet
        # not searched yet, because that is rarely needed
        self.passed: list[tuple[bytes, int, int]] = []
        self.usage: _Usage | None = None  # of the previous record, which most records repeat
        self.name = ("", "", False)  # of its reply: message, request, whether it is a sub-agent's
        self.key = 0
        self.listed = b""

    def feed(self, data: bytes, size: int) -> None:
        if self.head_lines:
            self.head(data, size)
        find = data.find
        next_ = self.since = 0
        while next_ < size:
            start = next_
            end = find(b"\n", start, size)
            if end < 0:
                end = size
            next_ = end + 1
            # Tool output is most of a file. Its first bytes identify it, so it is not searched.
            if 0 < find(_GIVEN, start, start + _HEAD_BYTES) < end or find(_USAGE, start, end) < 0:
                continue
            line = data[start:end]
            try:
                record = _line(line)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                record = self.odd(line)
            message = record.message
            if message is not None and message.usage is not None:
                usage = message.usage
                if (
                    usage != self.usage
                    or (message.id, record.request_id, record.is_sidechain is True) != self.name
                    or message.stop_reason == "end_turn"
                ):  # most records repeat the previous one: another block of the same reply
                    self.take(record, message, usage, data, start)
                content = message.content
                if content.__class__ is list and record.is_sidechain is not True:
                    for block in content:
                        if block.name in _TELLING:
                            self.tool(block, message.id)
            elif record.data is not None and record.data.message is not None:
                inner = record.data.message.message
                if inner is not None and inner.usage is not None:
                    name = (inner.id, record.data.message.request_id, True)
                    self.count(record.data.message, inner, inner.usage, name)
        self.passed.append((data, self.since, size))
        if len(self.passed) > _HELD_CHUNKS:
            self.count_passed()

    def take(
        self, record: _Line, message: _Message, usage: _Usage, data: bytes, start: int
    ) -> None:
        """Takes a reply's record. A compaction is possible before a main-thread reply that is
        smaller than the last; searching for it everywhere would double the cost."""
        side = record.is_sidechain is True
        used = self.count(record, message, usage, (message.id, record.request_id, side))
        if not used:
            if record.is_api_error_message:
                self.limits(data[start:].partition(b"\n")[0])
        elif not side:
            if used < self.used:
                self.passed.append((data, self.since, start))
                self.count_passed()
                self.tally.compactions += self.boundaries
            self.used, self.boundaries, self.since = used, 0, start
            if self.passed:
                self.passed = []

    def count_passed(self) -> None:
        """Counts the compactions in what was skipped since the last reply."""
        self.boundaries += sum(data.count(_BOUNDARY, *place) for data, *place in self.passed)
        self.passed = []

    def close(self) -> None:
        self.count_passed()
        self.tally.memory["used"] = self.used
        self.tally.memory["boundaries"] = self.boundaries
        self.tally.memory["head_lines"] = self.head_lines
        self.read_list()

    def head(self, data: bytes, size: int) -> None:
        """Finds when and where the session began; prompts come before the first reply."""
        start = 0
        while self.head_lines and start < size:
            end = data.find(b"\n", start, size)
            end = size if end < 0 else end
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

    def count(
        self, record: _Record, message: _Message, usage: _Usage, name: tuple[str, str, bool]
    ) -> int:
        """Counts a request, and returns the tokens it used; 0 if it is not a new one."""
        given, output = usage.input_tokens, usage.output_tokens
        read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        parts, for_an_hour = usage.cache_creation, 0
        if parts is not None:
            for_an_hour = parts.ephemeral_1h_input_tokens
            written = parts.ephemeral_5m_input_tokens + for_an_hour or written
            if not 0 <= for_an_hour <= written:
                for_an_hour = 0 if for_an_hour < 0 else written
        used = given + output + read + written
        if given < 0 or output < 0 or read < 0 or written < 0 or not used:
            return 0
        again = name == self.name and self.key  # the same reply, possibly continued
        if not again:
            self.name = name
            named = f"{name[0]}\0{name[1]}".encode()
            self.key = key_of(named) if message.id else 0
        self.usage = usage if message.id else None
        flags = (SIDE if name[2] else 0) | (ENDS_TURN if message.stop_reason == "end_turn" else 0)
        at_ms = 0 if again else milliseconds(record.timestamp)
        is_new = self.ledger.add(
            self.key, at_ms, message.model, flags, given, output, read, written, for_an_hour
        )
        return used if is_new else 0

    def odd(self, line: bytes) -> _Line:
        """A record with unexpected fields; what can be read of it counts."""
        value = read_line(line)
        if not isinstance(value, dict):
            self.tally.unread += 1
            return _Line()
        inner = value if obj(value, "message", "usage") else obj(value, "data", "message")
        message = obj(inner, "message")
        usage, parts = obj(message, "usage"), obj(message, "usage", "cache_creation")
        return _Line(
            timestamp=text(inner, "timestamp"),
            request_id=text(inner, "requestId"),
            is_sidechain=inner.get("isSidechain") is True or inner is not value,
            is_api_error_message=inner.get("isApiErrorMessage") is True,
            message=_Message(
                id=text(message, "id"),
                model=text(message, "model"),
                stop_reason=text(message, "stop_reason"),
                content=[
                    _Block(
                        text(block, "id"),
                        text(block, "name"),
                        Raw(msgspec.json.encode(obj(block, "input"))),
                    )
                    for block in items(message, "content")
                ],
                usage=_Usage(
                    input_tokens=amount(usage, "input_tokens"),
                    output_tokens=amount(usage, "output_tokens"),
                    cache_read_input_tokens=amount(usage, "cache_read_input_tokens"),
                    cache_creation_input_tokens=amount(usage, "cache_creation_input_tokens"),
                    cache_creation=_CacheWrites(
                        amount(parts, "ephemeral_5m_input_tokens"),
                        amount(parts, "ephemeral_1h_input_tokens"),
                    ),
                ),
            ),
        )

    def limits(self, line: bytes) -> None:
        """Takes an API error, which may say which plan window is used up."""
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

    def tool(self, block: _Block, message_id: str) -> None:
        """Takes a tool call, as far as a later session must know about it."""
        name = block.name
        if name in _WRITERS:
            try:
                place = _path(block.input)
            except UNREADABLE:
                return
            self.tally.changed(place.file_path or place.notebook_path)
        elif name == "TodoWrite":
            # each call has the whole list, so only the last counts
            self.listed = bytes(block.input)
        else:
            self.read_list()
            call = f"{message_id} {block.id}" if block.id else ""
            self.change_list(name, obj(read_line(bytes(block.input))), call)

    def read_list(self) -> None:
        """Decodes the list as last written, before it is changed or needed."""
        if self.listed:
            listed = [obj(item) for item in items(obj(read_line(self.listed)), "todos")]
            self.tally.todos = {
                str(place): Todo(text(item, "content"), _status(item.get("status")))
                for place, item in enumerate(listed, 1)
            }
            self.listed = b""

    def change_list(self, name: str, given: JSON, call: str) -> None:
        """Changes one item of the list; the client numbers items in the order of creation. A record
        may be repeated: the same call makes one item."""
        tally = self.tally
        if name == "TaskCreate":
            made = tally.memory.setdefault("made", [])
            if call in made:
                return
            if call:
                made.append(call)
            place = str(int(tally.memory.get("tasks", 0)) + 1)
            tally.memory["tasks"] = int(place)
            tally.todos[place] = Todo(text(given, "subject") or text(given, "description"))
        elif name == "TaskUpdate":
            old = tally.todos.get(text(given, "taskId"))
            if given.get("status") == "deleted":
                tally.todos.pop(text(given, "taskId"), None)
            elif old is not None:
                subject = text(given, "subject") or old.text
                state = _status(given.get("status")) if "status" in given else old.status
                tally.todos[text(given, "taskId")] = Todo(subject, state)


def _status(value: Any) -> TodoStatus:
    if value == "in_progress":
        return "in_progress"
    return "completed" if value in ("completed", "done") else "pending"


COUNTER = ClaudeCounter
