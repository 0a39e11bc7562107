"""Logs what happens before anything is done about it."""

from collections.abc import Callable, Iterable

import msgspec

from segue.core.runs import machine
from segue.core.runs.types import (
    AnyDecision,
    AnyFact,
    AskCheckpoint,
    Compose,
    EndLeg,
    Finish,
    LegEnded,
    LegNotStarted,
    Run,
    RunCheck,
    RunStep,
    StartLeg,
    WaitUntil,
)
from segue.core.secrets.redact import scrub
from segue.runs.store.coding import convert_any
from segue.runs.store.port import Entry, Lease, Store

Hear = Callable[[Run, AnyFact, RunStep, Entry], None]
"""The run before, the fact, the result, and the log entry."""


_LEG_OVER = ("legended", "unstartable", "limited")
"""The facts that answer the decision to start a leg."""


class Journal:
    """The log of one run, whose lease this process holds. `run` is the run after all facts so
    far; `hear` is called with every entry once it is written."""

    def __init__(
        self,
        store: Store,
        run: Run,
        lease: Lease,
        *,
        clock: Callable[[], float],
        draw: Callable[[], float],
    ) -> None:
        self.store, self.run, self.lease = store, run, lease
        self._clock, self._draw = clock, draw
        self.listeners: list[Hear] = []

    def add(self, fact: AnyFact, *, taken: int = 0) -> tuple[AnyDecision, ...]:
        """Logs a fact and returns the decisions about it, which are logged too. `taken`: the
        request that led to it."""
        fact = _clean(fact)
        at, draw = self._clock(), self._draw()
        step = machine.step(self.run, fact, at=at, draw=draw)
        entry = self.store.append(
            step.run,
            fact,
            at=at,
            draw=draw,
            decisions=step.decisions,
            epoch=self.lease.epoch,
            taken=taken,
        )
        before, self.run = self.run, step.run
        for hear in self.listeners:
            hear(before, fact, step, entry)
        return step.decisions

    def unfinished(self) -> list[AnyDecision]:
        """The decisions that may not have been carried out: everything about the newest leg, and
        what no later fact answers. Doing them again is harmless."""
        found: list[AnyDecision] = []
        for entry in self.store.log(self.run.id):
            # The answer to a step settles it.
            found = [each for each in found if not _answers(entry, each)]
            found += decisions_of(entry.decisions)
        return [each for each in found if getattr(each, "leg", self.run.leg) == self.run.leg]


def _clean(fact: AnyFact) -> AnyFact:
    """The fact without secrets in its quotes: before anything is derived from it, so that the
    same log leads to the same run."""
    if isinstance(fact, LegEnded | LegNotStarted):
        return msgspec.convert(scrub(msgspec.to_builtins(fact)), type(fact))
    return fact


def _answers(entry: Entry, decision: AnyDecision) -> bool:
    kind = entry.kind
    match decision:
        case Compose():
            return kind == "composed"
        case RunCheck():
            return kind == "checked"
        case StartLeg() | AskCheckpoint() | EndLeg():
            # Its own end: a repeated fact about an older leg answers nothing.
            return kind in _LEG_OVER and entry.data.get("leg") == decision.leg
        case WaitUntil() | Finish():
            return True  # these are states; there is nothing to do


def decisions_of(plain: Iterable[dict[str, object]]) -> list[AnyDecision]:
    """The decisions in the log."""
    return [convert_any(each, AnyDecision) for each in plain]
