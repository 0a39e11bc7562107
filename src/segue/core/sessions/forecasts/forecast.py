"""Forecasts when a session reaches its zones and limits, and what still fits before that.

Zones are fractions of the window; here they become tokens and, with the session's growth, time
and turns. Whatever the reading says, nothing here raises and no result is negative.
"""

from math import ceil, isfinite
from typing import Literal

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.sessions.forecasts.growth import Growth, bounded
from segue.core.sessions.reading import Reading, Zone

Because = Literal["fits", "task_too_large_for_zone", "no_room", "handoff", "unknown_window"]

RESERVE_TOKENS = 10_000  # what a checkpoint needs
CLOSE_TURNS = 5
"""A session that is this few large replies from its limit is close to it."""
REACTION_S = 1.0
"""The forecast includes what a session adds while segue looks at it and interrupts it."""
MAX_MISSED_TURNS = 2.0
_MOST_LATE = 2.5  # the largest factor for these turns, on a machine that is too busy
ASKED_BY = 0.90
"""A request for a checkpoint is read before this much of the window is used, if a session's turns
leave room for that; later, if the policy's own mark is later."""
_AFTER_NORMAL = tuple(Zone)[1:]
_NO_GROWTH = Growth()


class Ahead(Struct, frozen=True, kw_only=True):
    """The distance to a point of the window: 0 once it is reached, None if unknown or never.
    `seconds` count active time: an idle session gets no nearer."""

    at_tokens: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    turns: float | None = None
    replies: float | None = None


class Forecast(Struct, frozen=True, kw_only=True):
    """The distance to every zone, and to the point where the agent can go no further. `zone` is
    the reading's zone, unless the agent's own limit is so low that the handoff is due.
    `last_tokens` is the size at which just enough room is left before `full` for a checkpoint.
    `next_passes`: if the next reply is as large as the session's large ones, the session is then at
    `last_tokens`, or past the size by which it should have been asked for a checkpoint; `is_close`:
    the same after a few such replies. `result_passes`: the output of its current tool may reach
    `full`, or the size at which a request is read late. None and False if handoffs are off."""

    zone: Zone
    zones: dict[Zone, Ahead]
    full: Ahead
    last_tokens: int | None = None
    next_passes: bool = False
    is_close: bool = False
    result_passes: bool = False

    @property
    def handoff(self) -> Ahead:
        """The distance to the handoff; all None if the policy switches handoffs off."""
        return self.zones[Zone.HANDOFF]


class Fit(Struct, frozen=True, kw_only=True):
    """Whether a task may start. `ok` exactly if it needs no more than `room_tokens`."""

    ok: bool
    room_tokens: int  # the largest task that may be started now
    because: Because
    why: str


def forecast(
    reading: Reading,
    growth: Growth | None,
    policy: Policy,
    *,
    reserve_tokens: int = RESERVE_TOKENS,
    enforced_at_tokens: int | None = None,
    reaction_s: float = REACTION_S,
) -> Forecast:
    """The distance to each zone at this growth; never raises. `enforced_at_tokens` is where the
    agent itself compacts or refuses. The handoff then begins at the latest one reserve before
    it, and no zone begins after the handoff. `reaction_s`: how long it takes on this machine to
    see a reply and interrupt the turn."""
    used, window = bounded(reading.used_tokens), bounded(reading.window_tokens)
    points = _points(reading, policy, reserve_tokens, enforced_at_tokens)
    handoff = points[Zone.HANDOFF]
    full = _least(window or None, _limit(enforced_at_tokens))
    last = None if full is None or handoff is None else _before(full, reserve_tokens)
    asked_by = _asked_by(last, handoff, window)
    late = None if full is None or handoff is None else _least(full, _read_by(handoff, window))
    missed = _missed_turns(growth, reaction_s)
    return Forecast(
        zone=_zone(used, points),
        zones={zone: _ahead(used, point, growth) for zone, point in points.items()},
        full=_ahead(used, full, growth),
        last_tokens=last,
        next_passes=asked_by is not None and later(used, growth, turns=2 + missed) >= asked_by,
        is_close=asked_by is not None
        and later(used, growth, turns=CLOSE_TURNS + missed) >= asked_by,
        result_passes=late is not None and later(used, growth, turns=1) >= late,
    )


def handoff_points(
    policy: Policy, window_tokens: int, enforced_at_tokens: int | None = None
) -> tuple[int | None, int | None]:
    """Where the soft mark and the handoff begin, in tokens, as in `forecast`; None: never."""
    window = bounded(window_tokens)
    handoff = None if policy.hard_mark > 1 else _tokens_at(policy.hard_mark, window)
    enforced = _limit(enforced_at_tokens)
    if enforced is not None and policy.hard_mark <= 1:
        handoff = _least(_before(enforced, policy.reserve_tokens), handoff)
    if handoff is None:
        return None, None
    return _least(handoff, _tokens_at(policy.soft_mark, window)), handoff


def last_request(
    policy: Policy, window_tokens: int, enforced_at_tokens: int | None = None
) -> int | None:
    """The size by which a session must have been asked for a checkpoint, as in `forecast`; None
    if handoffs are off."""
    window = bounded(window_tokens)
    handoff = handoff_points(policy, window, enforced_at_tokens)[1]
    full = _least(window or None, _limit(enforced_at_tokens))
    last = None if full is None or handoff is None else _before(full, policy.reserve_tokens)
    return _asked_by(last, handoff, window)


def _asked_by(last: int | None, handoff: int | None, window: int) -> int | None:
    """The size by which a session must have been asked for a checkpoint; None if handoffs are
    off."""
    read_by = _read_by(handoff, window)
    return last if last is None or read_by is None else min(last, read_by)


def _read_by(handoff: int | None, window: int) -> int | None:
    """The size from which on a request is read late; None if handoffs are off or the window is
    unknown."""
    share = _tokens_at(ASKED_BY, window)
    return None if handoff is None or share is None else max(handoff, share)


def _missed_turns(growth: Growth | None, reaction_s: float) -> float:
    """How many replies arrive during segue's reaction time: a few if they take less than a
    second, and almost none while a model thinks. More if segue reacts late."""
    if growth is None or growth.reply_s is None:
        return 0.0
    most = MAX_MISSED_TURNS * min(reaction_s / REACTION_S, _MOST_LATE)
    return min(most, reaction_s / max(growth.reply_s, 1e-3))


def later(used_tokens: int, growth: Growth | None, *, turns: float) -> int:
    """The size after this many turns, if they are as large as this session's large turns so far.
    The output of tools that the last reply called is not in any reading yet: it counts as one
    turn, and the next reply with its tools as the second."""
    large = (growth.large_reply_tokens if growth else None) or 0
    return bounded(used_tokens) + int(turns * bounded(large))


def fits(
    task_tokens: int,
    reading: Reading,
    policy: Policy,
    *,
    reserve_tokens: int = RESERVE_TOKENS,
    enforced_at_tokens: int | None = None,
) -> Fit:
    """Whether a task of this size may start now; never raises. It may if the zone allows its
    size, and if the reserve is left afterwards below the hard mark (below the end of the
    window, if handoffs are off) and below the agent's own limit."""
    need, used, reserve = max(1, bounded(task_tokens)), bounded(reading.used_tokens), reserve_tokens
    zone = _zone(used, _points(reading, policy, reserve, enforced_at_tokens))
    if zone is Zone.HANDOFF:
        return _no("handoff", "The handoff is due: no new task should start in this session.")
    hard = _tokens_at(min(policy.hard_mark, 1.0), bounded(reading.window_tokens))
    end = _least(hard, _limit(enforced_at_tokens))
    if end is None:
        return _no(
            "unknown_window", "The size of the window is unknown, so segue cannot tell what fits."
        )
    left = max(0, end - bounded(reserve) - used - 1)
    sizes = {Zone.WARNING: policy.warning_task_tokens, Zone.CRITICAL: policy.critical_task_tokens}
    passed = list(Zone)[: list(Zone).index(zone) + 1]
    # The smallest limit of all zones passed: a fuller window never allows more, even if the
    # policy's sizes would.
    most = min((max(0, bounded(sizes[z]) - 1) for z in passed if z in sizes), default=left)
    room, reason = min(left, most), f"{bounded(reserve):,} reserved for the checkpoint"
    if need > left:
        return _no("no_room", f"Needs {need:,} tokens; {left:,} are left, with {reason}.", room)
    if need > most:
        why = f"Needs {need:,} tokens; in the {zone} zone a task may need at most {most:,}."
        return _no("task_too_large_for_zone", why, room)
    why = f"Fits: a task of up to {room:,} tokens may start, with {reason}."
    return Fit(ok=True, room_tokens=room, because="fits", why=why)


def _no(because: Because, why: str, room_tokens: int = 0) -> Fit:
    return Fit(ok=False, room_tokens=room_tokens, because=because, why=why)


def _points(
    reading: Reading, policy: Policy, reserve_tokens: int, enforced_at_tokens: int | None
) -> dict[Zone, int | None]:
    """Where each zone begins, in tokens; None if it is never entered."""
    used, window = bounded(reading.used_tokens), bounded(reading.window_tokens)
    points: dict[Zone, int | None] = {Zone.NORMAL: 0}
    for zone, mark in zip(_AFTER_NORMAL, policy.marks, strict=True):
        point = _tokens_at(mark, window)
        # A mark above 1 switches handoffs off. Other zones above 1 are entered only if the assumed
        # window was too small.
        off = mark > 1 and (zone is Zone.HANDOFF or point is None or used < point)
        points[zone] = None if off else point
    enforced = _limit(enforced_at_tokens)
    if enforced is not None and policy.hard_mark <= 1:
        points[Zone.HANDOFF] = _least(_before(enforced, reserve_tokens), points[Zone.HANDOFF])
    handoff = points[Zone.HANDOFF]
    return {zone: None if at is None else _least(at, handoff) for zone, at in points.items()}


def _before(limit: int, reserve_tokens: int) -> int:
    """The size that leaves the reserve below this limit, but at least half of the limit: with a
    reserve larger than the window, every leg would hand over at once."""
    return max(limit - bounded(reserve_tokens), limit // 2)


def _zone(used: int, points: dict[Zone, int | None]) -> Zone:
    return [zone for zone, point in points.items() if point is not None and used >= point][-1]


def _tokens_at(mark: float, window: int) -> int | None:
    """The smallest number of tokens whose share of the window reaches the mark."""
    if window == 0 or not isfinite(mark * window):
        return None
    tokens = ceil(mark * window)
    # The product is rounded: 7.000000000000001 must not become 8.
    return tokens - 1 if (tokens - 1) / window >= mark else tokens


def _ahead(used: int, point: int | None, growth: Growth | None) -> Ahead:
    if point is None:
        return Ahead()
    to_go, pace = max(0, point - used), growth or _NO_GROWTH
    minutes = _quotient(to_go, pace.tokens_per_minute)
    return Ahead(
        at_tokens=point,
        tokens=to_go,
        seconds=None if minutes is None else minutes * 60,
        turns=_quotient(to_go, pace.tokens_per_turn),
        replies=_quotient(to_go, pace.tokens_per_reply),
    )


def _quotient(tokens: int, rate: float | None) -> float | None:
    if tokens == 0:
        return 0.0
    # Growth below a millionth of a token counts as none; what is not a number is unknown.
    return tokens / rate if rate is not None and isfinite(rate) and rate > 1e-6 else None


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def _limit(enforced_at_tokens: int | None) -> int | None:
    return bounded(enforced_at_tokens or 0) or None
