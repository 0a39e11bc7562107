"""Which accounts are limited now, and until when: what the queue has to know of them."""

from collections.abc import Iterable
from typing import Protocol

from segue.core.runs.types import Run, RunState
from segue.core.stops.reasons import StopReason
from segue.runs.store.port import Store


class Limits(Protocol):
    """Whoever knows the limits of accounts."""

    def account_of(self, agent: str) -> str:
        """Whose limits count for this agent."""

    def limited(self, now: float) -> dict[str, float]:
        """The accounts that met a limit which is not over, and until when."""


class RunLimits:
    """What the runs of this machine have met: an account is an agent's login here."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def account_of(self, agent: str) -> str:
        return agent

    def limited(self, now: float) -> dict[str, float]:
        return _limited(self._store.runs(unfinished=True), now)


def _limited(runs: Iterable[Run], now: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for run in runs:
        wait = run.wait
        if (
            run.state is not RunState.WAITING
            or wait is None
            or wait.why is not StopReason.RATE_LIMIT
        ):
            continue
        until = wait.reset_at if wait.reset_at is not None else wait.until
        if until > now:
            found[run.agent] = max(found.get(run.agent, 0.0), until)
    return found
