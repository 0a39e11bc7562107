"""Where the marks should be, by how sessions have grown so far.

How it works. A request is not read at the mark where the handoff begins: the reading that first
reaches the mark is past it by a part of one turn, and the request is read one turn later. From
consecutive turns of real sessions this can be computed for every mark, also for those that no
session has reached: the larger a turn is, the more likely it contains the mark, and every point in
it is equally likely. A handoff is late if its request is read above `LATE`, or above the agent's
own limit. The best mark is the highest with no more late handoffs than the user accepts.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct

LATE = 0.90
"""A share of the window: above it, a request for a checkpoint comes late."""
MIN_TURNS = 150
MIN_SESSIONS = 3
_LOWEST, _HIGHEST = 30, 90  # percent


class History(Struct, frozen=True, kw_only=True):
    """One session: the size of its context after each reply, in order. `limit`: the share of the
    window above which a handoff is late; lower if the agent itself compacts earlier."""

    sizes: tuple[int, ...]
    window_tokens: int
    limit: float = LATE


class Turns(NamedTuple):
    """What two consecutive turns of a session added, and its limit, as shares of the window."""

    first: float
    second: float
    limit: float = LATE


class Advice(Struct, frozen=True, kw_only=True):
    """The suggested hard mark, and why. `hard_mark` is None if the history is too small, or if
    no mark is good enough; `why` says which."""

    hard_mark: float | None
    why: str
    sessions: int
    turns: int
    median_turn: float = 0.0  # of the window
    large_turn: float = 0.0  # 95 of 100 add no more
    late_now: float | None = None  # with the current mark
    late_then: float | None = None


def advise(histories: Iterable[History], *, now_mark: float, max_late: float = 0.05) -> Advice:
    """The highest mark at which at most `max_late` of all handoffs are late."""
    pairs: list[Turns] = []
    sessions = 0
    for history in histories:
        rises = _rises(history)
        found = [Turns(first, second, history.limit) for first, second in pairwise(rises)]
        sessions += bool(found)
        pairs += found
    turns = sorted(each.first for each in pairs)
    if len(pairs) < MIN_TURNS or sessions < MIN_SESSIONS:
        why = (
            f"not enough history: {len(pairs)} turns of {sessions} sessions;"
            f" at least {MIN_TURNS} turns of {MIN_SESSIONS} sessions are needed"
        )
        return Advice(hard_mark=None, why=why, sessions=sessions, turns=len(pairs))
    best = next(
        (
            mark / 100
            for mark in range(_HIGHEST, _LOWEST - 1, -1)
            if late_share(pairs, mark / 100) <= max_late
        ),
        None,
    )
    why = (
        ""
        if best is not None
        else f"turns are so large that no mark keeps late handoffs below {max_late:.0%}"
    )
    return Advice(
        hard_mark=best,
        why=why,
        sessions=sessions,
        turns=len(pairs),
        median_turn=_quantile(turns, 0.5),
        large_turn=_quantile(turns, 0.95),
        late_now=late_share(pairs, now_mark) if now_mark <= 1 else None,
        late_then=None if best is None else late_share(pairs, best),
    )


def late_share(pairs: Sequence[Turns], mark: float) -> float:
    """The share of the handoffs that begin at this mark and are read above the limit. Of each turn,
    the part counts from which the next turn would end above the limit."""
    total = sum(each.first for each in pairs)
    if total <= 0:
        return 0.0
    late = 0.0
    for first, second, limit in pairs:
        late += min(first, max(0.0, first + second - (limit - mark)))
    return late / total


def _rises(history: History) -> list[float]:
    """What each reply added, as a share of the window. A compaction is not a turn."""
    window = history.window_tokens
    if window <= 0:
        return []
    return [(b - a) / window for a, b in pairwise(history.sizes) if b > a]


def _quantile(ranked: Sequence[float], share: float) -> float:
    return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0
