"""Estimates what a session will have gained at its next reading.

How it works. The output of a tool is part of the conversation before any reading shows it. Each
reading tells how many tokens the output since the one before has cost, together with the reply
itself. So the cheapest of the last turns is nearest to the cost of output alone. Usual text takes
no more than half a token per byte; a higher cost is believed only if several turns agree on it.
"""

from collections import deque

from segue.core.stops.events import ToolResult

_MAX_TURNS = 12  # how many of the last turns are remembered
_ENOUGH = 3  # how many turns must agree on a higher cost
_AGREES = 1.25  # turns agree if their costs differ by no more than this factor
_USUAL = 0.25  # tokens per byte, as long as no turn shows the cost
_DENSE = 0.5  # tokens per byte; no usual text takes more
_TELLING_BYTES = 500  # a turn with less output shows the cost of its reply, not of the output


class Pending:
    """The output of one session's tools that no reading includes yet.

    `is_late`: a reading arrives after the output of the tools that the reply called, but states the
    size before them. `earlier`: an earlier session of the same agent and task, which shows what
    output costs."""

    def __init__(self, *, is_late: bool = False, earlier: "Pending | None" = None) -> None:
        self._is_late = is_late
        self._unread = 0  # bytes that the next reading includes
        self._fresh = 0  # with `is_late`: bytes that only the reading after that includes
        self._last: int | None = None
        self._costs: deque[float] = deque(earlier._costs if earlier else (), maxlen=_MAX_TURNS)

    @property
    def tokens(self) -> int:
        """How many tokens the context has gained since the size in the last reading, as an
        estimate."""
        return self.cost(self._unread + self._fresh) if self._last is not None else 0

    def cost(self, size_bytes: int) -> int:
        """The tokens that this many bytes add to this session."""
        return int(size_bytes * self._per_byte())

    def add(self, size_bytes: int) -> None:
        """Counts text that was added to the conversation."""
        if self._is_late:
            self._fresh += size_bytes
        else:
            self._unread += size_bytes

    def feed(self, result: ToolResult) -> None:
        """Counts the output of a tool, of which only the length matters."""
        self.add(len(result.printed))

    def read(self, used_tokens: int) -> None:
        """Takes a new reading: that of the next reply, or of the session after its own
        compaction."""
        gained = used_tokens - self._last if self._last is not None else 0
        if gained > 0 and self._unread >= _TELLING_BYTES:
            self._costs.append(gained / self._unread)
        self._last = used_tokens
        self._unread, self._fresh = self._fresh, 0

    def _per_byte(self) -> float:
        if not self._costs:
            return _USUAL
        ranked = sorted(self._costs)
        least = ranked[0]
        is_agreed = len(ranked) >= _ENOUGH and ranked[_ENOUGH - 1] <= least * _AGREES
        return least if is_agreed else min(least, _DENSE)
