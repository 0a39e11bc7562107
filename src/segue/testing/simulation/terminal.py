"""A session in a terminal: a user and an agent in tmux, watched by the daemon. The machine of
handoffs (`core/handoffs/machine`) and the decisions on resuming (`core/resumes`) are the real ones;
screen, keys and files are the world's.

One file: user, agent and daemon act on one terminal.
"""

from functools import partial
from random import Random
from typing import Any, Literal

from msgspec.structs import replace

from segue.core.handoffs import machine
from segue.core.handoffs.machine import (
    AgentGone,
    AnyAct,
    AnyFact,
    Busy,
    Cleared,
    FileSeen,
    HandoffStep,
    Interrupt,
    NotInterrupted,
    NotTyped,
    NotWritten,
    OwnWritten,
    Planned,
    PromptSeen,
    ReadFile,
    Ready,
    TerminalHandoff,
    TimeUp,
    TurnInterrupted,
    Typed,
    TypeText,
    Used,
    UserSpoke,
    WentOn,
    What,
    WriteOwn,
)
from segue.core.policy import Policy
from segue.core.resumes.decisions import Resume as ResumeNow
from segue.core.resumes.decisions import (
    ResumeHistory,
    StoppedSession,
    WaitForReset,
    decide,
    held_by_account,
)
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import RateLimitInfo, Stop
from segue.testing.simulation import models
from segue.testing.simulation.accounts import SimulatedGate
from segue.testing.simulation.clock import EPOCH
from segue.testing.simulation.faults import Fault, PlannedFault
from segue.testing.simulation.invariants import goes, must

_TICK_S = 10.0
_WRITING_S = 12.0  # of the daemon's own document
Document = Literal["", "valid", "bad"]
_ARMED = (Fault.KILL_AT_ACT, Fault.MUTE, Fault.BAD_DOCUMENT, Fault.SPOILS_DOCUMENT)


class TerminalWatch:
    """The invariants of one session in a terminal."""

    def __init__(self, session: "TerminalSession") -> None:
        self.session = session

    def look(self) -> None:
        """Now and then: every handoff ends, or waits for its user."""
        session = self.session
        cycle = session.cycle
        if cycle is None or not session.is_watched or not cycle.step.is_active:
            return
        if session.world.machine.awake_at > session.world.schedule.now - 7_200.0:
            return
        open_s = session.world.machine.clock.now() - cycle.step_at
        is_set = session.world.machine.jumped_at > session.world.schedule.now - 90_000.0
        what = f"{cycle.step} for {open_s:.0f} s"
        must(is_set or open_s < 80_000.0, "every handoff ends or waits for its user", what)

    def replays(self, run_id: str) -> None:
        """The facts make the same handoff again."""
        session = self.session
        if session.first is not None:
            again = machine.fold(session.first, session.log, session.policy)
            must(again == session.cycle, "logs replay to the same state", run_id)


class TerminalSession:
    """One user, one agent, one pane."""

    def __init__(self, world: Any, number: int, policy: Policy, random: Random) -> None:
        self.world, self.number, self.policy, self.random = world, number, policy, random
        self.model, self.window = models.MODELS[0], 200_000
        self.run_id = ""
        self.armed: set[Fault] = set()
        self.pending: list[PlannedFault] = []
        self.awaiting: list[PlannedFault] = []
        self.watch = TerminalWatch(self)
        self.used = self.model.base_tokens
        self.sessions = 1
        self.is_busy = self.in_tool = False
        self.is_alive = True
        self.is_watched = True  # the daemon runs
        self.steps_left = 0
        self.turn = 0
        self.typing_until = 0.0
        self.document: Document = ""
        self.document_at = 0.0
        self.disk_before: Document = ""
        self.heard: list[What] = []
        self.typed: dict[str, int] = {}
        self.cycle: TerminalHandoff | None = None
        self.first: TerminalHandoff | None = None
        self.log: list[tuple[AnyFact, float]] = []
        self.news: list[AnyFact] = []
        self.cycles = self.resumes = 0
        self.gate = SimulatedGate(self)
        self.ended_by_user = False
        self._later(random.expovariate(1 / 20_000.0), self._user_prompts)

    @property
    def _now(self) -> float:
        now: float = self.world.machine.clock.now()
        return now

    def say(self, what: str) -> None:
        """For the story."""
        self.world.say(self.number, what)

    def _later(self, wait_s: float, act: Any) -> None:
        def due() -> None:
            if (awake_at := self.world.machine.awake_at) > self.world.schedule.now:
                self.world.schedule.at(awake_at, due)
            else:
                act()

        self.world.schedule.at(self.world.schedule.now + wait_s, due)

    # The user and the agent

    def _user_prompts(self) -> None:
        """The user gives the next task, or begins the agent anew."""
        self._later(self.random.expovariate(1 / 60_000.0) + 300.0, self._user_prompts)
        if not self.is_alive:
            self._begin_anew()
        if self.is_busy or self.world.schedule.now < self.typing_until:
            return
        self.resumes = 0
        self.ended_by_user = False
        if self.cycle is not None and not self.cycle.step.is_final:
            self.news.append(UserSpoke())
        self._work(models.steps_of_task(self.random))

    def _begin_anew(self) -> None:
        self.is_alive, self.used, self.heard = True, self.model.base_tokens, []
        self.sessions += 1

    def _work(self, steps: int) -> None:
        self.turn += 1
        self.is_busy, self.steps_left = True, steps
        self._later(models.reply_s(self.random), partial(self._reply, self.turn))

    def _reply(self, turn: int) -> None:
        if turn != self.turn or not self.is_alive:
            return
        account = self.world.account_of(self.number)
        if account.ask(self.world.schedule.now) == "limited":
            self._stopped_by_limit(account)
            return
        if self.steps_left <= 0:
            self.is_busy = False
            return
        self.gate.replied(self.gate.tracked(replied=True))
        account.replied(self.world.schedule.now)
        self.in_tool = True
        self.used += self.growth_of_a_step()
        if self.used > self.window:
            self.used = self.model.base_tokens + 15_000  # its own compaction
            self.world.figures.compactions += 1
        self._seen_by_daemon()
        self._later(models.tool_s(self.random), partial(self._result, turn))

    def growth_of_a_step(self) -> int:
        """A reply and its tool's result."""
        growth, most = self.world.growth, self.model.max_result_tokens
        return int(growth.reply(self.random) + growth.result(self.random, most))

    def _result(self, turn: int) -> None:
        if turn != self.turn or not self.is_alive:
            return
        self.in_tool = False
        self.steps_left -= 1
        self._later(models.reply_s(self.random), partial(self._reply, turn))

    def _hear(self, what: What) -> None:
        """The agent takes what was typed."""
        if not self.is_alive:
            return
        self.heard.append(what)
        self.news.append(PromptSeen(what))
        if what == "request":
            self.turn += 1
            self.is_busy, self.steps_left = True, 0
            wait_s = 10.0 + 60.0 * self.random.random()
            self._later(wait_s, partial(self._write_document, self.turn))
        elif what == "clear":
            self.heard, self.used = [], self.model.base_tokens
            self.sessions += 1
            self.news.append(Cleared(f"s{self.sessions}"))
        else:
            self._later(10.0, self._read_document)

    def _write_document(self, turn: int) -> None:
        if turn != self.turn or not self.is_alive:
            return
        self.is_busy = False
        if Fault.MUTE in self.armed:
            self.armed.discard(Fault.MUTE)
            return
        is_bad = Fault.BAD_DOCUMENT in self.armed
        self.armed.discard(Fault.BAD_DOCUMENT)
        self.document, self.document_at = ("bad" if is_bad else "valid"), self._now
        self.news.append(self._file())
        self.world.in_handoff(self.number, answered=True)
        if Fault.SPOILS_DOCUMENT in self.armed and not is_bad:
            self.armed.discard(Fault.SPOILS_DOCUMENT)
            self.typing_until = self.world.schedule.now + 100.0
            self._later(15.0, self._spoil_document)

    def _spoil_document(self) -> None:
        """It is half saved now, and seen whole a little later."""
        self.document, self.document_at = "bad", self._now
        self.typing_until = self.world.schedule.now
        self.news.append(replace(self._file(), stable=False))
        self._later(2 * _TICK_S, lambda: self.news.append(self._file()))

    def _read_document(self) -> None:
        if self.is_alive and self.document:
            self.used += 6_000
            self.news += [ReadFile(), WentOn()]
            self._work(self.random.randrange(1, 20))

    def _file(self) -> FileSeen:
        ok = self.document == "valid"
        return FileSeen(ok=ok, why="" if ok else "no headings", bytes=900, changed_at=self._now)

    # The daemon

    def _seen_by_daemon(self) -> None:
        policy = self.policy
        if self.cycle is not None and not self.cycle.step.is_final:
            self.news.append(Used(self.used))
            return
        is_due = self.used >= policy.hard_mark * self.window and policy.hard_mark <= 1
        if not is_due or not self.is_watched or not policy.auto_handoff:
            return
        self.cycles += 1
        self.typed, self.document, self.heard = {}, "", []
        self.first = self.cycle = TerminalHandoff(
            id=f"h-{self.number}-{self.cycles}",
            agent="claude",
            session_id=f"s{self.sessions}",
            project="/p",
            cwd="/p",
            file="/p/handoff.md",
            began_at=self._now,
            used_tokens=self.used,
            window_tokens=self.window,
            step_at=self._now,
        )
        self.log, self.news = [], []
        self.say(f"a handoff begins at {self.used} tokens")
        self.world.in_handoff(self.number)
        self._tell(Planned())
        self._later(_TICK_S, partial(self._tick, self.cycles))

    def _tick(self, number: int) -> None:
        cycle = self.cycle
        if cycle is None or number != self.cycles or cycle.step.is_final:
            return
        quiet = not cycle.step.is_active and not self.news
        self._later(600.0 if quiet else _TICK_S, partial(self._tick, number))
        if not self.is_watched:
            return
        news, self.news = self.news, []
        self.disk_before = self.document
        for fact in news:
            self._tell(fact)
        if not self.is_alive:
            self._tell(AgentGone("its process ended"))
        elif self.is_busy:
            self._tell(Busy(at_boundary=not self.in_tool))
        elif self.world.schedule.now >= self.typing_until:
            self._tell(Ready(is_over=True, is_long=True))
        when = machine.due(self.cycle, self.policy) if self.cycle else None
        if when is not None and self._now >= when:
            self._tell(TimeUp())

    def _tell(self, fact: AnyFact) -> None:
        before = self.cycle
        if before is None or before.step.is_final:
            return
        after, acts = machine.step(before, fact, self.policy, self._now)
        self.log.append((fact, self._now))
        self.cycle = after
        allowed = machine.TABLE[before.step, type(fact)].leads_to
        kind = type(fact).__name__
        self.world.figures.facts += 1
        self.world.seen_handoff(before.step.value, kind, self.number)
        must(after.step in allowed, "the table", f"{before.step} → {after.step} by {kind}")
        if before.step is not after.step:
            self.say(f"[{kind}] handoff {after.step}: {after.why}")
        if after.step is HandoffStep.DONE:
            must(after.went_on and after.is_read, "a handoff is verified", "done, and not gone on")
            self.world.figures.terminal_handoffs += 1
        for act in acts:
            if Fault.KILL_AT_ACT in self.armed:
                self.armed.discard(Fault.KILL_AT_ACT)
                self._daemon_dies()
                return
            self._do(act)

    def _daemon_dies(self) -> None:
        """It is killed; a new one goes on with what is in the log."""
        self.say("the daemon is killed")
        self.watch.replays("")
        self.is_watched = False
        self._later(30.0, self._daemon_begins)

    def _daemon_begins(self) -> None:
        self.is_watched = True
        if self.cycle is not None and not self.cycle.step.is_final:
            for act in machine.acts_again(self.cycle):
                self._do(act)

    def _do(self, act: AnyAct) -> None:
        if isinstance(act, TypeText):
            self._type(act.what)
        elif isinstance(act, WriteOwn):
            self._later(_WRITING_S, partial(self._write_own, self.cycles))
        elif isinstance(act, Interrupt):
            if not self.is_busy:
                self._tell(NotInterrupted("its turn has just ended"))
            else:
                self.turn += 1
                self.is_busy = self.in_tool = False
                self.news.append(TurnInterrupted(self._now))

    def _write_own(self, number: int) -> None:
        """The daemon's own document, unless it was killed meanwhile or the disk is full."""
        if number != self.cycles or not self.is_watched:
            return
        if self.world.is_disk_full:
            self._tell(NotWritten("no space left on the disk"))
            return
        self.document, self.document_at = "valid", self._now
        self._tell(OwnWritten(900))

    def _type(self, what: What) -> None:
        cycle = self.cycle
        if cycle is None:
            return
        if what == "clear":
            is_known = cycle.has_document and "valid" in (self.document, self.disk_before)
            must(is_known, "cleared only with a document", f"on disk: {self.document or 'none'}")
        if what in self.heard and what != "request":
            self._tell(PromptSeen(what))
            return
        why = ""
        if self.is_busy:
            why = "it works"
        elif self.world.schedule.now < self.typing_until:
            why = "the user types"
        elif what == "clear" and self.document != "valid":
            why = "the document is no longer valid"
        if why or not self.is_alive:
            self._tell(NotTyped(what, why or "the agent is gone"))
            return
        self.typed[what] = self.typed.get(what, 0) + 1
        most = 1 if what == "clear" and cycle.is_cleared else 3
        must(self.typed[what] <= most + 3, "nothing is typed for ever", f"{what}, {self.typed}")
        is_twice = what == "clear" and cycle.is_cleared
        must(not is_twice, "nothing is typed twice", "the new session is cleared too")
        self._later(1.0, partial(self._hear, what))
        self._tell(Typed(what))

    # Limits

    def _stopped_by_limit(self, account: Any) -> None:
        """The session sits at its prompt, limited."""
        self.is_busy = False
        reset_at = EPOCH + account.limited_until
        stop = Stop(
            reason=StopReason.RATE_LIMIT,
            confidence=0.95,
            resume="same_session",
            retry_at=reset_at if account.limit_told == "time" else None,
            details=RateLimitInfo(scope="five_hour", retry_source="record"),
        )
        ending = StoppedSession(
            agent="claude",
            session_id=f"s{self.sessions}",
            stop=stop,
            state="at_prompt",
            at=self._now,
            has_pane=True,
            used_tokens=self.used,
            window_tokens=self.window,
        )
        self.gate.limited(self.gate.tracked(), stop, self.resumes)
        if stop.retry_at is not None and not self.world.is_disk_full:
            account.told(self.world.schedule.now)
        self._decide(ending, self.turn, self.random.random())

    def _decide(self, ending: StoppedSession, turn: int, draw: float) -> None:
        if turn != self.turn or self.is_busy or not self.is_watched:
            return
        if not self.is_alive:
            ending = replace(ending, state="exited", ended_by="user")
        history = ResumeHistory(resumes=self.resumes)
        now = self._now
        local = self.world.local
        found = decide(ending, history, self.policy, now=now, local=local, draw=draw)
        if isinstance(found, ResumeNow):
            answer = self.gate.ask(self.gate.tracked(), takes_turn=True)
            if answer.until is not None:
                found = held_by_account(answer, self.policy, now=now, draw=draw)
        if isinstance(found, WaitForReset):
            must(found.until > now, "waits are waits", "a wait that is over")
            must(found.until - now < 9 * 86_400.0, "waits end within their bound", found.why)
            wait_s = min(found.until - now, 300.0)  # it may be asked again at any time
            self._later(wait_s, partial(self._decide, ending, turn, draw))
        elif isinstance(found, ResumeNow):
            self._resumed(ending, now)

    def _resumed(self, ending: StoppedSession, now: float) -> None:
        must(self.policy.auto_resume, "the user's end stays", "auto_resume is off")
        must(not self.ended_by_user, "the user's end stays", "a session that the user ended")
        must(self.resumes < self.policy.max_resumes, "tries are bounded", f"{self.resumes} resumes")
        stop = ending.stop
        reset_at = stop.retry_at if stop is not None else None
        what = f"{(reset_at or 0) - now:.0f} s before its reset"
        must(reset_at is None or now >= reset_at, "no request to a limited account", what)
        if self.world.machine.clock.offset_s == 0.0:
            account = self.world.account_of(self.number)
            goes(account, f"session-{self.number}", self.world.schedule.now)
        self.resumes += 1
        self.world.figures.resumes += 1
        self.say("the daemon resumes the session")
        self._work(self.steps_left + 1)

    # What goes wrong

    def wake(self) -> None:
        """Nothing to see: the daemon ticks."""

    def die(self) -> None:
        """The machine reboots."""
        self.is_alive = self.is_busy = False
        self.turn += 1
        if self.is_watched:
            self._daemon_dies()

    def suffer(self, planned: PlannedFault) -> bool:
        """Lets a fault of this session happen; whether anything came of it."""
        fault = planned.fault
        if fault in _ARMED:
            self.armed.add(fault)
        elif fault is Fault.USER_TYPES:
            self.typing_until = self.world.schedule.now + 5.0 + 200.0 * planned.size
            is_open = self.cycle is not None and not self.cycle.step.is_final
            if is_open and not self.is_busy:
                self._later(201.0, self._user_spoke)
        elif fault is Fault.CTRL_C and self.is_busy:
            self.turn += 1
            self.is_busy = self.in_tool = False
            self.news.append(TurnInterrupted(self._now))
        elif fault in (Fault.USER_EXIT, Fault.KILL_AGENT, Fault.CRASH) and self.is_alive:
            self.is_alive = self.is_busy = False
            self.turn += 1
            self.ended_by_user = fault is Fault.USER_EXIT
        elif fault is Fault.KILL_SEGUE and self.is_watched:
            self._daemon_dies()
        else:
            return False
        return True

    def _user_spoke(self) -> None:
        if self.is_alive and not self.is_busy:
            self.news.append(UserSpoke())
            self._work(2)
