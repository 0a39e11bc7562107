"""Judges, while a session works, whether it makes progress.

Progress inside a leg is a changed tree, a closed todo, a test that passes again, or a tool call
that succeeds and is new, with different arguments or a different result. A call that fails or is
refused never counts, however new it is. Three things are too little to count as progress and too
much to count as a loop, so they get `PATIENCE` times the limits: a call that differs from an
earlier one only in digits and blanks (a counter, a time); a call that takes its time (somebody
waits for a build); and the very same call after `RESULTS` results, if it returns yet another one
(random names, other activity on the machine).
"""

from zlib import crc32

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.runs.progress import Mark
from segue.core.runs.types import IdleKind
from segue.core.stops.events import (
    Compaction,
    Event,
    Prompt,
    Reply,
    Started,
    ToolCall,
    ToolResult,
    Usage,
)

PATIENCE = 5
WAIT_S = 5.0
"""A call that runs this long is waiting for something."""
RESULTS = 50
"""This many results of the same call count as news, as long as nothing else happens."""
_MAX_KNOWN = 20_000
_CALL_CHARS = 200
_LONG_CHARS = 500
_SHOWN_CHARS = 8_000
_NOISE = {ord(char): None for char in "0123456789 \t\r\n"}

Key = tuple[str, str, int]


class Spun(Struct, frozen=True, kw_only=True):
    """This many replies, tokens, … brought no progress. `call` is the most frequent call in that
    time, and `failed` how often it failed."""

    kind: IdleKind
    count: int
    call: str = ""
    made: int = 0
    failed: int = 0


class _Count(Struct):
    """What was spent since the last progress."""

    replies: int = 0
    tokens: int = 0
    compactions: int = 0


class Idle:
    """Takes in the events of a run's sessions and reports when they only go round in circles.
    `see` tells it about progress that events do not show. Before acting on a reported loop,
    the caller looks at the tree and believes the report only if `see` finds nothing new."""

    def __init__(self, policy: Policy) -> None:
        self._limits: dict[IdleKind, int | None] = {
            "calls": policy.same_calls,
            "replies": policy.max_idle_replies,
            "tokens": policy.max_idle_tokens,
            "compactions": policy.max_idle_compactions,
        }
        self._short, self._long = _Count(), _Count()
        self._in_a_row = 0
        self._open: dict[str, tuple[ToolCall, float]] = {}
        self._made: dict[Key, int] = {}
        self._loose: set[Key] = set()
        self._results: dict[tuple[str, str], int] = {}  # how many results a call had
        self._calls: dict[str, list[int]] = {}  # calls made and failed since the last progress
        self._trees: set[str] = set()
        self._mark = Mark()
        self._is_replying = False
        self._is_counted = False  # its size was reported since

    def feed(self, event: Event, at: float) -> Spun | None:
        """Takes in an event at unix time `at`. Returns what was spent without progress, if that
        is too much."""
        match event:
            case Reply() | ToolCall():
                # Text, size and calls may be recorded separately: they are one reply.
                if not self._is_replying or (self._is_counted and isinstance(event, Reply)):
                    self._is_replying = True
                    self._short.replies += 1
                    self._long.replies += 1
                self._is_counted = False
                if isinstance(event, ToolCall):
                    self._open[event.call_id] = (event, at if event.at is None else event.at)
            case ToolResult():
                self._is_replying = False
                self._result(event, at if event.at is None else event.at)
            case Usage():
                self._is_counted = True
                self._short.tokens += event.used_tokens
                self._long.tokens += event.used_tokens
            case Compaction(phase="done"):
                self._short.compactions += 1
                self._long.compactions += 1
            case Prompt() | Started():
                self._is_replying = False
        return self._spun()

    def see(self, mark: Mark) -> bool:
        """Takes in the state of the work, and returns whether it is progress. A tree that
        already existed in this leg is not."""
        is_new = bool(mark.closed - self._mark.closed or mark.passed - self._mark.passed)
        if mark.tree and mark.tree not in self._trees:
            is_new = is_new or bool(self._trees)
            self._trees.add(mark.tree)
        self._mark = mark
        if is_new:
            self.forget()
            self._made.clear()  # in another tree the same call is another one
            self._loose.clear()
            self._results.clear()
        return is_new

    def begin(self, mark: Mark, *, anew: bool) -> None:
        """A leg starts. A handoff is not progress: the counts continue, unless `anew`."""
        self._open.clear()
        self._is_replying = False
        self.see(mark)
        if anew:
            self.forget()

    def forget(self) -> None:
        """Starts counting again from here."""
        self._short, self._long, self._in_a_row = _Count(), _Count(), 0
        self._calls.clear()

    def _result(self, result: ToolResult, at: float) -> None:
        call, since = self._open.pop(result.call_id, (None, at))
        if call is None:
            return
        failed = result.failed or result.denied or result.exit_code not in (0, None)
        label = (call.command or f"{call.name} {call.argument}").strip()[:_CALL_CHARS]
        if label in self._calls or len(self._calls) < _MAX_KNOWN:
            counts = self._calls.setdefault(label, [0, 0])
            counts[0] += 1
            counts[1] += failed
        shown, shown_loosely = _checksums(result.printed)
        exact = (call.name, call.argument, 0 if failed else shown)
        loose = (call.name, _loosely(call.argument), shown_loosely)
        made = self._made.get(exact, 0)
        if len(self._made) >= _MAX_KNOWN or len(self._loose) >= _MAX_KNOWN:
            self._made.clear()  # a loop is found again soon enough
            self._loose.clear()
            self._results.clear()
        self._made[exact] = made + 1
        self._in_a_row = self._in_a_row + 1 if made >= 2 else 0
        if failed:
            return
        results = self._results.get(exact[:2], 0) + (not made)
        self._results[exact[:2]] = results
        if not made and loose not in self._loose and results <= RESULTS:
            self.forget()
        elif not made or at - since >= WAIT_S:
            self._short, self._in_a_row = _Count(), 0
        self._loose.add(loose)

    def _spun(self) -> Spun | None:
        for kind, limit in self._limits.items():
            if limit is None:
                continue
            if kind == "calls":
                count, most = self._in_a_row, limit
            else:
                count, most = getattr(self._short, kind), limit
                if count < most:
                    count, most = getattr(self._long, kind), limit * PATIENCE
            if 0 < most <= count:
                return self._found_idle(kind, count)
        return None

    def _found_idle(self, kind: IdleKind, count: int) -> Spun:
        if not self._calls:
            return Spun(kind=kind, count=count)
        call, (made, failed) = max(self._calls.items(), key=lambda item: item[1][0])
        return Spun(kind=kind, count=count, call=call, made=made, failed=failed)


def _checksums(printed: str) -> tuple[int, int]:
    """Checksums of a tool's output, and of the same without digits and blanks, so without
    counters and times. Of a long text, only the beginning, the end and the length count."""
    if len(printed) > 2 * _SHOWN_CHARS:
        printed = f"{printed[:_SHOWN_CHARS]}{len(printed)}{printed[-_SHOWN_CHARS:]}"
    loosely = printed.translate(_NOISE)
    return crc32(printed.encode("utf-8", "replace")), crc32(loosely.encode("utf-8", "replace"))


def _loosely(argument: str) -> str:
    """The text without anything that varies from one time to the next. The end of a long text
    becomes a checksum."""
    shown = argument.rpartition("…")[0] if len(argument) > _LONG_CHARS else argument
    return shown.translate(_NOISE)
