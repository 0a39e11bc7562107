"""Waiting for a condition: the one way in which tests do it."""

import time
from collections.abc import Callable
from typing import Any

LONG_S = 60.0
"""Nothing that happens at all takes so long, also on a machine with much else to do."""


def until(
    holds: Callable[[], Any],
    what: str | Callable[[], object] = "it never came true",
    limit_s: float = LONG_S,
) -> Any:
    """Waits for a condition, and returns what it gave; `what` is said if it never holds."""
    began = time.monotonic()
    while not (found := holds()):
        waited_s = time.monotonic() - began
        assert waited_s < limit_s, what() if callable(what) else what
        time.sleep(pause_s(waited_s))
    return found


def pause_s(waited_s: float) -> float:
    """How long to wait before the next look. A look may cost a process, so whoever has waited for
    long looks less often: never more than an eighth too late."""
    return min(max(waited_s / 8, 0.005), 0.25)
