"""The loop of a run: looks, writes down, decides, acts; until the run is over.

Nothing lives only in this process. Whatever it is doing when it is killed, the log says what was
decided, the legs' folders say what was done, and the next process goes on from there.
"""

from collections.abc import Callable
from contextlib import suppress

from segue.core import timers
from segue.core.run import (
    AnyDecision,
    AnyFact,
    Ask,
    CancelAsked,
    Checked,
    Compose,
    Composed,
    Elapsed,
    EndLeg,
    Finish,
    Named,
    Run,
    RunCheck,
    Started,
    StartLeg,
    State,
    Timer,
    Told,
    Unstartable,
    WaitUntil,
)
from segue.core.timers import Activity
from segue.core.waits import remaining_s
from segue.errors import SegueError, StateError
from segue.io.notify import POLL_S
from segue.runner.check import Check
from segue.runner.clock import Clock
from segue.runner.crew import Crew
from segue.runner.follower import Follower
from segue.runner.journal import Journal
from segue.runner.signals import Signals
from segue.store.port import LeaseLost

_LOOK_S = 0.25  # how often the session file is looked at while an agent works
_CHECK_S = 5.0
_SPENT_S = 5.0
_IDLE_S = 1.0  # how often other processes' wishes are, while none does

Seen = Callable[[Run, Follower | None], None]


class Loop:
    """One run, in the foreground. `crew` knows the agent and the folders; `seen` is called after
    every look, for those who show it."""

    def __init__(
        self, journal: Journal, crew: Crew, *, clock: Clock, seen: Seen | None = None
    ) -> None:
        self.journal, self.crew, self.clock, self.seen = journal, crew, clock, seen
        self.follower: Follower | None = None
        self.check: Check | None = None
        self._signals: list[AnyFact] = []
        self._woken = Signals(self._signals)
        self._store_version = -1
        self._is_untracked = False
        self._spent_at = 0.0
        self.say: Callable[[str], None] = lambda line: None
        """What is no fact, and worth a line."""
        self._told = 0  # the leg whose answer is written down
        self._wait_from: tuple[float, float] | None = None  # until, and when it was first seen

    @property
    def run(self) -> Run:
        """As its facts made it."""
        return self.journal.run

    def go(self, first: AnyFact | None = None) -> Run:
        """To the end. `first` is what begins it, or begins it anew. Raises StateError if it cannot
        go on writing down what happens: the agent works on then, and another loop can take it up.
        """
        with self._woken:
            try:
                self._go(first)
            except LeaseLost:
                raise  # another segue has it
            except (StateError, OSError) as fault:
                how = f"segue resume {self.run.id}"
                raise StateError(
                    f"{fault}; what runs goes on alone, take it up with: {how}"
                ) from fault
        if self.check is not None:  # the user did not wait for it
            self.check.finish(self.run.policy.grace_s + _CHECK_S)
        return self.run

    def _go(self, first: AnyFact | None) -> None:
        for decision in self.journal.unfinished():
            self._do(decision)
        if first is not None:
            # Whatever was asked in an earlier life is forgotten.
            asks = self.journal.store.asks(self.run.id)
            for decision in self.journal.add(first, taken=asks[-1].number if asks else 0):
                self._do(decision)
        while not self.run.state.is_final:
            self._turn()

    def _turn(self) -> None:
        now = self.clock.now()
        self.crew.drain()
        self._take_asks()
        facts = self._take_signals()
        if self.follower is not None:
            facts += self.follower.look(self.run, now)
        for fact in facts:
            self._add(fact)
        self._answered()
        self._disobeyed()
        self._close_input()
        self._leg_ended()
        self._checked()
        for timer in [*self._due(), *self._overspent()]:
            self._add(Elapsed(timer=timer, leg=self.run.leg))
        if self.seen is not None:
            self.seen(self.run, self.follower)
        if not self.run.state.is_final:
            self._sleep()

    def _add(self, fact: AnyFact) -> None:
        if isinstance(fact, Named):
            with suppress(SegueError):  # somebody else has it: the agent's own lock will tell
                self.crew.named(fact.session_id)
        for decision in self.journal.add(fact):
            self._do(decision)

    # What is seen

    def _take_signals(self) -> list[AnyFact]:
        found = list(self._signals)
        del self._signals[: len(found)]
        return found

    def _take_asks(self) -> None:
        """What other processes want: `segue cancel`."""
        if (version := self.journal.store.version()) == self._store_version:
            return
        self._store_version = version
        asks = self.journal.store.asks(self.run.id)
        if not any(ask.what == "cancel" for ask in asks):
            return
        for decision in self.journal.add(CancelAsked(), taken=asks[-1].number):
            self._do(decision)

    def _answered(self) -> None:
        follower = self.follower
        if follower is None or follower.answer is None or not follower.answer.is_whole:
            return
        if self._told == follower.number or not self.run.is_live:
            return
        self._told = follower.number
        self.crew.keep_told(follower)
        # Whoever stops it now may go on in a week: what is known is written down today.
        stops = self.run.state is State.STOPPING
        number = self.crew.compose(self.run, self.clock.now())[0] if stops else self.run.leg
        self._add(Told(leg=self.run.leg, number=number))

    def _disobeyed(self) -> None:
        """Asked for a checkpoint, it works on: it is not waited for."""
        follower = self.follower
        if follower is not None and follower.works_on and self.run.is_live:
            follower.works_on = False
            self._add(Elapsed(timer="checkpoint", leg=follower.number))

    def _close_input(self) -> None:
        """A turn is over: with no more input the agent ends, once its background work is done."""
        follower = self.follower
        if follower is not None and follower.turn_is_over:
            self.crew.close(follower)

    def _leg_ended(self) -> None:
        follower = self.follower
        if follower is None or not self.run.is_live:
            return
        ended = self.crew.ended(follower)
        if ended is None:
            return
        now = self.clock.now()
        for fact in follower.finish(self.run, now):  # what it said last
            self._add(fact)
        self._answered_at_last(follower)
        self._say_untracked(follower)
        fact = self.crew.judge(self.run, follower, ended, now)
        self.follower = None
        self._add(fact)

    def _say_untracked(self, follower: Follower) -> None:
        """Once: without sizes there is no handoff before the window is full."""
        if follower.has_replied and self.run.reading is None and not self._is_untracked:
            self._is_untracked = True
            self.say("no usage was told: the context is not tracked, the run goes on")

    def _answered_at_last(self, follower: Follower) -> None:
        """It ended: what it said since it was asked is all that there will be."""
        if follower.answer is not None and follower.answer.text:
            follower.answer.is_whole = True
            self._answered()

    def _checked(self) -> None:
        if self.check is not None and (code := self.check.poll()) is not None:
            self.check = None
            self._add(Checked(ok=code == 0, exit_code=code))

    def _due(self) -> list[Timer]:
        now = self.clock.now()
        found: list[Timer] = []
        for deadline in timers.deadlines(self.run, self._activity()):
            if deadline.timer == "wait":
                if self._left_s(now) <= 0:
                    found.append(deadline.timer)
            elif deadline.at <= now:
                found.append(deadline.timer)
        return found

    def _overspent(self) -> list[Timer]:
        """Tokens and money, where the user set a limit: looked at now and then."""
        policy, follower = self.run.policy, self.follower
        if (policy.most_tokens, policy.most_cost_usd) == (None, None):
            return []
        if follower is None or not self.run.is_live or self.run.ended_how:
            return []
        if self.clock.awake() - self._spent_at < _SPENT_S:
            return []
        self._spent_at = self.clock.awake()
        tokens, cost_usd = self.crew.spent(follower)
        if policy.most_tokens is not None and self.run.tokens + tokens >= policy.most_tokens:
            return ["tokens"]
        too_dear = policy.most_cost_usd
        return ["cost"] if too_dear is not None and self.run.cost_usd + cost_usd >= too_dear else []

    def _activity(self) -> Activity:
        if self.follower is None:
            return Activity(last_output_at=self.clock.now())
        return self.follower.activity(self.clock.now())

    def _left_s(self, now: float) -> float:
        """Of the wait: a relative one by the clock that nobody sets, as long as this process saw it
        begin."""
        wait = self.run.wait
        if wait is None:
            return 0.0
        elapsed = self.clock.elapsed()
        if self._wait_from is None or self._wait_from[0] != wait.until:
            self._wait_from = (wait.until, elapsed - max(0.0, now - wait.since))
        return remaining_s(wait, now, elapsed - self._wait_from[1])

    def _sleep(self) -> None:
        now = self.clock.now()
        limit = _LOOK_S if self.follower is not None or self.check is not None else _IDLE_S
        for deadline in timers.deadlines(self.run, self._activity()):
            left = self._left_s(now) if deadline.timer == "wait" else deadline.at - now
            limit = min(limit, max(0.0, left))
        if self.follower is not None and self.follower.has_more:
            limit = 0.0
        files = self.crew.files(self.follower)
        if self.follower is not None and not files:
            limit = min(limit, POLL_S)  # nothing tells that there is something to see
        self.clock.wait([*self._woken.files[:1], *files], limit)
        self._woken.drain()

    # What is done. Each of these may have been done before, by a process that was killed.

    def _do(self, decision: AnyDecision) -> None:
        match decision:
            case StartLeg():
                self._start(decision)
            case Ask():
                if self.follower is not None and self.follower.number == decision.leg:
                    self.crew.ask(self.follower, now=decision.now)
            case EndLeg():
                if self.follower is not None and self.follower.number == decision.leg:
                    self.crew.end(self.follower, decision.how)
            case Compose():
                self._compose()
            case RunCheck():
                self._check()
            case WaitUntil() | Finish():
                pass  # the state says it; timers do the rest

    def _compose(self) -> None:
        number, has_told = 0, False
        try:
            number, has_told = self.crew.compose(self.run, self.clock.now())
        except (SegueError, OSError, ValueError) as fault:
            self.say(f"no checkpoint could be written: {fault}")
        self._add(Composed(number=number, has_told=has_told))

    def _check(self) -> None:
        try:
            self.check = self.crew.check(self.run)
        except (SegueError, OSError) as fault:
            self.say(f"the check cannot be run: {fault}")
            self._add(Checked(ok=False, exit_code=127))

    def _start(self, decision: StartLeg) -> None:
        if decision.leg != self.run.leg or not self.run.is_live:
            return
        try:
            self.follower = self.crew.start(self.run, decision, self.clock)
        except (SegueError, OSError) as fault:
            self._add(Unstartable(leg=decision.leg, what=str(fault)))
            return
        self._add(Started(leg=decision.leg, session_id=self.follower.session_id))
