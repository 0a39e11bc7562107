"""Reads an agent's stream while it is being written: the same parser, fed piece by piece.

Parsers are generators over all records: they ask for the next record until there is none. To get
the events of the records so far, and no more, they are given a pause when these are used up: a
record that they do not know. Every parser answers such a record with one event, `Other`, and
forgets it. When that event comes back, everything that the records before it say has been
reported.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared import records
from segue.agents.shared.guard import guarded
from segue.core.stops.events import (
    Compaction,
    Ended,
    Event,
    Other,
    Prompt,
    Reply,
    Retry,
    Started,
    ToolCall,
    ToolResult,
    Usage,
)

_HEAD_BYTES = 200
_WHOLE = (b"}", b"}\r")
_PAUSE = "\0pause"  # the place of a pause; no real record has it


class Manner(Struct, frozen=True):
    """What segue must know about an agent's stream to read it live: data, separate from the
    parsers."""

    idle: tuple[bytes, ...] = ()
    """The beginnings of lines that contain only a piece of what a later record says as a whole.
    These lines are many and large; they are counted and not decoded."""
    markers: tuple[bytes, ...] = ()
    """Text near the beginning of such a line that does have information of its own."""
    pause: str = "pause"
    """The type of a record that its parser ignores in any state."""


_PIECES = b'{"type":"stream_event","event":{"type":"content_block_'
MANNERS = {
    "claude": Manner(idle=(_PIECES,)),
    "qwen": Manner(idle=(_PIECES,)),
    "codex": Manner(idle=(b'{"type":"item.updated"',), markers=(b'"todo_list"',)),
    # 0.73 repeats everything said so far in each of them.
    "pi": Manner(idle=(b'{"type":"message_update"', b'{"type":"tool_execution_update"')),
    # It joins the pieces of a reply until a record of another type arrives.
    "gemini": Manner(pause="message"),
}


class OpenCall(Struct, frozen=True):
    """A tool that is running, as far as the records show."""

    name: str
    since: float  # unix time of the record, otherwise when it was read


class Live:
    """The state of a stream that is still being written. However the input is split, the events are
    those of `profile.parse` over all records at once, except for events that are known not to
    matter. No input raises."""

    def __init__(self, profile: Profile, source: str = "stdout") -> None:
        self.session_id = ""
        self.model = ""
        self.reading: Usage | None = None
        """The newest size, with the window if it was ever reported. After a compaction, the new
        size; None if that is not reported yet."""
        self.open_calls: dict[str, OpenCall] = {}  # by the id of the call, the oldest first
        self.ended: Ended | None = None  # the end of the last turn, if nothing followed
        self.waiting: Retry | None = None  # it waits to retry by itself
        self.replies = 0
        self.calls = 0
        self.last_text = ""  # of the last reply
        self.compactions = 0  # finished ones
        self.unread = 0  # records of unknown kinds
        self.lines = 0  # all lines, of any kind
        self.has_text = False
        """Whether there was anything except records, one per line, and blanks. Then the text as a
        whole may say more than its lines."""
        self.records: list[dict[str, Any]] = []
        """What the last `feed` decoded, in order, without idle records."""
        self._source = source
        self._manner = MANNERS.get(profile.name, Manner())
        self._pause = Record({"type": self._manner.pause}, _PAUSE)
        self._window: int | None = None
        self._queue: deque[Record] = deque()
        self._is_over = False
        self._parse = guarded(profile.parse)
        self._events = self._parse(self._parser_input())

    def feed(self, lines: Iterable[bytes], at: float = 0.0) -> list[Event]:
        """The events of these lines, which were read at this unix time. A line that is not a
        record by itself is skipped."""
        decode, queue = msgspec.json.decode, self._queue
        idle, markers = self._manner.idle, self._manner.markers
        self.records = []
        for line in lines:
            self.lines += 1
            if line.startswith(idle) and not any(word in line[:_HEAD_BYTES] for word in markers):
                self.has_text = self.has_text or not line.endswith(_WHOLE)
                continue
            where = f"{self._source}:{self.lines}"
            if line.startswith(b"{"):
                try:
                    data = decode(line)
                except (msgspec.DecodeError, ValueError, RecursionError):
                    self.has_text = True
                    self._decode_oddly(line)
                else:
                    self.records.append(data)
                    queue.append(Record(data, where))
            elif line and not line.isspace():
                self.has_text = True
                if b"{" in line:
                    self._decode_oddly(line)
        return self._drain(at) if queue else []

    def close(self, at: float = 0.0) -> list[Event]:
        """The events that come only at the end of the input; call it once, and feed nothing
        after it."""
        if self._is_over:
            return []
        self._is_over = True
        return self._drain(at)

    def _decode_oddly(self, line: bytes) -> None:
        """A record after a time stamp, in a list, cut off, or with bytes that are not UTF-8."""
        found = records.split(line.decode("utf-8", "replace"), self._source, self.lines).records
        self.records += (record.data for record in found)
        self._queue += found

    def _parser_input(self) -> Iterator[Record]:
        """The parser's input: the queued records, a pause when there are none, and the end after
        `close`."""
        queue = self._queue
        while True:
            while queue:
                yield queue.popleft()
            if self._is_over:
                return
            yield self._pause
            if not queue and not self._is_over:
                return  # it did not answer, and must not get pauses forever

    def _drain(self, at: float) -> list[Event]:
        """The events of all queued records. Each round removes at least one record."""
        found: list[Event] = []
        while True:
            waiting = len(self._queue)
            for event in self._events:
                if event.where == _PAUSE:
                    if not self._queue:
                        return found
                elif not (isinstance(event, Other) and event.known):
                    found.append(event)
                    self._note(event, at)
            if self._is_over and not self._queue:
                return found
            self._events = self._parse(self._parser_input())
            if not self._queue:
                return found
            if len(self._queue) == waiting:
                self._queue.popleft()
                self.unread += 1

    def _note(self, event: Event, at: float) -> None:
        match event:
            case Other():
                self.unread += 1
            case Started() | Prompt():
                self._go_on()
                if isinstance(event, Started):
                    self.session_id = event.session_id or self.session_id
                    self.model = event.model or self.model
            case Reply():
                self._go_on()
                self.replies += 1
                self.last_text = event.text
            case ToolCall():
                self._go_on()
                self.calls += 1
                since = at if event.at is None else event.at
                self.open_calls[event.call_id] = OpenCall(event.name, since)
            case ToolResult():
                self.open_calls.pop(event.call_id, None)
            case Usage():
                self._window = event.window_tokens or self._window
                self.model = event.model or self.model
                self.reading = replace(event, window_tokens=self._window)
            case Compaction(phase="done"):
                self.compactions += 1
                self.reading = self._compacted(event)
            case Retry():
                self.waiting = event
            case Ended():
                self.ended, self.waiting = event, None
                self.open_calls.clear()

    def _go_on(self) -> None:
        self.ended = self.waiting = None

    def _compacted(self, event: Compaction) -> Usage | None:
        if event.used_tokens is None:
            return None
        return Usage(
            used_tokens=event.used_tokens,
            window_tokens=self._window,
            model=self.model or None,
            where=event.where,
            at=event.at,
        )
