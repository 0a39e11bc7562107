"""Estimates what a session will have gained at its next reading.

How it works. The output of a tool is part of the conversation before any reading shows it. Each
reading tells how many tokens the output since the one before has cost, together with the reply
itself. So the cheapest of the last turns is nearest to the cost of output alone. Usual text takes
no more than half a token per byte; a higher cost is believed only if several turns agree on it.
"""

from collections import deque

from segue.core.stops.events import ToolResult

_MAX_TURNS = 12  # turns
_ENOUGH = 3  # turns that can agree
_AGREES = 1.25  # their costs are this close
_USUAL = 0.25  # tokens per byte, as long as no turn shows it
_DENSE = 0.5  # no usual text takes more
_TELLING_BYTES = 500  # a turn with less output shows the cost of its reply, not of the output


class Pending:
    """The output of one session's tools that is in none of its readings.

    `is_late`: a reading tells the size before the tools that the reply called, although it comes
    after their output. `earlier`: an earlier session of the same agent and task, which shows what
    output costs."""

    def __init__(self, *, is_late: bool = False, earlier: "Pending | None" = None) -> None:
        self._is_late = is_late
        self._unread = 0  # bytes that the next reading has
        self._fresh = 0  # bytes since the last reading, if that is not the same
        self._last: int | None = None
        self._costs: deque[float] = deque(earlier._costs if earlier else (), maxlen=_MAX_TURNS)

    @property
    def tokens(self) -> int:
        """What the context has gained since the size in the last reading."""
        return self.cost(self._unread + self._fresh) if self._last is not None else 0

    def cost(self, size_bytes: int) -> int:
        """The tokens that this many bytes add to this session."""
        return int(size_bytes * self._per_byte())

    def add(self, size_bytes: int) -> None:
        """The conversation has gained this much text."""
        if self._is_late:
            self._fresh += size_bytes
        else:
            self._unread += size_bytes

    def feed(self, result: ToolResult) -> None:
        """A tool answered: only the length of its output counts."""
        self.add(len(result.printed))

    def read(self, used_tokens: int) -> None:
        """A new reading: the next reply, or the session after its own compaction."""
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
