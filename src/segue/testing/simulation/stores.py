"""The real store, on a disk that may be full, in a process that may be killed at any write."""

from collections.abc import Sequence
from typing import Any

from segue.core.runs.types import AnyDecision, AnyFact, Run, StartLeg
from segue.errors import StateError
from segue.runs.store.port import Entry
from segue.testing.simulation.faults import Fault


class Killed(BaseException):
    """The process was killed here; nothing after this happens in it."""


class DriversStore:
    """The store as one segue process sees it. Everything not defined here is the real store's."""

    def __init__(self, store: Any, armed: set[Fault], decided: set[tuple[str, int]]) -> None:
        self._store, self._armed, self.decided = store, armed, decided
        self.is_full = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(
        self,
        run_after: Run,
        fact: AnyFact,
        *,
        at: float,
        draw: float | None = None,
        decisions: Sequence[AnyDecision] = (),
        epoch: int,
        taken: int = 0,
    ) -> Entry:
        """Like the store's `append`. Raises StateError if the disk is full, and Killed, before the
        write or after it, if a kill is due."""
        if self.is_full:
            raise StateError("the disk is full")
        is_killed = Fault.KILL_AT_WRITE in self._armed and bool(decisions)
        if is_killed:
            self._armed.discard(Fault.KILL_AT_WRITE)
            if int(at * 1000) % 2:
                raise Killed
        entry: Entry = self._store.append(
            run_after, fact, at=at, draw=draw, decisions=decisions, epoch=epoch, taken=taken
        )
        for decision in decisions:
            if isinstance(decision, StartLeg):
                self.decided.add((run_after.id, decision.leg))
        if is_killed:
            raise Killed
        return entry

    def keep_checkpoint(self, run_id: str, number: int, checkpoint: Any, at: float) -> None:
        """Like the store's `keep_checkpoint`. Raises StateError if the disk is full."""
        if self.is_full:
            raise StateError("the disk is full")
        self._store.keep_checkpoint(run_id, number, checkpoint, at)
