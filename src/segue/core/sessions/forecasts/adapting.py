"""Adapts how large a turn segue plans for to how the last handoffs went (`adaptive = true`).

How it works. A handoff begins before the mark if the next turns, as large as large turns have
been so far, would pass it; "large" is a quantile of what turns added. A request that was read
late raises that quantile, and one that was read in time lowers it a little, so in the long run
no more than the accepted share is late, for any kind of session. The quantile stays within
bounds: segue neither hands over because of a turn that practically never happens, nor stops
looking ahead.
"""

from segue.core.sessions.forecasts.tuning import LATE

USUAL = 0.90
"""The quantile without `adaptive`, and before the first handoff: nine of ten turns add no more."""
LOWEST, HIGHEST = 0.75, 0.99
ACCEPTED = 0.05
"""The share of handoffs that may be late."""
_STEP = 0.04


def adapted(quantile: float | None, read_at: float) -> float:
    """The quantile after a handoff whose request was read at this share of the window; 1 for a
    window that filled up first."""
    moved = -ACCEPTED if read_at <= LATE else 1 - ACCEPTED
    return round(min(HIGHEST, max(LOWEST, (quantile or USUAL) + _STEP * moved)), 4)
