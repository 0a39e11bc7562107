"""Counts a session file from its first byte to its last, and can continue where it left off.

The current size of a context is at the end of a file, but the spend, the changed files and the
todos are spread all over it. A counter reads whole lines and fills a `Tally` and a `Ledger`. Both
are stored in the index, so that the next time only new bytes are read.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from segue.agents.shared.fields import JSON
from segue.agents.shared.lines import read_line
from segue.core.sessions.ledger import ENDS_TURN, SIDE, Ledger
from segue.core.sessions.remarks import LimitSeen, Todo
from segue.core.sessions.spend import Spend

try:
    from _blake2 import blake2b  # hashlib loads OpenSSL with it, which takes longer than a look
except ImportError:  # not CPython
    from hashlib import blake2b

_FILES_KEPT = 2_000
UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding a line may raise."""


class Tally(Struct, kw_only=True):
    """What a whole file says, apart from its requests (those are in the ledger)."""

    session_id: str = ""
    forked_from: str = ""  # the session whose history it may contain as a copy
    cwd: str = ""
    started_at: float | None = None
    compactions: int = 0
    todos: dict[str, Todo] = field(default_factory=dict)  # by the agent's own number
    files: dict[str, int] = field(default_factory=dict)  # path -> how often it was changed
    limits: dict[str, LimitSeen] = field(default_factory=dict)  # by scope
    unread: int = 0  # lines that are not records
    # what this agent's counter needs to continue
    memory: dict[str, Any] = field(default_factory=dict)

    def changed(self, path: str) -> None:
        """Counts a change of this file by a tool."""
        if path and (path in self.files or len(self.files) < _FILES_KEPT):
            self.files[path] = self.files.get(path, 0) + 1

    def seen_at(self, at: float | None) -> None:
        """Takes a record's time into account; the earliest is when the session began."""
        if at is not None:
            self.started_at = at if self.started_at is None else min(at, self.started_at)


class Counter(Protocol):
    """Reads whole lines, in order. Never raises, whatever they contain."""

    tally: Tally
    ledger: Ledger

    def feed(self, data: bytes, size: int) -> None:
        """Reads the lines in the first `size` bytes."""

    def close(self) -> None:
        """Completes the tally and the ledger, because the file ends here for now. Another counter
        may continue from them when the file has grown."""


Count = Callable[[Tally, Ledger], Counter]


def key_of(*names: bytes) -> int:
    """A row's key, the same in every process; 0 is reserved for "no key"."""
    digest = blake2b(b"\0".join(names), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) or 1


def print_of(data: bytes) -> bytes:
    """A fingerprint that distinguishes these bytes from others."""
    return blake2b(data, digest_size=16).digest()


def milliseconds(stamp: str) -> int:
    """A record's time stamp in unix milliseconds; 0 if it is not one."""
    try:
        when = datetime.fromisoformat(stamp)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return round(when.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        return 0


def objects(data: bytes) -> Iterator[JSON | None]:
    """The records of whole lines; None for a line that is not a record."""
    for line in data.split(b"\n"):
        if line and not line.isspace():
            value = read_line(line)
            yield value if isinstance(value, dict) else None


class RecordCounter:
    """Counts a file record by record: for agents whose files are small."""

    def __init__(self, tally: Tally, ledger: Ledger) -> None:
        self.tally, self.ledger = tally, ledger

    def feed(self, data: bytes, size: int) -> None:
        for record in objects(data[:size]):
            if record is None:
                self.tally.unread += 1
            else:
                self.count(record)

    def close(self) -> None:
        """Nothing is held back."""

    def count(self, record: JSON) -> None:
        """Counts one record."""
        raise NotImplementedError

    def count_reply(
        self,
        key: str,
        at: float | None,
        model: str,
        spend: Spend,
        *,
        side: bool = False,
        ends_turn: bool = False,
    ) -> None:
        """Adds one request to the ledger. A later one with the same key is the same request; ""
        is no key."""
        flags = (SIDE if side else 0) | (ENDS_TURN if ends_turn else 0)
        self.ledger.add(
            key_of(key.encode("utf-8", "replace")) if key else 0,
            round(at * 1000) if at else 0,
            model,
            flags,
            spend.input_tokens,
            spend.output_tokens,
            spend.cache_read_tokens,
            spend.cache_write_tokens,
            spend.hour_write_tokens,
        )
