"""What the end of a session file shows: how full the window is, how it grew, and whose turn it is.

It is computed from events, so it is the same for every agent, and it works on any tail: earlier
records are needed only if the tail does not settle the question (`is_settled`).
"""

from collections.abc import Iterable

from msgspec import Struct, field

from segue.core.sessions.forecasts.growth import Sample
from segue.core.sessions.remarks import LimitSeen
from segue.core.sessions.types import Look
from segue.core.stops.events import Compaction, Event, Limit, Other, Prompt, Started, Usage
from segue.core.stops.fold import Turn, fold

_SAMPLES_KEPT = 400


class TailLook(Struct, kw_only=True):
    """A look at a session's last records, and what is needed to judge whether they are enough."""

    look: Look = field(default_factory=Look)
    """Everything except the growth and the verdict on the last turn, which take longer.
    `started_at` is the time of the first record here."""
    turn: Turn = field(default_factory=Turn)
    samples: list[Sample] = field(default_factory=list)
    is_settled: bool = False
    """Whether earlier records could not change the size: these records have two sizes at least or a
    compaction, and if the size fell, they show why."""


def look_at(events: Iterable[Event]) -> TailLook:
    """Folds the events of a tail, oldest first."""
    listed = list(events)
    look = Look()
    samples: list[Sample] = []
    turns, sizes, compactions, explained = 0, 0, 0, True
    for event in listed:
        if event.at is not None:
            first, last = look.started_at, look.last_at
            look.started_at = event.at if first is None else min(first, event.at)
            look.last_at = event.at if last is None else max(last, event.at)
        if isinstance(event, Other):
            continue
        if isinstance(event, Started):
            look.session_id = event.session_id or look.session_id
            look.model, look.cwd = event.model or look.model, event.cwd or look.cwd
        elif isinstance(event, Prompt):
            turns += 1
        elif isinstance(event, Usage):
            sizes += event.used_tokens != look.used_tokens
            explained = event.used_tokens >= (look.used_tokens or 0)
            _measure(look, event)
            samples.append(Sample(event.at, event.used_tokens, turns))
        elif isinstance(event, Compaction) and event.phase == "done":
            compactions += 1
            # The size before a compaction matters only if no reply showed it: some of it may have
            # been refused.
            if look.used_tokens is None:
                look.accepted_tokens = max(look.accepted_tokens, event.before_tokens or 0)
            look.used_tokens, look.parts, look.used_at = event.used_tokens, None, event.at
            explained = True
        elif isinstance(event, Limit):
            limit = LimitSeen(event.used_percent, event.resets_at, event.at, event.rejected)
            look.limits[event.scope or "plan"] = limit
    look.compacted = compactions > 0 and look.parts is None
    # A single size may be a copy of an old record: the one before it would show that it fell.
    is_settled = explained and (sizes > 1 or compactions > 0)
    recent = samples[-_SAMPLES_KEPT:]
    return TailLook(look=look, turn=fold(listed), samples=recent, is_settled=is_settled)


def _measure(look: Look, event: Usage) -> None:
    if event.model and look.model and event.model != look.model:
        look.accepted_tokens = 0  # of another model
    look.used_tokens, look.parts, look.used_at = event.used_tokens, event.parts, event.at
    look.model = event.model or look.model
    look.told_window_tokens = event.window_tokens or look.told_window_tokens
    look.accepted_tokens = max(look.accepted_tokens, event.used_tokens)
