"""Computes how fast a session fills its window, and what its user's tasks have cost so far.

How it works. Samples become steps, one from each reply to the next, and the growth of a step is
what lies above the highest size since the last compaction. So a compaction counts neither as
growth nor as shrinking, and the few tokens that agents drop again (the thinking of earlier
turns) are not counted twice when they are filled again. Growth is a mean in which the largest
tenth of the steps, but at least one, counts no more than the next largest: one huge file hardly
moves it, while a median would ignore that most tokens come from few steps. Time is active time:
gaps in which nobody worked are left out, together with the tokens of the step that ended them.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import fsum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

IDLE_S = 300.0  # a longer pause between a reply and the next turn: the user was away
# a longer pause inside a turn: not a tool or sub-agent, but a wait for a limit or the user
STALL_S = 1_800.0
MIN_TASKS = 10  # with fewer, a p90 is merely the largest value

_LOOK_BACK_SAMPLES = 10_000
_RECENT_REPLIES = 300  # work changes (it is delegated, for example): what was hours ago is no guide
_RECENT_TURNS = 30
_LATEST_REPLIES = 9  # the rate changes from one tool to the next
_BLOCKS = 20
_MIN_ACTIVE_S = 60.0  # the burst at the start of a session says nothing about its rate
_LATEST_S = 1e11  # the year 5138: anything later is not a time, or is in milliseconds
_MAX_TOKENS = 2**53  # beyond this, floats lose tokens, and still larger integers raise


SHARES = (0.75, 0.80, 0.85, 0.90, 0.93, 0.95, 0.97, 0.99)
"""Shares of replies, for forecasts that cover more or fewer of them."""


class Sample(Struct, frozen=True):
    """The size of the context after one main-thread reply; `turn` counts the user's prompts."""

    at: float | None
    used_tokens: int
    turn: int


class Growth(Struct, frozen=True, kw_only=True):
    """How fast the context grows: rates are never negative, and None where unknown. `replies`,
    `turns` and `compactions` count those in the samples."""

    tokens_per_minute: float | None = None  # of active time
    tokens_per_turn: float | None = None
    tokens_per_reply: float | None = None
    large_reply_tokens: int | None = None  # nine of ten replies add no more; one spike is no guide
    reply_s: float | None = None  # from one reply to the next of the same turn: the recent median
    replies: int = 0
    turns: int = 0
    compactions: int = 0
    active_s: float = 0.0
    large_by_share: tuple[int, ...] = ()
    """Like `large_reply_tokens`, for each share of replies in `SHARES`."""


class Typical(Struct, frozen=True, kw_only=True):
    """What the user's tasks have cost so far: an observed cost, not a mean."""

    median_tokens: int
    tasks: int


class _Step(NamedTuple):
    rise: int | None  # None: nothing to compare with (the first reply, or a compaction)
    at: float | None
    turn: int  # counted here: any change of a sample's turn starts a new one
    compacted: bool


def growth(
    samples: Sequence[Sample],
    *,
    idle_s: float = IDLE_S,
    stall_s: float = STALL_S,
    large: float = 0.9,
) -> Growth | None:
    """The recent growth of one session, samples in the order of its transcript.

    None unless two replies can be compared. Samples without a time, or before which the clock was
    set back, still count per reply and per turn. From three turns on a single one moves
    `tokens_per_turn` by no more than the next largest would; the last turn, which may still be
    going on, is never a reason to expect less. `large`: the share of replies that add no more than
    `large_reply_tokens`.
    """
    steps = list(_steps(samples[-_LOOK_BACK_SAMPLES:]))
    rises = [step.rise for step in steps if step.rise is not None]
    if not rises:
        return None
    recent = rises[-_RECENT_REPLIES:]
    ranked = sorted(recent)
    costs = _turn_costs(steps)
    # at least three, otherwise one spike would count
    ended = costs[:-1] if len(costs) > 3 else costs
    paces = _paces(steps, idle_s, stall_s)[-_RECENT_REPLIES:]
    return Growth(
        tokens_per_minute=_per_minute(paces),
        tokens_per_turn=max(_usual(costs[-_RECENT_TURNS:]), _usual(ended[-_RECENT_TURNS:])),
        tokens_per_reply=_usual(recent),
        large_reply_tokens=int(_high(ranked, large)),
        reply_s=_reply_s(steps),
        replies=len(steps),
        turns=steps[-1].turn + 1,
        compactions=sum(step.compacted for step in steps),
        active_s=fsum(seconds for _, seconds in paces),
        large_by_share=tuple(int(_high(ranked, share)) for share in SHARES),
    )


def at_share(growth: Growth, share: float) -> Growth:
    """The same growth, for a forecast that covers this share of replies, or a little more."""
    for known, tokens in zip(SHARES, growth.large_by_share, strict=False):
        if share <= known + 1e-9:
            return replace(growth, large_reply_tokens=tokens)
    return growth


def large_reply(sizes: Iterable[int], *, large: float = 0.9) -> Growth | None:
    """The growth of replies of these sizes, as far as a forecast needs it: only
    `large_reply_tokens`."""
    rises: list[int] = []
    peak = last = 0
    for size in sizes:
        used = bounded(size)
        if used in (0, last):
            continue
        if last and used * 10 >= peak * 9:
            rises.append(max(0, used - peak))
            peak = max(peak, used)
        else:
            peak = used
        last = used
    if not rises:
        return None
    return Growth(large_reply_tokens=int(_high(sorted(rises[-_RECENT_REPLIES:]), large)))


def task_costs(samples: Sequence[Sample]) -> list[int]:
    """What each turn of one session added to the context, in order, without turns that added
    nothing.

    The first turn counts from its first reply on: the size before it is the agent's own prompt.
    """
    return [cost for cost in _turn_costs(_steps(samples)) if cost > 0]


def typical_task(costs: Iterable[int]) -> Typical | None:
    """The median of `task_costs` of many sessions; None with too little history."""
    ranked = sorted(bounded(cost) for cost in costs if cost > 0)
    count = len(ranked)
    if count < MIN_TASKS:
        return None
    return Typical(
        median_tokens=ranked[(count - 1) // 2],
        tasks=count,
    )


def _replies(samples: Iterable[Sample]) -> Iterator[tuple[float | None, int, int]]:
    """Each reply once: agents write a reply's size with each of its parts, and copy replies when
    they resume a session."""
    known: set[tuple[float | None, int, int]] = set()
    last = 0
    for sample in samples:
        used, at = bounded(sample.used_tokens), sample.at
        at = at if at is not None and abs(at) < _LATEST_S else None
        reply = (at, used, sample.turn)
        # Every reply adds something, and a size of zero is a record that the client made up.
        if used not in (0, last) and (at is None or reply not in known):
            known.add(reply)
            last = used
            yield reply


def _steps(samples: Iterable[Sample]) -> Iterator[_Step]:
    turn, peak, last = 0, 0, None
    for at, used, number in _replies(samples):
        turn += last is not None and number != last
        # A tenth below the peak: smaller drops are what agents omit from one turn to the next.
        compacted = used * 10 < peak * 9
        known = last is not None and not compacted
        yield _Step(max(0, used - peak) if known else None, at, turn, compacted)
        peak, last = max(peak, used) if known else used, number


def _turn_costs(steps: Iterable[_Step]) -> list[int]:
    costs: dict[int, int] = {}
    for step in steps:
        if step.rise is not None:
            costs[step.turn] = costs.get(step.turn, 0) + step.rise
    return list(costs.values())


def _paces(steps: Iterable[_Step], idle_s: float, stall_s: float) -> list[tuple[int, float]]:
    """Tokens and seconds of the steps with work in them."""
    active: list[tuple[int, float]] = []
    idle: list[tuple[int, float]] = []
    tokens, since, turn = 0, None, 0
    for step in steps:
        tokens += step.rise or 0
        if step.rise is not None and (step.at is None or step.at == since):
            continue  # it has no time of its own: its tokens go to the next step that has one
        if step.rise is not None and step.at is not None and since is not None and step.at > since:
            seconds, most = step.at - since, stall_s if step.turn == turn else idle_s
            (idle if seconds > most else active).append((tokens, max(0.0, min(seconds, most))))
        tokens, since, turn = 0, step.at, step.turn
    return active or idle  # idle steps, shortened, if there is nothing better


def _reply_s(steps: Sequence[_Step]) -> float | None:
    gaps = [
        after.at - before.at
        for before, after in pairwise(steps[-_LATEST_REPLIES - 1 :])
        if before.at is not None and after.at is not None and before.turn == after.turn
    ]
    known = sorted(gap for gap in gaps if gap >= 0)
    return known[len(known) // 2] if known else None


def _per_minute(paces: list[tuple[int, float]]) -> float | None:
    """The usual tokens per minute, over blocks of about equal time, because single steps last two
    seconds or twenty minutes."""
    total = fsum(seconds for _, seconds in paces)
    if not total >= _MIN_ACTIVE_S:
        return None
    enough = total / _BLOCKS * (1 - 1e-6)  # equal steps make equal blocks, however they are rounded
    blocks: list[tuple[int, float]] = []
    tokens, length = 0, 0.0
    for more, seconds in paces:
        tokens, length = tokens + more, length + seconds
        if length >= enough:
            blocks.append((tokens, length))
            tokens, length = 0, 0.0
    # The rest is too short for a separate block: its rate would be arbitrary.
    blocks[-1] = (blocks[-1][0] + tokens, blocks[-1][1] + length)
    return _usual([t * 60 / seconds for t, seconds in blocks], [seconds for _, seconds in blocks])


def _usual(values: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """The mean, with the largest tenth replaced by the next largest value."""
    cap = _high(sorted(values))
    if weights is None:
        return fsum([v if v < cap else cap for v in values]) / len(values)
    return fsum(min(v, cap) * w for v, w in zip(values, weights, strict=True)) / fsum(weights)


def _high(ranked: Sequence[float], share: float = 0.9) -> float:
    """The value that this share of the values does not exceed. Up to a share of 0.9, the largest
    is always left out if there are more than two. `ranked`: in ascending order."""
    count = len(ranked)
    cut = int(count * (1 - share) + 1e-9)
    if share <= 0.9:
        cut = max(1, cut)
    # with two values, nobody knows which is the spike
    return ranked[count - 1 - cut if count > 2 else -1]


def bounded(tokens: int) -> int:
    """A count that is safe to calculate with, whatever a record says."""
    if 0 <= tokens <= _MAX_TOKENS:
        return tokens
    return _MAX_TOKENS if tokens > 0 else 0
