"""Computes where a session is handed over, in tokens."""

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.sessions.forecasts.forecast import handoff_points, last_request


class Marks(Struct, frozen=True, kw_only=True):
    """Inclusive: a session with exactly this many tokens has reached the mark. None: never.
    `soft_tokens` is never above `hard_tokens`, and both are None or neither is. A request for a
    checkpoint is read by `asked_by_tokens`, if the session's turns leave room for that."""

    soft_tokens: int | None = None
    hard_tokens: int | None = None
    asked_by_tokens: int | None = None


def marks(policy: Policy, window_tokens: int, enforced_tokens: int | None = None) -> Marks:
    """The policy's marks in a window of this size. If the agent itself compacts or refuses at
    `enforced_tokens`, they are before that by what a checkpoint needs. A hard mark above 1
    switches both off."""
    soft, hard = handoff_points(policy, window_tokens, enforced_tokens)
    return Marks(
        soft_tokens=hard if soft is None else soft,
        hard_tokens=hard,
        asked_by_tokens=last_request(policy, window_tokens, enforced_tokens),
    )
