"""From events to the signs of the final turn.

A session is a sequence of turns, and only the last one ended. So a `Started` or a `Prompt` starts
afresh. Within the turn, an error counts only if nothing of the turn follows it: a reply or a tool
call shows that the agent continued, whatever it said before. The agent's own closing record
(`Ended`) beats all of that; if there are several (a turn that wakes up again for background work),
the last one counts.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from segue.core.stops.events import (
    Compaction,
    Ended,
    Event,
    Failure,
    Limit,
    Other,
    Prompt,
    Reply,
    Retry,
    Started,
    ToolCall,
    Usage,
)
from segue.core.stops.types import Tokens


class Turn(Struct, kw_only=True):
    """What remains of a session's events if only the last turn counts."""

    seen: int = 0  # number of meaningful events
    ended: Ended | None = None
    failure: Failure | None = None
    limit: Limit | None = None  # rejected, and nothing followed
    compaction: Compaction | None = None  # started or failed, and nothing followed
    waiting: Retry | None = None  # the agent waits to retry, and nothing followed
    tokens: Tokens | None = None
    model: str = ""
    unread: int = 0

    @property
    def is_cut(self) -> bool:
        """Whether the records stop without a closing one."""
        return self.seen > 0 and self.ended is None


def fold(events: Iterable[Event]) -> Turn:
    """The last turn of a stream or session file."""
    last = LastTurn()
    for event in events:
        last.feed(event)
    return last.turn()


class LastTurn:
    """The same, event by event: `turn` is always what `fold` would return for the events so far."""

    def __init__(self) -> None:
        self._turn = Turn()
        self._window: int | None = None

    def feed(self, event: Event) -> None:
        """Adds the next event."""
        turn = self._turn
        if isinstance(event, Other):
            turn.unread += not event.known
            return
        turn.seen += 1
        if isinstance(event, Started | Prompt):
            if isinstance(event, Started) and event.model:
                turn.model = event.model
            _go_on(turn)
        elif isinstance(event, Reply | ToolCall):
            _go_on(turn)
        elif isinstance(event, Retry):
            # What it tries again has not stopped it.
            turn.failure = turn.compaction = None
            turn.waiting = event
        elif isinstance(event, Usage):
            self._window = event.window_tokens or self._window
            turn.tokens = Tokens(event.used_tokens, self._window)
        elif isinstance(event, Compaction):
            # "done" does not mean that it continued: pi 0.73 compacts after an overflow and then
            # says nothing.
            turn.compaction = None if event.phase == "done" else event
            if event.used_tokens is not None:
                turn.tokens = Tokens(event.used_tokens, self._window)
        elif isinstance(event, Limit):
            # If there are several full windows, the one that opened last decides.
            if event.rejected and (event.resets_at or 0) >= _reset(turn.limit):
                turn.limit = event
        elif isinstance(event, Ended):
            turn.ended, turn.waiting = event, None
        elif isinstance(event, Failure):
            turn.failure, turn.waiting = event, None

    def turn(self) -> Turn:
        """What remains so far."""
        turn, tokens = self._turn, self._turn.tokens
        if tokens is not None and tokens.window is None and self._window is not None:
            return replace(turn, tokens=Tokens(tokens.used, self._window))
        return replace(turn)


def _go_on(turn: Turn) -> None:
    turn.ended = turn.failure = turn.limit = turn.compaction = turn.waiting = None


def _reset(limit: Limit | None) -> float:
    return (limit.resets_at or 0) if limit is not None else 0
