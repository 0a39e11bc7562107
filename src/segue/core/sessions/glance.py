"""What the end of a session tells: how full the window is, how it grew, and whose turn it is.

Built from events, so it is the same for every agent, and from any tail: what stood before it is
not needed, only looked for when the tail does not tell (`is_settled`).
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field

from segue.core.sessions.growth import Sample
from segue.core.sessions.spend import Spend
from segue.core.sessions.windows import DEFAULT_WINDOW_TOKENS, find_window, raised
from segue.core.stops.events import Compaction, Event, Limit, Other, Prompt, Started, Usage
from segue.core.stops.fold import Turn, fold

_SAMPLES_KEPT = 400

WindowSource = Literal["agent", "config", "table", "prices", "default", "raised"]


class Glance(Struct, kw_only=True):
    """A session as its last records show it."""

    session_id: str = ""
    cwd: str = ""
    model: str = ""
    first_at: float | None = None
    last_at: float | None = None
    used_tokens: int | None = None
    parts: Spend | None = None  # of the last reply; None after a compaction
    used_at: float | None = None
    window_tokens: int | None = None  # as the agent says
    accepted_tokens: int = 0  # the most that the window was seen to hold
    compactions: int = 0
    limits: dict[str, Limit] = field(default_factory=dict)  # the last word on each plan window
    samples: list[Sample] = field(default_factory=list)
    turn: Turn = field(default_factory=Turn)
    is_settled: bool = False
    """Whether earlier records could not change the size: there are two at least, and if it fell, it
    is known why."""


def glance(events: Iterable[Event]) -> Glance:
    """Folds the events of a tail, oldest first."""
    listed = list(events)
    seen = Glance(turn=fold(listed))
    turns, sizes, explained = 0, 0, True
    for event in listed:
        if event.at is not None:
            seen.first_at = event.at if seen.first_at is None else min(seen.first_at, event.at)
            seen.last_at = event.at if seen.last_at is None else max(seen.last_at, event.at)
        if isinstance(event, Other):
            continue
        if isinstance(event, Started):
            seen.session_id = event.session_id or seen.session_id
            seen.model, seen.cwd = event.model or seen.model, event.cwd or seen.cwd
        elif isinstance(event, Prompt):
            turns += 1
        elif isinstance(event, Usage):
            sizes += event.used_tokens != seen.used_tokens
            explained = event.used_tokens >= (seen.used_tokens or 0)
            _measure(seen, event, turns)
        elif isinstance(event, Compaction) and event.phase == "done":
            seen.compactions += 1
            if seen.used_tokens is None:  # else that is known, and of this a part may be refused
                seen.accepted_tokens = max(seen.accepted_tokens, event.before_tokens or 0)
            seen.used_tokens, seen.parts, seen.used_at = event.used_tokens, None, event.at
            explained = True
        elif isinstance(event, Limit):
            seen.limits[event.scope or "plan"] = event
    # One size alone may be a copy of an old record: the one before it would show that it fell.
    seen.is_settled = explained and (sizes > 1 or seen.compactions > 0)
    del seen.samples[:-_SAMPLES_KEPT]
    return seen


def _measure(seen: Glance, event: Usage, turns: int) -> None:
    if event.model and seen.model and event.model != seen.model:
        seen.accepted_tokens = 0  # by another model
    seen.used_tokens, seen.parts, seen.used_at = event.used_tokens, event.parts, event.at
    seen.model = event.model or seen.model
    seen.window_tokens = event.window_tokens or seen.window_tokens
    seen.accepted_tokens = max(seen.accepted_tokens, event.used_tokens)
    seen.samples.append(Sample(event.at, event.used_tokens, turns))


class Window(Struct, frozen=True):
    """How large the window is believed to be, and who says so."""

    tokens: int
    source: WindowSource
    note: str = ""


def believed_window(
    *,
    told_tokens: int | None,
    accepted_tokens: int,
    model: str,
    configured: dict[str, int],
    agents_own: dict[str, int],
    priced_tokens: int | None = None,
    default_tokens: int = DEFAULT_WINDOW_TOKENS,
) -> Window:
    """Design rule 2: the agent's own word, the user's config, our tables, the price list, then a
    default with a warning. What was accepted cannot be too much: the belief was wrong. But what
    the agent says is no belief: it works with that, whatever the provider takes beyond it (codex
    keeps a twentieth back)."""
    window = _believed(told_tokens, model, configured, agents_own, priced_tokens, default_tokens)
    if told_tokens or accepted_tokens <= window.tokens:
        return window
    larger = min((own for own in agents_own.values() if own >= accepted_tokens), default=None)
    tokens = larger or raised(window.tokens, accepted_tokens)
    note = f"{accepted_tokens:,} tokens were accepted: the window is not {window.tokens:,}"
    return Window(tokens, "raised", note)


def _believed(
    told: int | None,
    model: str,
    configured: dict[str, int],
    agents_own: dict[str, int],
    priced: int | None,
    default: int,
) -> Window:
    if told:
        return Window(told, "agent")
    if found := find_window(model, configured):
        return Window(found, "config")
    named = {name: tokens for name, tokens in agents_own.items() if name}
    if found := find_window(model, named) or find_window(model):
        return Window(found, "table")
    if agents_own.get(""):
        return Window(agents_own[""], "agent", f"the agent does not know {model or 'the model'}")
    if priced:
        return Window(priced, "prices")
    name = f"the window of {model}" if model else "the model"
    return Window(default, "default", f"{name} is not known; {default:,} is assumed")
