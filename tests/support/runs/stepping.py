"""Runs for tests of the machine: a run is led by facts, as a runner would, with a clock by hand."""

from typing import Any, TypeVar

from segue.core.policy import Policy
from segue.core.runs.machine import fold, step
from segue.core.runs.types import (
    Abilities,
    AnyDecision,
    AnyFact,
    Boundary,
    CheckpointComposed,
    CheckpointReceived,
    ContextMeasured,
    Created,
    Elapsed,
    EndLeg,
    LegEnded,
    LegStarted,
    Replied,
    Run,
    RunState,
    RunStep,
    StartLeg,
)
from segue.core.sessions.reading import Reading
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop

AT = 1_794_800_000.0
TALKS = Abilities(talks=True)
MUTE = Abilities(talks=False)
D = TypeVar("D")


def new_run(policy: Policy | None = None, **more: Any) -> Run:
    fields: dict[str, Any] = {"task": "Do it.", "agent": "rehearsal", "cwd": "/w", **more}
    return Run(id="run-1", created_at=AT, policy=policy or Policy(), **fields)


def stop(reason: StopReason, **more: Any) -> Stop:
    return Stop(**{"reason": reason, "confidence": 0.99, "resume": reason.resume, **more})


class Led:
    """A run, and all that was decided about it."""

    def __init__(self, run: Run | None = None, **more: Any) -> None:
        self.run = self.first = run or new_run(**more)
        self.at = AT
        self.log: list[tuple[AnyFact, float, float]] = []
        self.decisions: list[AnyDecision] = []
        self.steps: list[RunStep] = []

    def tell(self, *facts: AnyFact, draw: float = 0.5, after_s: float = 1.0) -> RunStep:
        """Facts, one after the other; the last one's step."""
        for fact in facts:
            self.at += after_s
            found = step(self.run, fact, at=self.at, draw=draw)
            self.log.append((fact, self.at, draw))
            self.run = found.run
            self.decisions += found.decisions
            self.steps.append(found)
        return self.steps[-1]

    # What a runner would tell.

    def begin(self) -> "Led":
        self.tell(Created())
        return self.up()

    def up(self, acted: bool = True) -> "Led":
        """The newest leg's process runs, has a session, and replies."""
        session = self.run.session_id or f"s{self.run.leg}"
        leg = self.run.leg
        self.tell(LegStarted(leg=leg, session_id=session), Replied(leg=leg, acted=acted))
        return self

    def reads(self, share: float, window: int = 200_000) -> RunStep:
        size = Reading(input_tokens=round(share * window), window_tokens=window)
        return self.tell(ContextMeasured(leg=self.run.leg, reading=size))

    def boundary(self) -> RunStep:
        return self.tell(Boundary(leg=self.run.leg))

    def ends(self, reason: StopReason, **more: Any) -> RunStep:
        """The newest leg is over; fields of the stop, or of the fact."""
        names = set(LegEnded.__struct_fields__) & set(more)
        of_fact = {name: more.pop(name) for name in names}
        return self.tell(LegEnded(leg=self.run.leg, stop=stop(reason, **more), **of_fact))

    def hands_over(self, number: int = 1, has_told: bool = True) -> "Led":
        """From checkpointing to a new session that has taken over."""
        if self.run.is_live:
            self.tell(CheckpointReceived(leg=self.run.leg, number=number))
            self.ends(StopReason.COMPLETED, progressed=True)
        self.tell(CheckpointComposed(number=number, has_summary=has_told))
        return self.up()

    def elapses(self, timer: Any, after_s: float = 1.0) -> RunStep:
        return self.tell(Elapsed(timer=timer, leg=self.run.leg), after_s=after_s)

    def waits(self) -> RunStep:
        """The wait is over."""
        assert self.run.wait is not None
        return self.tell(Elapsed(timer="wait"), after_s=self.run.wait.until - self.at)

    # What came of it.

    @property
    def state(self) -> RunState:
        return self.run.state

    def last(self, kind: type[D]) -> D:
        """The decision of the last step; there must be just this one."""
        (found,) = self.steps[-1].decisions
        assert isinstance(found, kind)
        return found

    def all(self, kind: type[D]) -> list[D]:
        return [decision for decision in self.decisions if isinstance(decision, kind)]

    def legs(self) -> list[tuple[int, str, str, str]]:
        """Every leg that was started: number, what for, what it is told, session."""
        return [(s.leg, s.purpose, s.prompt, s.session_id) for s in self.all(StartLeg)]

    def ended(self) -> list[tuple[int, str]]:
        return [(e.leg, e.how) for e in self.all(EndLeg)]

    def is_folded(self) -> bool:
        return fold(self.first, self.log) == self.run


def led(policy: Policy | None = None, abilities: Abilities = TALKS, **more: Any) -> Led:
    """A run whose first leg works."""
    return Led(new_run(policy, abilities=abilities, **more)).begin()


def exit_code(run: Led) -> int:
    assert run.run.outcome is not None
    return run.run.outcome.exit_code
