"""The loop of a run: observes, logs, decides and acts until the run has ended.

Nothing lives only in this process. Whatever it is doing when it is killed, the log has every
decision and the legs' folders show what was done, so the next process can continue from there.

All in one file: the order of one turn is what it is about.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from segue.core.runs import timers
from segue.core.runs.timers import Activity, Deadline
from segue.core.runs.types import (
    AnyDecision,
    AnyFact,
    AskCheckpoint,
    CancelAsked,
    Checked,
    CheckpointComposed,
    CheckpointReceived,
    Compose,
    Elapsed,
    EndLeg,
    Finish,
    LegNotStarted,
    LegStarted,
    Limited,
    Replied,
    Run,
    RunCheck,
    RunState,
    SessionNamed,
    SessionReminded,
    StartLeg,
    Timer,
    WaitUntil,
)
from segue.core.runs.waits import remaining_s
from segue.errors import SegueError, StateError, in_words
from segue.runs.clock import Clock
from segue.runs.executor import Executor
from segue.runs.interrupts.signals import Signals, combined
from segue.runs.interrupts.watchdog import How
from segue.runs.journal import Journal
from segue.runs.legs.check import CheckCommand
from segue.runs.legs.follower import LegFollower
from segue.runs.store import open_store
from segue.runs.store.port import LeaseLost
from segue.system.files.changes import POLL_S
from segue.system.process import shutdown

_LOOK_S = 0.25  # how often the session file is checked while an agent works
_CHECK_S = 5.0
_SPENT_S = 5.0
_MIN_S = 0.02
_IN_VAIN_S = 5.0
_ENDED_BY_USER = 130
_FORCE_S = 3.0  # for final messages and actions when segue is ended by force
_IDLE_S = 1.0  # how often requests of other processes are checked, while there are none

_AT_WORK = (RunState.STARTING, RunState.WORKING, RunState.RESUMING, RunState.HANDING_OVER)

OnLook = Callable[[Run, LegFollower | None], None]


class Loop:
    """One run, in the foreground. `executor` knows the agent and the folders;
    `on_look` is called after every look, for displays."""

    def __init__(
        self, journal: Journal, executor: Executor, *, clock: Clock, on_look: OnLook | None = None
    ) -> None:
        self.journal, self.executor, self.clock, self.on_look = journal, executor, clock, on_look
        self.follower: LegFollower | None = None
        self.check: CheckCommand | None = None
        self._signals: list[AnyFact] = []
        self._woken = Signals(self._signals, clock, self._end_by_force)
        self._store_version = -1
        self._is_untracked = False
        self._spent_at = 0.0
        self.park_s: float | None = None
        """A run that must wait longer than this is left to whichever process resumes it in time."""
        self.guard: Callable[[], None] = lambda: None
        """Called before a process is started; raises StateError if this one may start none now."""
        self.say: Callable[[str], None] = lambda line: None
        """Messages for the user that are not facts."""
        executor.say = lambda line: self.say(line)
        self._answered_leg = 0  # the leg whose answer is stored
        self._wait_from: tuple[float, float] | None = None  # until when, and when it was first seen
        self._noted: dict[str, tuple[float, float]] = {}  # unix times, and times on the awake clock
        self._has_moved = False  # in this turn
        # timers that changed nothing: not to be tried again before this time
        self._in_vain: dict[Timer, float] = {}

    @property
    def run(self) -> Run:
        """The run as its facts made it."""
        return self.journal.run

    def go(self, first: AnyFact | None = None) -> Run:
        """Drives the run to its end, or until this process has to leave it (`run.interrupted`).
        `first` is the fact that starts or resumes it. Raises StateError if what happens can no
        longer be logged: the agent keeps working, and another loop can take the run up."""
        with self.clock.beating(), self._woken:
            try:
                self._go(first)
            except LeaseLost:
                raise  # another segue has it
            except (StateError, OSError) as fault:
                how = f"segue resume {self.run.id}"
                raise StateError(
                    f"{in_words(fault)}; the agent keeps running on its own; resume with: {how}"
                ) from fault
        if self.check is not None and not self.run.interrupted:  # the user did not wait for it
            self.check.finish(self.run.policy.grace_s + _CHECK_S)
        return self.run

    def _end_by_force(self, how: How) -> None:
        """Ends the process of a loop that does not react. What the loop would have done is done
        without it, as far as that takes no time."""
        doing = threading.Thread(target=self._leave, args=(how,), daemon=True)
        doing.start()
        doing.join(_FORCE_S)
        os._exit(_ENDED_BY_USER)

    def _leave(self, how: How) -> None:
        run, agent = self.run, "its agent is not running"
        with suppress(Exception):
            if (pid := self.executor.end_by_force(run.leg, is_hard=how == "Ctrl+C")) is not None:
                agent = f"its keeper is ending the agent (process {pid})"
        with suppress(Exception):
            message = f"segue: ended by {how}, because {run.id} did not respond; {agent}"
            os.write(2, f"\r{message}; to resume: segue resume {run.id}\n".encode())
        if how == "SIGHUP" or (how == "SIGTERM" and (self._woken.stays or shutdown.is_under_way())):
            return  # which is not a decision of the user's
        # The process that resumes it must know that the user ended it.
        with suppress(Exception), open_store() as another:
            another.ask(run.id, "cancel", self.clock.now())

    def _go(self, first: AnyFact | None) -> None:
        self._begin(first)
        while not self.run.state.is_final and not self._must_exit and not self._is_parked:
            self._turn()

    def _begin(self, first: AnyFact | None) -> None:
        for decision in self.journal.unfinished():
            self._do(decision)
        if first is not None:
            # Requests from before the resume are forgotten.
            asks = self.journal.store.asks(self.run.id)
            for decision in self.journal.add(first, taken=asks[-1].number if asks else 0):
                self._do(decision)
        self._follow()  # it may have been left to others because another one went first

    def _turn(self) -> None:
        self._woken.turned()
        self._has_moved = False
        now = self.clock.now()
        self.executor.drain()
        self._take_asks()
        facts = self._take_signals()
        if self.follower is not None:
            facts += self.follower.look(self.run, now)
        for fact in facts:
            self._add(fact)
        self._at_boundary()
        self._answered()
        self._disobeyed()
        self._recall()
        self._follow()
        self._close_input()
        self._overflowed()
        self._leg_ended()
        if self._must_exit:
            return
        self._checked()
        for timer in [*self._due(), *self._overspent()]:
            before = self.run
            self._add(Elapsed(timer=timer, leg=self.run.leg))
            if self.run == before:
                self._in_vain[timer] = self.clock.awake() + _IN_VAIN_S
        if self.on_look is not None:
            self.on_look(self.run, self.follower)
        if not self.run.state.is_final:
            self._sleep()

    def _add(self, fact: AnyFact) -> None:
        if isinstance(fact, SessionNamed):
            with suppress(SegueError):  # another process has it: the agent's own lock will show it
                self.executor.named(self.executor.staff.hand(self.run.agent), fact.session_id)
        if isinstance(fact, Replied) and not self.run.leg_replied:
            self.executor.staff.replied(self.run, self.clock.now())
        self._has_moved = True
        before = self.run.quantile
        decisions = self.journal.add(fact)
        self._say_adapted(before)
        for decision in decisions:
            self._do(decision)

    def _say_adapted(self, before: float | None) -> None:
        """With `adaptive`: a handoff has changed how far ahead segue looks."""
        after = self.run.quantile
        if after is not None and after != before:
            was = f"{before:.1%}" if before is not None else "the usual 90%"
            self.say(f"adaptive: now looking ahead for {after:.1%} of turns ({was} before)")

    @property
    def _must_exit(self) -> bool:
        """Whether segue must exit, and its agent is gone: the next process continues."""
        return self.run.interrupted != "" and not self.run.is_live

    @property
    def _is_parked(self) -> bool:
        """Whether the wait is so long that no process needs to stay. The wait is logged."""
        if self.park_s is None or self.run.state is not RunState.WAITING:
            return False
        return self._left_s(self.clock.now()) > self.park_s

    # What is observed

    def _take_signals(self) -> list[AnyFact]:
        found = list(self._signals)
        del self._signals[: len(found)]
        return combined(found)

    def _take_asks(self) -> None:
        """Handles requests of other processes: `segue cancel`."""
        if (version := self.journal.store.version()) == self._store_version:
            return
        self._store_version = version
        asks = self.journal.store.asks(self.run.id)
        if not any(ask.what == "cancel" for ask in asks):
            return
        for decision in self.journal.add(CancelAsked(), taken=asks[-1].number):
            self._do(decision)

    def _at_boundary(self) -> None:
        """Uses what the look has just reported: a reading and its boundary often come together."""
        if self.follower is None or not self.run.is_live:
            return
        if self.follower.is_between_tools:
            self.executor.snapshots.boundary(self.run.leg, self.clock.now(), self.clock.awake())
        if (boundary := self.follower.boundary(self.run)) is not None:
            self._add(boundary)

    def _answered(self) -> None:
        follower = self.follower
        if follower is None or follower.answer is None or not follower.answer.is_whole:
            return
        if self._answered_leg == follower.number or not self.run.is_live:
            return
        self._answered_leg = follower.number
        self.executor.store_answer(follower)
        # If it is stopped now, it may continue only in a week, so what is known is stored today.
        stops = self.run.state is RunState.STOPPING
        number = self._write_checkpoint()[0] if stops else self.run.leg
        self._add(CheckpointReceived(leg=self.run.leg, number=number))

    def _disobeyed(self) -> None:
        """The session keeps working although it was asked for a checkpoint: segue stops waiting for
        the answer."""
        follower = self.follower
        if follower is not None and follower.works_on and self.run.is_live:
            follower.works_on = False
            self._add(Elapsed(timer="checkpoint", leg=follower.number, early="works_on"))

    def _recall(self) -> None:
        """The session's own compaction left out something that it will need: segue tells it."""
        follower, run = self.follower, self.run
        if follower is None or not run.is_live:
            return
        is_free = not run.asked and not run.ended_how and run.state in _AT_WORK
        recall = self.executor.recall(run, follower, is_free=is_free)
        if recall is None:
            return
        if recall.known:
            number, chars = recall.compaction, len(recall.known)
            self._add(SessionReminded(leg=run.leg, compaction=number, chars=chars))
        if run.abilities.talks:
            self.executor.say_recalled(follower, recall)

    def _close_input(self) -> None:
        """A turn has ended: without more input the agent exits once its background work is done."""
        follower = self.follower
        if follower is not None and follower.turn_is_over:
            self.executor.close(follower)

    def _leg_ended(self) -> None:
        follower = self.follower
        if follower is None or not self.run.is_live:
            return
        ended = self.executor.ended(follower)
        if ended is None:
            return
        now = self.clock.now()
        for fact in follower.finish(self.run, now):  # its last message
            self._add(fact)
        self._answered_at_last(follower)
        self._say_untracked(follower)
        fact = self.executor.judge(self.run, follower, ended, now)
        self._record_limits(follower)
        self.executor.staff.stopped(self.run, fact.stop, now)  # known to all before it is acted on
        self.follower = None
        self._add(fact)

    def _record_limits(self, follower: LegFollower) -> None:
        """Records what its stream says about the account's limits."""
        if follower.limits:
            limits, follower.limits = follower.limits, {}
            self.executor.staff.record_limits(self.run, limits, self.clock.now())

    def _follow(self) -> None:
        """Waits for another run or session that goes first after a limit. Once that one got a
        reply, this one follows."""
        wait, run = self.run.wait, self.run
        if run.state is not RunState.WAITING or wait is None or not wait.follows:
            return
        answer = self.executor.staff.may_start(run, self.clock.now(), anew=False)
        if answer.until is None:
            self._add(Elapsed(timer="wait"))

    def _say_untracked(self, follower: LegFollower) -> None:
        """Says once that the size of the session is unknown, so that it cannot be handed over
        before its window is full."""
        if follower.has_replied and self.run.reading is None and not self._is_untracked:
            self._is_untracked = True
            self.say("the agent reports no usage: its context is not tracked, the run continues")

    def _answered_at_last(self, follower: LegFollower) -> None:
        """The leg has ended: what it said since it was asked is the whole answer."""
        if follower.answer is not None and follower.answer.text:
            follower.answer.is_whole = True
            self._answered()

    def _checked(self) -> None:
        if self.check is not None and (code := self.check.poll()) is not None:
            self.check = None
            self._add(Checked(ok=code == 0, exit_code=code))

    def _due(self) -> list[Timer]:
        return [deadline.timer for deadline, left_s in self._deadlines() if left_s <= 0]

    def _deadlines(self) -> list[tuple[Deadline, float]]:
        """All running timers, with the time that is left."""
        now, awake = self.clock.now(), self.clock.awake()
        return [
            (each, self._left_s(now) if each.timer == "wait" else each.at - now)
            for each in timers.deadlines(self.run, self._activity())
            if self._in_vain.get(each.timer, awake) <= awake
        ]

    def _overspent(self) -> list[Timer]:
        """Which of the user's limits on tokens and money are reached. Computed only from time to
        time."""
        policy, follower = self.run.policy, self.follower
        if (policy.max_tokens, policy.max_cost_usd) == (None, None):
            return []
        if follower is None or not self.run.is_live or self.run.ended_how:
            return []
        if self.clock.awake() - self._spent_at < _SPENT_S:
            return []
        self._spent_at = self.clock.awake()
        tokens, cost_usd = self.executor.leg_spend(follower)
        if policy.max_tokens is not None and self.run.tokens + tokens >= policy.max_tokens:
            return ["tokens"]
        too_dear = policy.max_cost_usd
        return ["cost"] if too_dear is not None and self.run.cost_usd + cost_usd >= too_dear else []

    def _overflowed(self) -> None:
        """Handles an agent that prints forever. Checked before its end is judged: its keeper may
        have ended it while no segue was running."""
        most, follower = self.run.policy.max_output_bytes, self.follower
        if most is None or follower is None or not self.run.is_live:
            return
        if not follower.is_flooded and follower.output_bytes() > most:
            follower.is_flooded = True
            self._add(Elapsed(timer="output", leg=self.run.leg))

    def _activity(self) -> Activity:
        now = self.clock.now()
        activity = Activity(last_output_at=now)
        if self.follower is not None:
            activity = self.follower.activity(now)
        asked_at, pressed_at = self.run.asked_at, self.run.pressed_at
        if asked_at is None and pressed_at is None:
            return activity  # as almost always
        return replace(
            activity,
            asked_at=self._as_awake("asked", asked_at, now),
            pressed_at=self._as_awake("pressed", pressed_at, now),
        )

    def _as_awake(self, what: str, at: float | None, now: float) -> float | None:
        """The time `at`, later by however long the machine slept or this process was stopped
        since."""
        if at is None:
            return None
        awake = self.clock.awake()
        if self._noted.get(what, (None, 0.0))[0] != at:
            self._noted[what] = (at, awake - max(0.0, now - at))
        return now - (awake - self._noted[what][1])

    def _left_s(self, now: float) -> float:
        """How long the wait still takes. A relative wait that this process saw begin is measured on
        the clock that nobody sets."""
        wait = self.run.wait
        if wait is None:
            return 0.0
        elapsed = self.clock.elapsed()
        if self._wait_from is None or self._wait_from[0] != wait.until:
            self._wait_from = (wait.until, elapsed - max(0.0, now - wait.since))
        return remaining_s(wait, now, elapsed - self._wait_from[1])

    def _sleep(self) -> None:
        limit = _LOOK_S if self.follower is not None or self.check is not None else _IDLE_S
        for _, left_s in self._deadlines():
            limit = min(limit, left_s)
        # Whatever is due or readable, a turn without effect is never followed by another at once.
        follower = self.follower
        limit = max(limit, 0.0 if self._has_moved else _MIN_S)
        if follower is not None and follower.has_more and follower.has_moved:
            limit = 0.0
        files = self.executor.files(self.follower)
        if self.follower is not None and not files:
            limit = min(limit, POLL_S)  # nothing signals when there is something to see
        self.clock.wait([*self._woken.files[:1], *files], limit)
        self._woken.drain()

    # What is done. Each of these may have been done before, by a process that was killed.

    def _do(self, decision: AnyDecision) -> None:
        match decision:
            case StartLeg():
                self._start(decision)
            case AskCheckpoint():
                if self.follower is not None and self.follower.number == decision.leg:
                    self.executor.ask(self.run, self.follower, now=decision.now, why=decision.why)
            case EndLeg():
                if self.follower is not None and self.follower.number == decision.leg:
                    self.executor.end(self.follower, decision.how)
            case Compose():
                self._compose()
            case RunCheck():
                self._check()
            case WaitUntil() | Finish():
                pass  # the state says it; timers do the rest

    def _compose(self) -> None:
        number, has_told = self._write_checkpoint()
        limits = self.executor.staff.limits(self.run, self.clock.now())
        self._add(CheckpointComposed(number=number, has_summary=has_told, limits=limits))

    def _write_checkpoint(self) -> tuple[int, bool]:
        """Its number, and whether the agent's words are in it; 0 if it could not be written. The
        decision proceeds without it: an agent that the user ended must not be left running."""
        try:
            return self.executor.compose(self.run, self.clock.now())
        except (SegueError, OSError, ValueError) as fault:
            self.say(f"no checkpoint could be written: {in_words(fault)}")
            return 0, False

    def _check(self) -> None:
        self.guard()
        try:
            self.check = self.executor.check(self.run, self.clock)
        except (SegueError, OSError) as fault:
            self._add(Checked(ok=False, exit_code=127, fault=in_words(fault)))

    def _start(self, decision: StartLeg) -> None:
        if decision.leg != self.run.leg or not self.run.is_live:
            return
        if not self.executor.is_begun(decision.leg) and self._is_limited(decision):
            return
        self.guard()
        try:
            self.follower = self.executor.start(self.run, decision, self.clock)
        except (SegueError, OSError) as fault:
            self._add(LegNotStarted(leg=decision.leg, what=in_words(fault)))
            return
        self._add(LegStarted(leg=decision.leg, session_id=self.follower.session_id))

    def _is_limited(self, decision: StartLeg) -> bool:
        """Whether nobody of this account may try now: one account, one limit."""
        run, now = self.run, self.clock.now()
        answer = self.executor.staff.may_start(run, now)
        if answer.until is None:
            return False
        limits = self.executor.staff.limits(run, now)
        fact = Limited(
            leg=decision.leg, until=answer.until, by=answer.by, follows=answer.follows,
            limits=limits,
        )  # fmt: skip
        self._add(fact)
        return True
