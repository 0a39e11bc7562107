"""What must hold in every world, whatever happens. It is checked at every entry of a run's log, at
every act and at every step of an agent.

The rules are stated here independently instead of by calling the code under test, because a check
that asks the code whether the code is right finds nothing.

All in one file, because the rules are easier to check as one list.
"""

from itertools import pairwise
from math import ceil
from typing import Any

from segue.core.runs import machine
from segue.core.runs.types import (
    AnyFact,
    CancelAsked,
    Checked,
    CheckpointReceived,
    ContextMeasured,
    Created,
    Elapsed,
    InterruptRequested,
    LegEnded,
    LegNotStarted,
    Limited,
    Resumed,
    Run,
    RunState,
    RunStep,
    StartLeg,
    Wait,
    WaitUntil,
)
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.runs.store.port import Entry
from segue.runs.store.projection import fact_of, first_run
from segue.testing.simulation.providers import Account

_PASSING = (StopReason.RATE_LIMIT, StopReason.OVERLOADED)
_OVER = (StopReason.AUTH, StopReason.REFUSAL)  # nothing follows these without the user
_SLACK_S = 5.0
_FRESH_S = 3_500.0  # for this long after a reset, one still goes first
_FIRST_S = 295.0  # for this long, the others wait for its reply


class Broken(BaseException):
    """An invariant does not hold. Not an `Exception`, because the daemon catches those and
    continues."""

    def __init__(self, rule: str, what: str) -> None:
        self.rule, self.what = rule, what
        super().__init__(f"{rule}: {what}")


def must(holds: bool, rule: str, what: str) -> None:
    """Raises Broken unless `holds`."""
    if not holds:
        raise Broken(rule, what)


def goes(account: Account, who: str, now: float) -> None:
    """segue makes a run or session (`who`) of this account send a request. Raises Broken if the
    account's known limit has not reset yet, or if another one went first and has no reply yet."""
    what = f"{who} goes on {account.known_until - now:.0f} s before the reset"
    must(now >= account.known_until, "no request to a limited account", what)
    if not account.known_until or now > account.known_until + _FRESH_S:
        return
    is_second = account.first not in ("", who) and now < account.first_at + _FIRST_S
    what = f"{who} does not wait for the first reply of {account.first}"
    must(not is_second, "one goes first after a reset", what)
    account.first, account.first_at = who, now


class RunWatch:
    """Watches the runs of one headless session."""

    def __init__(self, session: Any) -> None:
        self.session, self.world = session, session.world
        self._reset("")

    def _reset(self, run_id: str) -> None:
        self.run_id = run_id
        self.drivers: set[int] = set()
        self.current = 0
        self.driven_since = 0.0
        self.ended_by_user = False
        self.user_resumed = False
        self.replaced: set[str] = set()
        self.idle = 0
        self.overloads = 0
        self.checks = 0
        self.wait: Wait | None = None
        self.wait_true = 0.0
        self.wait_driver = 0
        self.largest_request = 0
        self.last_ended: LegEnded | None = None
        self.replayed: Run | None = None  # the run that the log leads to, as far as replayed
        self.replayed_seq = 0

    # The user and the processes

    def begin(self, run: Run) -> None:
        """A new run."""
        self._reset(run.id)
        self.world.figures.runs += 1

    def drives(self, pid: int) -> None:
        """This process drives the run from now on."""
        other_drivers = self.drivers - {pid}
        must(
            not other_drivers,
            "one writer a run",
            f"process {pid} drives it, and so do {sorted(other_drivers)}",
        )
        self.drivers.add(pid)
        self.current = pid
        self.driven_since = self.world.machine.clock.awake()

    def dies(self, pid: int) -> None:
        """This process has ended."""
        self.drivers.discard(pid)

    def refused(self, pid: int) -> None:
        """A second segue was refused because the run is being driven."""
        must(bool(self.drivers - {pid}), "leases end", "a lease is held by nobody that lives")

    def resumed(self, run: Run, *, by_user: bool, takes_back: bool) -> None:
        """Somebody resumes the run."""
        self.user_resumed = by_user
        if by_user:
            self.ended_by_user = False

    def taken_up(self, run: Run, *, asked: bool) -> None:
        """The daemon adopts the run."""
        what = "the daemon takes up a run that its user ended"
        must(not self.ended_by_user and not asked, "the user's end stays", what)
        must(run.policy.auto_resume, "the user's end stays", "auto_resume is off")

    def gives_up(self, run: Run, why: str) -> None:
        """segue ends because of an error and leaves the agent running. It may do so only if it
        cannot write: the disk is full, or another process has the run."""
        is_left = self.ended_by_user and self.session.live_leg() is not None
        what = f"the agent is left running although the user ended it: {why}"
        is_excused = self.world.is_disk_full or "may no longer write" in why
        must(not is_left or is_excused, "the user's end stays", what)
        must(is_excused, "segue ends only if it cannot write", why)

    # The log

    def entry(self, pid: int, before: Run, fact: AnyFact, step: RunStep, entry: Entry) -> None:
        """An entry was written to the log."""
        world, after = self.world, step.run
        world.entry_written(before, fact, after, entry)
        self._replay(after)
        # Not `must`, whose message would be formatted for each of very many entries.
        if pid != self.current:
            raise Broken("one writer a run", f"process {pid} writes, {self.current} drives")
        is_old = _is_old(before, fact)
        if is_old and after != before:
            raise Broken("old news", f"{entry.kind} of an old leg changes it")
        if after.state not in machine.TABLE[before.state, type(fact)].leads_to:
            raise Broken("the table", f"{before.state} → {after.state} by {entry.kind}")
        if after.state.is_final or after.state in (RunState.WAITING, RunState.CHECKING):
            must(not after.is_live, "no leg while none may be", f"{after.state} with a live leg")
        least = before.leg
        if isinstance(fact, Limited) and not is_old:  # a leg that never existed
            is_begun = (after.id, before.leg) in self.session.legs
            must(not is_begun, "numbers only grow", f"leg {before.leg} was begun")
            least -= 1
        if after.leg < least:
            raise Broken("numbers only grow", f"leg {after.leg} after {before.leg}")
        if len(after.sizes) > 60:
            raise Broken("memory is bounded", f"{len(after.sizes)} sizes are kept")
        starts = [each for each in step.decisions if isinstance(each, StartLeg)]
        must(len(starts) < 2, "one leg at a time", "two legs are started at once")
        if starts:
            self._decided(before, fact, after, starts[0], entry)
        if not is_old:
            self._marks(before, fact, after)
            self._spends(before, fact, after)
        if isinstance(fact, InterruptRequested | CancelAsked):
            self.ended_by_user = not before.state.is_final
        if isinstance(fact, Resumed) and self.user_resumed:
            self.ended_by_user = False
        for decision in step.decisions:
            if isinstance(decision, WaitUntil) and decision.wait is not before.wait:
                self._waits(before, fact, after, decision.wait, entry)

    def _decided(
        self, before: Run, fact: AnyFact, after: Run, start: StartLeg, entry: Entry
    ) -> None:
        over = isinstance(fact, LegEnded | LegNotStarted)
        must(over or not before.is_live, "one leg at a time", f"leg {start.leg} beside a live one")
        must(
            start.leg == before.leg + 1, "numbers only grow", f"leg {start.leg} after {before.leg}"
        )
        what = f"leg {start.leg} is started by {entry.kind} after the user ended the run"
        must(not self.ended_by_user or isinstance(fact, Resumed), "the user's end stays", what)
        what = f"session {start.session_id} has handed over, and is resumed"
        must(start.session_id not in self.replaced or not start.session_id, "told is told", what)
        cap = after.policy.max_tokens
        what = f"leg {start.leg} is started with {before.tokens} tokens spent of {cap}"
        spent = after.tokens
        must(cap is None or spent < cap, "spend caps", what)
        if isinstance(fact, Elapsed) and fact.timer == "wait" and self.wait is not None:
            self._wait_over(self.wait, entry)
        self.wait = None

    def _marks(self, before: Run, fact: AnyFact, after: Run) -> None:
        if not isinstance(fact, ContextMeasured) or before.state is not RunState.WORKING:
            return
        if before.ended_how or before.policy.hard_mark > 1:
            return
        reading = fact.reading
        hard = ceil(before.policy.hard_mark * reading.window_tokens)
        if fact.enforced_tokens:
            hard = min(hard, fact.enforced_tokens - before.policy.reserve_tokens)
        used = f"{reading.used_tokens} of {reading.window_tokens}"
        if reading.used_tokens >= hard and after.state is not RunState.CHECKPOINTING:
            raise Broken("the hard mark", f"{used} is past the hard mark")
        early = before.policy.soft_mark * reading.window_tokens / 2.5
        is_early = reading.used_tokens < early / before.abilities.resume_factor
        if is_early and (after.state is not RunState.WORKING or after.is_due):
            raise Broken("no handoff for nothing", f"{used} is handed over far too early")
        soft = before.policy.soft_mark * reading.window_tokens
        if not after.is_due or before.abilities.resume_factor > 1 or fact.enforced_tokens:
            return
        rises = [later - size for size, later in pairwise(after.sizes)]
        ahead = reading.used_tokens + 4 * max(rises, default=0)
        is_near = reading.used_tokens >= soft or ahead >= hard
        must(is_near, "no handoff for nothing", f"{reading.used_tokens}, far from {hard}")

    def _spends(self, before: Run, fact: AnyFact, after: Run) -> None:
        if not isinstance(fact, LegEnded):
            return
        self.last_ended = fact
        spent, cap = after.tokens, after.policy.max_tokens
        must(spent == before.tokens + fact.tokens, "spend is counted", f"{spent} tokens")
        leg = self.session.legs.get((after.id, fact.leg))
        if leg is not None:
            self.largest_request = max(self.largest_request, leg.largest_request)
        room = 2 * self.largest_request
        what = f"{spent} tokens spent of {cap}"
        is_alone = leg is not None and leg.is_alone
        must(cap is None or is_alone or spent <= cap + room, "spend caps", what)

    def _counts(self, before: Run, fact: AnyFact, step: RunStep) -> None:
        """Checks the limits on counts. It is called for each entry of the log, also for one whose
        process was killed right after it."""
        after, policy = step.run, step.run.policy
        if isinstance(fact, Resumed):
            self.idle = self.overloads = self.checks = 0
        if _is_old(before, fact):
            return
        if isinstance(fact, CheckpointReceived) and before.state is RunState.CHECKPOINTING:
            self.replaced.add(before.session_id)
        if isinstance(fact, Checked):
            self.checks += 1
            most = policy.max_checks + 1
            must(self.checks <= most, "checks are bounded", f"check {self.checks} of {most}")
            is_over = before.state is not RunState.CHECKING
            must(
                is_over or fact.ok is (after.state is RunState.DONE),
                "checks count",
                f"ok: {fact.ok}",
            )
        if isinstance(fact, LegEnded):
            self._leg_counts(before, fact, after)
        for decision in step.decisions:
            if not isinstance(decision, WaitUntil) or decision.wait is before.wait:
                continue
            is_overload = decision.wait.why is StopReason.OVERLOADED
            if is_overload and decision.wait.outage_since is None:
                self.overloads += 1
                what = f"overload {self.overloads}"
                must(self.overloads <= policy.overload_tries, "tries are bounded", what)

    def _leg_counts(self, before: Run, fact: LegEnded, after: Run) -> None:
        policy = after.policy
        self.world.figures.legs += 1
        if fact.progressed:
            self.idle = self.overloads = 0
        elif fact.stop.reason not in _PASSING and before.purpose == "work":
            self.idle += 1
            what = f"{self.idle} legs in a row without progress"
            most = policy.idle_legs + policy.same_failures + 3
            must(self.idle <= most, "every run ends", what)
        if fact.stop.reason is StopReason.COMPLETED and before.state is RunState.WORKING:
            done = RunState.CHECKING if after.check else RunState.DONE
            must(after.state is done, "done is done", f"completed, and {after.state}")
        if fact.stop.reason in _OVER and not fact.stop.ended_for:
            is_over = after.state.is_final or before.has_handed_over or bool(before.again)
            is_over = is_over or bool(before.interrupted)
            # A refusal of segue's own request says nothing about the task.
            asked = before.state is RunState.CHECKPOINTING
            is_over = is_over or (asked and fact.stop.reason is StopReason.REFUSAL)
            must(is_over, "nothing after a refusal", f"{after.state} after {fact.stop.reason}")

    # Waits

    def _waits(self, before: Run, fact: AnyFact, after: Run, wait: Wait, entry: Entry) -> None:
        policy, at = after.policy, entry.at
        self.wait, self.wait_driver = wait, self.current
        self.wait_true = self.world.schedule.now
        if isinstance(fact, Resumed):
            return
        if wait.follows:  # another run goes first
            what = f"waits {wait.until - at:.0f} s for the reply of another"
            must(wait.until - at <= 300.0 + 1e-6, "waits end within their bound", what)
            return
        most = policy.unknown_reset_max_s * (1 + policy.wait_jitter) + _SLACK_S
        if wait.reset_at is not None:
            what = f"waits until {wait.until - wait.reset_at:+.1f} s from the reset"
            is_limit = wait.why is StopReason.RATE_LIMIT
            least = policy.reset_jitter_min_s if is_limit else 0.0
            must(wait.until >= wait.reset_at + least - 1e-6, "not before the reset", what)
            most = max(most, wait.reset_at - at + policy.reset_jitter_max_s)
        what = f"waits {wait.until - at:.0f} s, at most {most:.0f} are allowed"
        must(wait.until - at <= most + 1e-6, "waits end within their bound", what)
        least_s = policy.unknown_reset_wait_s * (1 - policy.wait_jitter)
        what = f"waits {wait.until - at:.3f} s"
        must(wait.until - at >= min(least_s, policy.reset_jitter_min_s), "waits are waits", what)
        must(
            after.limited_s <= policy.max_limited_s, "waits end within their bound", "max_limited_s"
        )
        if wait.tries > 1 and wait.reset_at is None:
            doubled = policy.unknown_reset_wait_s * 2 ** min(wait.tries - 1, 30)
            least_s = min(doubled, policy.unknown_reset_max_s) * (1 - policy.wait_jitter)
            must(wait.until - at >= least_s - 1e-6, "waits grow", what)
        self.world.figures.waits += 1

    def _wait_over(self, wait: Wait, entry: Entry) -> None:
        true_s = self.world.schedule.now - self.wait_true
        self.world.figures.waited_s += true_s
        is_set = self.world.machine.jumped_at >= self.wait_true
        if wait.follows:
            return
        if not is_set:
            what = f"{wait.until - entry.at:.1f} s before its end"
            must(entry.at >= wait.until - 0.01, "not before the reset", what)
        elif not wait.is_relative:
            must(entry.at >= wait.until - 0.01, "not before the reset", "by the clock that was set")
        elif self.current == self.wait_driver:
            planned_s = wait.until - wait.since
            must(
                true_s >= planned_s - 0.1,
                "not before the reset",
                f"{planned_s - true_s:.1f} s early",
            )
        slept = self.world.machine.awake_at >= self.wait_true
        if not slept and not is_set and self.current == self.wait_driver:
            late_s = entry.at - wait.until
            must(late_s <= _SLACK_S, "waits end within their bound", f"{late_s:.0f} s too late")

    # Acts

    def starts(self, run: Run, order: StartLeg) -> None:
        """A leg's process is started."""
        what = f"leg {order.leg} is started, and that it is decided is not written down"
        must((run.id, order.leg) in self.world.decided, "intent before act", what)
        live = self.session.live_leg()
        must(live is None, "one leg at a time", f"leg {order.leg} is started beside another")
        now, account = self.world.schedule.now, self.world.account_of(self.session.number)
        is_set = self.world.machine.clock.offset_s != 0.0
        if not is_set:
            goes(account, run.id, now)
        if order.prompt == "continuation":
            self.world.figures.handoffs += 1

    def account_stopped(self, stop: Stop) -> None:
        """A leg of this account ended, and its limit was recorded for all."""
        account = self.world.account_of(self.session.number)
        is_limit = stop.reason is StopReason.RATE_LIMIT and not self.world.is_disk_full
        if is_limit and (stop.retry_at is not None or stop.retry_after_s is not None):
            account.learn_limit(self.world.schedule.now)

    def account_replied(self) -> None:
        """The model replied, so nobody has to wait for the first one any longer."""
        self.world.account_of(self.session.number).replied(self.world.schedule.now)

    def agent_did(self, number: int, what: str) -> None:
        """The agent did something that only the world sees."""
        session, figures = self.session, self.world.figures
        leg = session.legs.get((session.run_id, number))
        if what.startswith("step "):
            figures.steps += 1
            step = int(what[5:])
            if (times := session.project.done[step]) != 1:
                raise Broken("no step twice", f"step {step} is done {times} times")
        elif leg is not None and what == "request read":
            talk = leg.conversation
            figures.request_percent[percent(leg.request_tokens, talk.window_tokens)] += 1
            session.say(f"the request for a checkpoint is read at {leg.request_tokens} tokens")
        elif leg is not None and what == "exhausted":
            figures.exhaustions += 1
            talk = leg.conversation
            room = talk.window_tokens * (1 - session.policy.hard_mark)
            is_steep = talk.largest_turn * 2 > room
            figures.steep_exhaustions += is_steep
            figures.lone_exhaustions += leg.is_alone and not is_steep
            session.say(f"the window is full, with {talk.used_tokens} tokens")
        elif what == "answered":
            self.world.in_handoff(session.number, answered=True)
        elif what == "compacted":
            figures.compactions += 1
            session.say("the agent compacts by itself")

    def after_turn(self, loop: Any) -> None:
        """Called after each turn of the loop."""
        run, follower = loop.run, loop.follower
        if run.is_live and follower is None:
            must(False, "every run ends or waits", f"{run.state}: nobody follows leg {run.leg}")
        reading = run.reading
        if reading is None or follower is None or run.state is not RunState.WORKING:
            return
        if follower.is_between_tools and not run.ended_how and run.policy.hard_mark <= 1:
            soft = run.policy.soft_mark * reading.window_tokens
            if reading.used_tokens >= soft:
                what = f"{reading.used_tokens} tokens at a boundary, soft mark {soft:.0f}"
                raise Broken("the soft mark", what)

    def told_twice(self, loop: Any) -> None:
        """Now and then adds a fact again, or one that is not due, which must change nothing."""
        drawn = self.session.random.random()
        if self.last_ended is not None and drawn < 0.01:
            loop.journal.add(self.last_ended)
        elif loop.run.state is RunState.WAITING and drawn > 0.5:
            at, wait = loop.clock.now(), loop.run.wait
            if wait is not None and not wait.is_relative and at < wait.until - 1.0:
                loop.journal.add(Elapsed(timer="wait"))  # never before the reset, whoever asks
                loop.journal.add(Elapsed(timer="stall"))

    def stuck(self, run: Run) -> None:
        """Nothing will ever happen to this run."""
        must(False, "every run ends or waits", f"{run.state}, and nothing is waited for")

    def look(self) -> None:
        """Called from time to time: checks that no agent hangs."""
        loop, machine_ = self.session.loop, self.world.machine
        if loop is None or machine_.awake_at > self.world.schedule.now - 3_600.0:
            return
        leg = self.session.live_leg()
        run = loop.run
        if leg is None or not run.is_live or not leg.is_deaf:
            return
        # A process that adopts a leg measures its silence from then on.
        last = max([leg.began, self.driven_since, *(record.at for record in leg.records[-1:])])
        silent_s = machine_.clock.awake() - last
        most = max(run.policy.stall_s, run.policy.checkpoint_s) + 60.0
        must(silent_s <= most, "a hung agent is ended", f"silent for {silent_s:.0f} s")

    def over(self, run: Run) -> None:
        """A run has ended."""
        session, figures = self.session, self.world.figures
        must(session.live_leg() is None, "nothing is left running", "its agent still works")
        if run.state is RunState.DONE:
            figures.done += 1
            left = session.project.steps - session.project.last
            must(left <= 0, "no step is lost", f"done, and {left} steps are missing")
        must(run.outcome is not None and run.outcome.what != "", "an end has a reason", run.state)
        talks = session.talks.values()
        for talk in talks:
            used = percent(talk.used_tokens, talk.window_tokens)
            if talk.id in self.replaced:
                figures.unused_percent[max(0, 100 - used)] += 1

    def replays(self, run_id: str) -> None:
        """Checks that replaying the log gives the run in the store."""
        run = self.world.store.run(run_id)
        if run is not None and run_id == self.run_id:
            self._replay(run)

    def _replay(self, after: Run) -> None:
        """Replays the new entries of the log, also those of a process that was killed, and checks
        that they lead to this run."""
        for entry in self.world.store.log(after.id, self.replayed_seq):
            self.replayed_seq += 1
            if entry.seq != self.replayed_seq:
                raise Broken("the log", f"entry {entry.seq} of {after.id} follows a gap")
            is_first = self.replayed is None
            run = first_run(entry) if self.replayed is None else self.replayed
            fact = Created() if is_first else fact_of(entry)
            step = machine.step(run, fact, at=entry.at, draw=entry.draw or 0.0)
            self._counts(run, fact, step)
            self.replayed = step.run
        if self.replayed != after:
            raise Broken("logs replay to the same state", after.id)


def _is_old(run: Run, fact: AnyFact) -> bool:
    """Whether the fact is about a leg that is not the newest, or has ended."""
    leg = getattr(fact, "leg", None)
    if isinstance(fact, Elapsed):
        return leg not in (0, run.leg)
    return leg is not None and (leg < run.leg or not run.is_live)


def percent(used: int, window: int) -> int:
    """The share in whole percent, rounded up."""
    return -(-used * 100 // window)
