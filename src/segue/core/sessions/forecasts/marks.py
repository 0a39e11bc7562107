"""Computes where a session is handed over, in tokens."""

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.sessions.forecasts.forecast import handoff_points, last_request


class Marks(Struct, frozen=True, kw_only=True):
    """The marks of a window in tokens. A session with exactly this many tokens has reached the
    mark; None: it never does. `soft_tokens` is never above `hard_tokens`, and both are None or
    neither is. A session should have read the request for a checkpoint before it has
    `asked_by_tokens`, if its turns leave room for that."""

    soft_tokens: int | None = None
    hard_tokens: int | None = None
    asked_by_tokens: int | None = None


def marks(policy: Policy, window_tokens: int, enforced_tokens: int | None = None) -> Marks:
    """The policy's marks in a window of this size. If the agent itself compacts or refuses at
    `enforced_tokens`, they are so far below that size that a checkpoint has room. A hard mark above
    1 switches them off."""
    soft, hard = handoff_points(policy, window_tokens, enforced_tokens)
    return Marks(
        soft_tokens=hard if soft is None else soft,
        hard_tokens=hard,
        asked_by_tokens=last_request(policy, window_tokens, enforced_tokens),
    )
