"""What test_machine_rules and other tests share."""

import random
from collections.abc import Callable
from typing import Any, get_args

from msgspec.structs import replace

from segue.core.policy import Policy
from segue.core.runs.types import (
    Abilities,
    AnyFact,
    Arrived,
    Boundary,
    CancelAsked,
    Checked,
    CheckpointComposed,
    CheckpointReceived,
    ContextMeasured,
    Created,
    Elapsed,
    Fact,
    HungUp,
    InterruptRequested,
    LegEnded,
    LegNotStarted,
    LegStarted,
    Limited,
    Looped,
    Member,
    Origin,
    Replied,
    Resumed,
    Run,
    RunState,
    RunStep,
    SessionNamed,
    SessionReminded,
    Timer,
)
from segue.core.sessions.reading import Reading
from segue.core.stops.reasons import StopReason
from support.runs.stepping import AT, Led, new_run, stop

FACTS: tuple[type[Fact], ...] = get_args(AnyFact)


TIMERS: tuple[Timer, ...] = ("wait", "stall", "active", "wall", "checkpoint", "finish")


POLICIES = (
    Policy(),
    Policy(idle_legs=100, same_failures=100, max_wall_s=10_000, max_active_s=500),
    Policy(max_legs=6, overload_tries=1, max_limited_s=300, same_failures=2),
    Policy(resume_user_exits=True, max_tokens=500, min_confidence=0.0),
)


ABILITIES = (
    Abilities(talks=True),
    Abilities(),
    Abilities(resume_factor=1.3, enforced_tokens=150_000),
    Abilities(resumes=False),
)


class Dice:
    """Facts by chance: mostly of the newest leg, and mostly such as move a run on."""

    def __init__(self, chance: random.Random) -> None:
        self.of = chance

    def maybe(self, share: float = 0.5) -> bool:
        return self.of.random() < share

    def leg(self, run: Run) -> int:
        return run.leg if self.maybe(0.95) else self.of.randrange(0, 9)

    def stop(self) -> Any:
        retry = self.of.choice((None, None, AT - 100, AT + 50, AT + 5_000, AT + 9e6))
        sure = 0.99 if self.maybe(0.8) else 0.3
        reason = self.of.choice([StopReason.COMPLETED, *StopReason])
        return stop(reason, confidence=sure, retry_at=retry)

    def fact(self, run: Run) -> AnyFact:
        leg = self.leg(run)
        make: dict[type[Fact], Callable[[], AnyFact]] = {
            Created: Created,
            LegStarted: lambda: LegStarted(leg=leg, session_id=run.session_id or f"s{leg}"),
            SessionNamed: lambda: SessionNamed(leg=leg, session_id=run.session_id or f"s{leg}"),
            LegNotStarted: lambda: LegNotStarted(leg=leg, what="?"),
            Limited: lambda: Limited(
                leg=leg,
                until=self.of.choice((AT, AT + 700, AT + 9_000)),
                by="run-2",
                follows=self.maybe(0.3),
                limits=self.limits(run),
            ),
            Replied: lambda: Replied(leg=leg, acted=self.maybe()),
            ContextMeasured: lambda: ContextMeasured(
                leg=leg, reading=Reading(input_tokens=self.of.choice((0, 165_000, 180_000)))
            ),
            Boundary: lambda: Boundary(leg=leg),
            CheckpointReceived: lambda: CheckpointReceived(leg=leg, number=run.checkpoint + 1),
            CheckpointComposed: lambda: CheckpointComposed(
                number=run.checkpoint + 1 if self.maybe() else 0, has_summary=self.maybe()
            ),
            LegEnded: lambda: LegEnded(
                leg=leg,
                stop=self.stop(),
                replied=self.maybe(),
                progressed=self.maybe(),
                failure=self.of.choice(("", "a", "b")),
                tokens=10,
                active_s=20,
                limits=self.limits(run),
            ),
            Checked: lambda: Checked(ok=self.maybe(0.2), exit_code=1),
            Elapsed: lambda: Elapsed(timer=self.of.choice(TIMERS), leg=self.of.choice((0, leg))),
            Looped: lambda: Looped(
                leg=leg, calls=self.of.choice((1, 500)), made=self.of.choice((0, 9))
            ),
            SessionReminded: lambda: SessionReminded(leg=leg, compaction=1, chars=9),
            Arrived: lambda: Arrived(leg=leg, actions=20, files=1),
            InterruptRequested: InterruptRequested,
            CancelAsked: CancelAsked,
            HungUp: HungUp,
            Resumed: lambda: Resumed(
                fresh=self.maybe(0.3),
                strict=self.maybe(0.3),
                policy=self.of.choice((None, *POLICIES)),
                addition="use port 8081" if self.maybe(0.3) else "",
            ),
        }
        rare = {
            Created,
            Limited,
            LegNotStarted,
            Looped,
            SessionReminded,
            Arrived,
            InterruptRequested,
            CancelAsked,
            HungUp,
            Resumed,
        }
        kinds = [kind for kind in FACTS if kind not in rare or self.maybe(0.25)]
        if run.state.is_final and self.maybe(0.7):
            kinds = [Resumed]
        elif run.state is RunState.CHECKING:
            kinds = [Checked, Elapsed, InterruptRequested, CancelAsked, HungUp, Resumed]
        elif self.maybe(0.2):
            going_on: type[Fact] = LegEnded if run.is_live else CheckpointComposed
            likely: dict[RunState, list[type[Fact]]] = {
                RunState.WAITING: [Elapsed],
                RunState.STOPPING: [Resumed, LegEnded, LegNotStarted, Limited],
                RunState.CHECKPOINTING: [going_on],
            }
            kinds = likely.get(run.state, [Replied])
        return make[self.of.choice(kinds)]()

    def limits(self, run: Run) -> dict[str, float]:
        """What is known of the accounts of the list."""
        names = [member.agent for member in run.relay]
        return {name: AT + self.of.choice((50, 5_000)) for name in names if self.maybe(0.2)}

    def run(self) -> Run:
        policy, abilities = self.of.choice(POLICIES), self.of.choice(ABILITIES)
        relay: tuple[Member, ...] = ()
        if self.maybe(0.3):
            relay = tuple(
                Member(agent=name, policy=self.of.choice(POLICIES), abilities=abilities)
                for name in ("rehearsal", "b", "c")[: self.of.choice((2, 3))]
            )
        check = "make" if self.maybe() else ""
        origin = self.origin() if self.maybe(0.2) else None
        return new_run(policy, abilities=abilities, check=check, relay=relay, origin=origin)

    def origin(self) -> Origin:
        """A session that died without segue."""
        reason = self.of.choice((StopReason.RATE_LIMIT, StopReason.CRASH))
        return Origin(
            agent=self.of.choice(("rehearsal", "codex")),
            session_id="dead",
            path="/dead.jsonl",
            stop=replace(stop(reason), retry_at=AT + self.of.choice((-60.0, 900.0))),
            is_same=self.maybe(),
        )


def walk(dice: Dice, steps: int) -> Led:
    led = Led(dice.run())
    led.tell(Created())
    for _ in range(steps):
        led.tell(
            dice.fact(led.run), draw=dice.of.random(), after_s=dice.of.choice((0.1, 10.0, 400.0))
        )
    return led


def moves(led: Led) -> list[tuple[Run, AnyFact, RunStep]]:
    before = [led.first, *(step.run for step in led.steps)]
    return [(b, fact, s) for b, (fact, _, _), s in zip(before, led.log, led.steps, strict=False)]
