"""Carries out a run's decisions in a simulated world as `runs/executor` does, with models instead
of processes. Any request may come twice."""

from collections.abc import Callable
from typing import Any

from segue.core.runs.types import LegEnded, Run, StartLeg
from segue.core.stops.reasons import StopReason
from segue.errors import StateError
from segue.runs.clock import Clock
from segue.testing.simulation.accounts import SimulatedStaff
from segue.testing.simulation.clock import EPOCH
from segue.testing.simulation.faults import Fault
from segue.testing.simulation.headless.followers import SimulatedFollower, judged
from segue.testing.simulation.headless.legs import Exit, Leg
from segue.testing.simulation.stores import Killed


class SimulatedCheck:
    """The user's check, which passes or fails at random after a while."""

    def __init__(self, clock: Clock, takes_s: float, code: int) -> None:
        self._clock, self._until, self._code = clock, clock.awake() + takes_s, code

    @property
    def left_s(self) -> float:
        """How long it still takes."""
        return max(0.0, self._until - self._clock.awake())

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._code if self._clock.awake() >= self._until else None

    def finish(self, wait_s: float) -> None:
        """Does nothing: there is no process to end."""


class _Snapshots:
    """Stores nothing, because there is no tree."""

    def boundary(self, leg: int, now: float, awake: float) -> None:
        """Does nothing: the real one could save the tree here."""


class SimulatedExecutor:
    """The executor of one run. `session` is the world's headless session that the run belongs
    to."""

    def __init__(self, run: Run, session: Any, store: Any, hold: Callable[[str], None]) -> None:
        self.session, self.store, self.hold = session, store, hold
        self.snapshots, self.staff = _Snapshots(), SimulatedStaff(session)
        self._run_id = run.id

    def _may_be_killed(self) -> None:
        if Fault.KILL_AT_ACT in self.session.armed:
            self.session.armed.discard(Fault.KILL_AT_ACT)
            raise Killed

    def start(self, run: Run, decision: StartLeg, clock: Clock) -> SimulatedFollower:
        """Starts the leg, or finds the one that was started before."""
        leg = self.session.legs.get((run.id, decision.leg))
        if leg is None:
            if self.session.random.random() < 0.002:
                raise StateError("no such program")
            self._may_be_killed()
            if decision.session_id:
                self.hold(f"session:{run.agent}:{decision.session_id}")
            leg = self.session.begin_leg(run, decision, self.store)
            self._may_be_killed()
        self.hold(f"session:{run.agent}:{leg.conversation.id}")
        leg.wakes = self.session.wake
        return SimulatedFollower(leg, decision.leg, run, clock)  # type: ignore[arg-type]

    def is_begun(self, number: int) -> bool:
        """Whether this leg was started."""
        return (self._run_id, number) in self.session.legs

    def named(self, hand: str, session_id: str) -> None:
        """Does nothing: the world knows whose session it is."""

    def ask(
        self,
        run: Run,
        follower: SimulatedFollower,
        *,
        now: bool,
        why: StopReason | None = None,
    ) -> None:
        """Asks the agent for a checkpoint, or ends an agent that cannot be asked."""
        self.session.world.in_handoff(self.session.number)
        self._may_be_killed()
        if follower.leg.model.talks:
            follower.turn_is_over = False
            follower.leg.ask(now=now)
        else:
            follower.leg.stop("gentle")

    def end(self, follower: SimulatedFollower, how: str) -> None:
        """Ends the leg."""
        self._may_be_killed()
        follower.is_ending = True
        follower.leg.stop(how)

    def close(self, follower: SimulatedFollower) -> None:
        """Closes the leg's input."""
        if not follower.is_closed:
            follower.is_closed = True
            follower.leg.close()

    def ended(self, follower: SimulatedFollower) -> Exit | None:
        """How its process ended; None while it runs."""
        leg: Leg = follower.leg
        if leg.is_alive and leg.boot != leg.machine.boot:
            leg.end("lost")
        return leg.exit

    def judge(self, run: Run, follower: SimulatedFollower, ended: Exit, now: float) -> LegEnded:
        """Why the leg ended."""
        account = follower.leg.account
        return judged(run, follower, ended, lambda: EPOCH + account.limited_until)

    def compose(self, run: Run, now: float) -> tuple[int, bool]:
        """Stores a checkpoint; returns its number, and whether the agent's own words are in it."""
        self._may_be_killed()
        if Fault.NO_CHECKPOINT in self.session.armed:
            self.session.armed.discard(Fault.NO_CHECKPOINT)
            raise OSError("no space left on the disk")
        checkpoint = {"done": self.session.project.last, "told": run.has_handed_over}
        self.store.keep_checkpoint(run.id, run.leg, checkpoint, now)
        return run.leg, run.has_handed_over

    def check(self, run: Run, clock: Clock) -> SimulatedCheck:
        """Starts the user's check."""
        random = self.session.random
        return SimulatedCheck(clock, 5.0 + 60.0 * random.random(), int(random.random() < 0.3))

    def store_answer(self, follower: SimulatedFollower) -> None:
        """Does nothing: `compose` needs no text."""

    def recall(self, run: Run, follower: SimulatedFollower, *, is_free: bool) -> None:
        """Does nothing: a simulated compaction leaves nothing out."""

    def say_recalled(self, follower: SimulatedFollower, recall: Any) -> None:
        """Does nothing, because nothing is recalled."""

    def leg_spend(self, follower: SimulatedFollower) -> tuple[int, float]:
        """The tokens and the cost of this leg so far."""
        spent = follower.leg.spent_tokens
        return spent, spent * 1e-6

    def files(self, follower: SimulatedFollower | None) -> list[int]:
        """No files: the world wakes the loop."""
        return []

    def drain(self) -> None:
        """Does nothing, because there are no files whose news could be discarded."""
