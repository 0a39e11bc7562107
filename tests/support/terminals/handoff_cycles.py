"""Leads the state machine of a handoff in a terminal through its steps."""

from typing import get_args

from segue.core.handoffs.machine import (
    AnyAct,
    AnyFact,
    Cleared,
    FileSeen,
    HandoffFact,
    HandoffStep,
    Planned,
    PromptSeen,
    Ready,
    TerminalHandoff,
    TimeUp,
    Typed,
    TypeText,
    What,
    due,
    step,
)
from segue.core.policy import Policy

AT = 1_794_787_200.0
POLICY = Policy()
FACTS: tuple[type[HandoffFact], ...] = get_args(AnyFact)
WHATS: tuple[What, ...] = get_args(What)
PENDING: dict[HandoffStep, What] = {
    HandoffStep.ASKING: "request",
    HandoffStep.CLEARING: "clear",
    HandoffStep.RESUMING: "resume",
}


def new(**given: object) -> TerminalHandoff:
    known = {
        "id": "h-1",
        "agent": "claude",
        "session_id": "s1",
        "project": "/p",
        "cwd": "/p",
        "file": "/p/.segue/handoffs/handoff-20261116T0000-h-1.md",
        "began_at": AT,
        "step_at": AT,
        "used_tokens": 170_000,
        "window_tokens": 200_000,
        "zone_path": ("warning", "critical", "handoff"),
        "owes": True,  # its turn was interrupted for the handoff
    }
    return TerminalHandoff(**{**known, **given})  # type: ignore[arg-type]


class Led:
    """A cycle and all that happened to it."""

    def __init__(self, cycle: TerminalHandoff | None = None, policy: Policy = POLICY) -> None:
        self.first = self.cycle = cycle or new()
        self.policy, self.now = policy, AT
        self.log: list[tuple[AnyFact, float]] = []
        self.steps: list[tuple[TerminalHandoff, list[AnyAct]]] = []

    def at(self, where: HandoffStep) -> bool:
        return self.cycle.step is where

    def tell(self, *facts: AnyFact, after_s: float = 1.0) -> list[AnyAct]:
        """Tells these, each so much later; what the last one led to."""
        acts: list[AnyAct] = []
        for fact in facts:
            self.now += after_s
            self.cycle, acts = step(self.cycle, fact, self.policy, self.now)
            self.log.append((fact, self.now))
            self.steps.append((self.cycle, acts))
        return acts

    def time_up(self) -> list[AnyAct]:
        when = due(self.cycle, self.policy)
        assert when is not None
        self.now = max(self.now, when)
        return self.tell(TimeUp(), after_s=0.0)

    def all(self, kind: type[AnyAct]) -> list[AnyAct]:
        return [act for _, acts in self.steps for act in acts if isinstance(act, kind)]

    def typed(self) -> list[str]:
        return [act.what for act in self.all(TypeText) if isinstance(act, TypeText)]


def asked() -> Led:
    led = Led()
    led.tell(Planned(), Ready(), Typed("request"))
    return led


def written(**seen: int) -> Led:
    led = asked()
    led.tell(PromptSeen("request"), FileSeen(ok=True, bytes=4_000))
    return led


def cleared() -> Led:
    led = written()
    led.tell(Ready(), Typed("clear"), Cleared("s2"))
    return led


def resumed() -> Led:
    led = cleared()
    led.tell(Ready(), Typed("resume"), PromptSeen("resume"))
    return led


def working(**given: object) -> Led:
    """In a turn of its own, which segue has not touched."""
    return Led(new(**{"owes": False, **given}))


def clearing() -> Led:
    led = written()
    led.tell(Ready())
    return led


def resuming() -> Led:
    led = cleared()
    led.tell(Ready())
    return led
