"""From events to the signs of the final turn.

Theory of operation. A session is a row of turns; only the last one ended. So a `Started` or a
`Prompt` wipes the slate. Within the turn, an error counts only if nothing of the turn comes after
it: a reply or a tool call shows that the agent went on, whatever it said before. The agent's own
closing record (`Ended`) beats all that, and of several (a turn that wakes again for background
work) the last one counts.
"""

from collections.abc import Iterable

from msgspec import Struct

from segue.core.event import (
    Compaction,
    Ended,
    Event,
    Failure,
    Garbled,
    Limit,
    Other,
    Prompt,
    Reply,
    Started,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.core.stop import Tokens


class Turn(Struct, kw_only=True):
    """What is left of a session's events when only the last turn counts."""

    seen: int = 0  # events that say anything
    at: float | None = None  # the last record's own time
    ended: Ended | None = None
    failure: Failure | None = None
    limit: Limit | None = None  # rejected, and nothing went on after it
    compaction: Compaction | None = None  # begun or failed, and nothing went on after it
    open_calls: int = 0
    replied: bool = False
    tokens: Tokens | None = None
    model: str = ""
    unread: int = 0
    garbled: int = 0

    @property
    def is_cut(self) -> bool:
        """The records stop without a closing one."""
        return self.seen > 0 and self.ended is None


def fold(events: Iterable[Event]) -> Turn:
    """The last turn of a stream or session file."""
    turn = Turn()
    window: int | None = None
    for event in events:
        if isinstance(event, Other):
            turn.unread += not event.known
            continue
        if isinstance(event, Garbled):
            turn.garbled += 1
            continue
        turn.seen += 1
        turn.at = event.at if event.at is not None else turn.at
        if isinstance(event, Started | Prompt):
            if isinstance(event, Started) and event.model:
                turn.model = event.model
            _go_on(turn)
            turn.open_calls, turn.replied = 0, False
        elif isinstance(event, Reply):
            _go_on(turn)
            turn.replied = True
        elif isinstance(event, ToolCall):
            _go_on(turn)
            turn.open_calls += 1
        elif isinstance(event, ToolResult):
            turn.open_calls = max(0, turn.open_calls - 1)
        elif isinstance(event, Usage):
            window = event.window_tokens or window
            turn.tokens = Tokens(event.used_tokens, window)
        elif isinstance(event, Compaction):
            # Done is not yet gone on: pi 0.73 compacts after an overflow and then says nothing.
            turn.compaction = None if event.phase == "done" else event
            if event.used_tokens is not None:
                turn.tokens = Tokens(event.used_tokens, window)
        elif isinstance(event, Limit):
            if event.rejected:
                turn.limit = event
        elif isinstance(event, Ended):
            turn.ended = event
        elif isinstance(event, Failure):
            turn.failure = event
    if turn.tokens is not None and turn.tokens.window is None and window is not None:
        turn.tokens = Tokens(turn.tokens.used, window)
    return turn


def _go_on(turn: Turn) -> None:
    turn.ended = turn.failure = turn.limit = turn.compaction = None
