"""Computes how long to wait after a limit or an overload, and how much of the wait is left."""

from math import isfinite

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.runs.types import Wait
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import FailureInfo, RateLimitInfo, Stop

_MAX_DOUBLINGS = 30
_TRUSTED_TRIES = 2  # a short limit, then a long one; a third reset in a row was wrong


class _Reset(Struct, frozen=True):
    at: float
    is_relative: bool


def wait_after(stop: Stop, policy: Policy, *, at: float, draw: float, tries: int) -> Wait:
    """The wait that follows this stop. It never ends before the stated reset. `tries`: the
    number of consecutive waits, from 1; `draw`: a random number from 0 to 1, which spreads
    runs that were stopped by the same limit. A reset in the past counts as unknown."""
    draw = min(1.0, max(0.0, draw))
    reset = _reset(stop, at)
    pause_s = backoff_s(policy, tries, draw)
    if reset is None:
        until = at + pause_s
    elif stop.reason is StopReason.OVERLOADED:
        until = max(reset.at, at + pause_s)
    else:
        spread_s = policy.reset_jitter_max_s - policy.reset_jitter_min_s
        until = reset.at + policy.reset_jitter_min_s + spread_s * draw
        if tries > _TRUSTED_TRIES:
            until = max(until, at + backoff_s(policy, tries - _TRUSTED_TRIES, draw))
    return Wait(
        until=until,
        since=at,
        why=stop.reason,
        reset_at=reset.at if reset else None,
        is_relative=reset is None or reset.is_relative,
        draw=draw,
        tries=tries,
    )


def is_outage(stop: Stop) -> bool:
    """Whether the network, or the service behind it, could not be reached."""
    return isinstance(stop.details, FailureInfo) and stop.details.scope == "network"


_LONG_WINDOWS = ("plan", "hour", "day", "dai", "week", "month")


def is_long_window(stop: Stop) -> bool:
    """Whether the limit lasts hours or more, judging by its name, even if no reset is stated."""
    scope = stop.details.scope if isinstance(stop.details, RateLimitInfo) else None
    return scope is not None and any(word in scope for word in _LONG_WINDOWS)


def backoff_s(policy: Policy, tries: int, draw: float) -> float:
    """Doubles each time up to the policy's maximum, plus or minus its jitter."""
    doubled = policy.unknown_reset_wait_s * 2.0 ** min(max(0, tries - 1), _MAX_DOUBLINGS)
    around = 1 + policy.wait_jitter * (2 * draw - 1)
    return min(doubled, policy.unknown_reset_max_s) * around


def remaining_s(wait: Wait, now: float, elapsed_s: float | None = None) -> float:
    """How much of the wait is left; 0 once it has ended. `now` is the wall clock, `elapsed_s`
    the time waited according to a clock that nobody sets, if known. A wait until a stated
    time ends by the wall clock alone: if the clock is set back, the wait gets longer. A wait
    of a number of seconds is not affected by setting the clock, and never gets longer."""
    total_s = wait.until - wait.since
    if not wait.is_relative:
        return max(0.0, wait.until - now)
    if elapsed_s is not None:
        return max(0.0, total_s - max(0.0, elapsed_s))
    return max(0.0, min(wait.until - now, total_s))


def _reset(stop: Stop, at: float) -> _Reset | None:
    if stop.retry_at is not None:
        reset = _Reset(stop.retry_at, False)
    elif stop.retry_after_s is not None:
        reset = _Reset(at + stop.retry_after_s, True)
    else:
        return None
    return reset if isfinite(reset.at) and reset.at > at else None
