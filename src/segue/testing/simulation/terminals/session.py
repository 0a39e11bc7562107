"""A session in a terminal: a user and an agent in tmux. Both are models; the daemon that watches
them is the real one (`daemon`).

All in one file, because user and agent act on one terminal.
"""

from functools import partial
from random import Random
from typing import Any

from segue.core.policy import Policy
from segue.core.sessions.forecasts.forecast import forecast
from segue.core.sessions.reading import Reading
from segue.core.sessions.types import Look, Process, Session, StopSeen, state_of
from segue.core.stops.events import Ended, Failure, Prompt, Reply, ToolCall, ToolResult
from segue.core.stops.reasons import StopReason
from segue.system.tmux.panes import AgentPane
from segue.testing.simulation import models
from segue.testing.simulation.clock import EPOCH
from segue.testing.simulation.faults import Fault, PlannedFault
from segue.testing.simulation.terminals.conversations import (
    BAD,
    VALID,
    Talk,
    file_in,
    interrupted,
    kind_of,
)
from segue.testing.simulation.terminals.watch import TerminalWatch
from segue.watch.observe.endings import After

_ARMED = frozenset(
    {
        Fault.KILL_AT_ACT,
        Fault.KILL_AT_WRITE,
        Fault.MUTE,
        Fault.BAD_DOCUMENT,
        Fault.SPOILS_DOCUMENT,
        Fault.DISOBEYS,
        Fault.NOT_LOADED,
        Fault.SPIKE,
        Fault.HANG,
    }
)
_KEPT_TALKS = 4
_LEAVES_DRAFT_S = 2_400.0
_PATIENCE_S = 20_000.0  # after which a user checks why an agent says nothing


class TerminalSession:
    """One user, one agent, one pane."""

    def __init__(self, world: Any, number: int, policy: Policy, random: Random) -> None:
        self.world, self.number, self.policy, self.random = world, number, policy, random
        self.model, self.window, self.cwd = models.MODELS[0], 200_000, f"/t{number}"
        # Whether the agent compacts by itself, and where.
        self.enforced = random.choice((None, self.window - 33_000))
        self.run_id = ""
        self.armed: set[Fault] = set()
        self.pending: list[PlannedFault] = []
        self.awaiting: list[PlannedFault] = []
        self.count = 0
        self.talks: dict[str, Talk] = {}
        self.process: Process | None = None
        self.pane = 0
        self.has_pane = True
        self.is_busy = self.in_tool = self.is_scrolled = False
        self.draft = ""
        self.held = ""  # segue's text in the input line, while segue holds back the user's keys
        self.typing_until = 0.0
        self.turn = 0
        self.turn_since = 0.0
        self.asked_for = ""  # the document that this turn should write
        self.watch = TerminalWatch(self)
        self.talk = self._new_talk()
        self._later(random.expovariate(1 / 20_000.0), self._user_prompts)

    # What others query

    @property
    def now(self) -> float:
        """The machine's time."""
        now: float = self.world.machine.clock.now()
        return now

    @property
    def is_typing(self) -> bool:
        """Whether its user is at the keyboard."""
        return bool(self.world.schedule.now < self.typing_until)

    @property
    def seat(self) -> AgentPane | None:
        """The pane of its agent."""
        if self.process is None:
            return None
        return AgentPane(
            socket="", pane=f"%{self.pane}", tty=f"/dev/pts/{self.pane}", pid=self.process.pid,
            start_ticks=self.process.start_ticks, agent=self.process.agent,
        )  # fmt: skip

    def session_of(self, talk: Talk) -> Session:
        """The session as `sessions/survey` builds it from its file and its process."""
        process = None
        if self.process is not None and talk is self.talk:
            status = "busy" if self.is_busy else "idle"
            process = Process(
                agent="claude", pid=self.process.pid, started_at=self.process.started_at,
                start_ticks=self.process.start_ticks, cwd=self.cwd, session_id=talk.id,
                certain=True, status=status,
            )  # fmt: skip
        look = Look(
            session_id=talk.id, cwd=self.cwd, started_at=talk.started_at, last_at=talk.last_at,
            stop=talk.stop, awaits_user=not self.is_busy,
        )  # fmt: skip
        reading = ahead = growth = None
        if talk.samples:
            reading = Reading(
                input_tokens=talk.used_tokens, window_tokens=self.window, at=talk.samples[-1].at
            )
            if talk.used_tokens > 0.6 * self.window:  # below that it affects no decision
                growth = talk.growth()
            ahead = forecast(
                reading, growth, self.policy, reserve_tokens=self.policy.reserve_tokens,
                enforced_at_tokens=self.enforced,
            )  # fmt: skip
        return Session(
            agent="claude", session_id=talk.id, path=talk.path, cwd=self.cwd,
            started_at=talk.started_at, last_at=talk.last_at, reading=reading,
            zone=ahead.zone if ahead is not None else None, forecast=ahead, policy=self.policy,
            enforced_tokens=self.enforced, growth=growth, state=state_of(look, process, self.now),
            stop=talk.stop, process=process,
        )  # fmt: skip

    def say(self, what: str) -> None:
        """Adds a line to the story."""
        self.world.say(self.number, what)

    def _later(self, wait_s: float, act: Any) -> None:
        def due() -> None:
            if (awake_at := self.world.machine.awake_at) > self.world.schedule.now:
                self.world.schedule.at(awake_at, due)
            else:
                act()

        self.world.schedule.at(self.world.schedule.now + wait_s, due)

    def _changed(self) -> None:
        self.world.daemon.changed(self)

    # The process and its sessions

    def _new_talk(self) -> Talk:
        self.count += 1
        name = f"s{self.number}-{self.count}"
        talk = Talk(
            id=name, path=f"{self.cwd}/{name}.jsonl", started_at=self.now, last_at=self.now,
            used_tokens=self.model.base_tokens,
        )  # fmt: skip
        self.talks[name] = talk
        if len(self.talks) > _KEPT_TALKS:
            oldest = next(iter(self.talks))
            if not self.watch.is_open(oldest):
                self.watch.replays("")
                del self.talks[oldest]
                self.world.daemon.forget(oldest)
        return talk

    def _begin_process(self) -> None:
        machine = self.world.machine
        machine.pids += 1
        machine.has_tmux = True
        if not self.has_pane:
            self.has_pane, self.pane = True, self.pane + 1_000
        self.pane = self.pane or self.number + 1
        self.process = Process(
            agent="claude", pid=machine.pids, started_at=self.now, start_ticks=machine.pids,
            cwd=self.cwd, session_id=self.talk.id,
        )  # fmt: skip
        self.is_busy = self.in_tool = self.is_scrolled = False
        self.draft, self.asked_for = "", ""

    def _end_process(self, after: After) -> None:
        """The process ends; `after` is what it leaves behind."""
        process = self.process
        if process is None:
            return
        was_busy, self.process = self.is_busy, None
        self.turn += 1
        self.is_busy = self.in_tool = False
        self.draft = ""
        daemon = self.world.daemon
        daemon.ended[process.pid] = after
        if len(daemon.ended) > 40:
            del daemon.ended[next(iter(daemon.ended))]
        ended = Process(
            agent="claude", pid=process.pid, started_at=process.started_at,
            start_ticks=process.start_ticks, cwd=self.cwd, session_id=self.talk.id, certain=True,
            status="busy" if was_busy else "idle",
        )  # fmt: skip
        daemon.changed(self, ended)

    def begun_by_segue(self, writes: str, prompt: str) -> None:
        """`segue back` becomes the agent: in the session `writes`, or in a new one."""
        self.watch.begun(writes)
        if writes:
            self.talk = self.talks.get(writes, self.talk)
        else:
            self.talk = self._new_talk()
        self._begin_process()
        if Fault.NOT_LOADED in self.armed:
            self.armed.discard(Fault.NOT_LOADED)
            self._later(2.0, partial(self._crash_on_load, self.turn))
            self._changed()
            return
        self._changed()
        self._later(1.0, partial(self._hear_if, self.process, prompt))

    def _crash_on_load(self, turn: int) -> None:
        if turn == self.turn:
            self._end_process(After(terminal="there", exit_code=1))

    def _hear_if(self, process: Process | None, prompt: str) -> None:
        """The process receives the prompt of its command line, which nobody types."""
        if self.process is process:
            self.hear(prompt, by_segue=True, is_typed=False)

    # The user

    def _user_prompts(self) -> None:
        """The user gives the next task, or restarts the agent."""
        self._later(self.random.expovariate(1 / 60_000.0) + 300.0, self._user_prompts)
        if self.process is None:
            if self.random.random() < 0.5:
                self.talk = self._new_talk()
            self._begin_process()
            self._changed()
        if self.is_typing:
            return
        self.is_scrolled = False
        if self.is_busy:
            if self.world.schedule.now - self.turn_since > _PATIENCE_S:
                self.interrupt()
            return
        self.draft = ""
        if self.world.daemon.answered_by_user(self, retries=self.random.random() < 0.5):
            return
        if self.random.random() < 0.04:  # by hand, in any zone
            self.world.daemon.handoff_by_user(self)
            return
        self.hear(f"task {self.turn}", by_segue=False)

    def _stops_typing(self, size: float) -> None:
        """The user sends the draft, deletes it, or leaves it in the input line."""
        self.typing_until = self.world.schedule.now
        if self.process is None or self.is_busy:
            return
        text = self.draft
        if size < 0.35 and text:
            self.draft = ""
            self.hear(text, by_segue=False)
        elif size < 0.7:
            self.draft = ""
        else:
            self._later(_LEAVES_DRAFT_S * size, self._clears_draft)

    def _clears_draft(self) -> None:
        if not self.is_typing:
            self.draft = ""
            self.is_scrolled = False
            self.world.daemon.stir()

    # The agent

    def hear(self, text: str, *, by_segue: bool, is_typed: bool = True) -> None:
        """The agent receives a message: the user's, or segue's."""
        if self.process is None:
            return
        self.watch.received(text, by_segue=by_segue, is_typed=is_typed)
        kind = kind_of(text)
        if kind == "clear":
            old = self.talk
            self.talk = self._new_talk()
            self.asked_for = ""
            self.say("the context is cleared")
            self.world.daemon.changed_talk(old.id)
            self._changed()
            return
        talk, file = self.talk, file_in(text)
        talk.add(Prompt(at=self.now, text=text))
        talk.turns += 1
        talk.stop = StopSeen(StopReason.UNKNOWN, 0.3)
        self.asked_for = ""
        if kind == "request":
            self.asked_for = file
            steps = 0
        elif kind == "continue":
            steps, talk.unread = self.random.randrange(1, 20), file
        elif kind == "resume":
            steps = max(1, talk.steps_left)
        else:
            steps = models.steps_of_task(self.random)
        self._work(steps)

    def _work(self, steps: int) -> None:
        self.turn += 1
        self.is_busy, self.in_tool = True, False
        self.turn_since = self.world.schedule.now
        if not self.asked_for:
            self.talk.steps_left = steps
        self._changed()
        self._later(models.reply_s(self.random), partial(self._request, self.turn))

    def _request(self, turn: int) -> None:
        if turn != self.turn or self.process is None:
            return
        if Fault.HANG in self.armed:
            self.armed.discard(Fault.HANG)
            return  # silent until somebody interrupts it
        account = self.world.account_of(self.number)
        refusal = account.ask(self.world.schedule.now)
        if refusal is not None:
            self._refused(refusal, account)
            return
        account.replied(self.world.schedule.now)
        self._reply(turn)

    def _refused(self, refusal: str, account: Any) -> None:
        """The turn ends at the prompt with an error."""
        reasons = {"limited": StopReason.RATE_LIMIT, "refused": StopReason.AUTH}
        reason = reasons.get(refusal, StopReason.OVERLOADED)
        retry_at = None
        if refusal == "limited" and account.limit_told == "time":
            retry_at = EPOCH + account.limited_until + self.world.machine.clock.offset_s
        self.talk.stop = StopSeen(reason, 0.95, retry_at, refusal, "record")
        self.talk.add(Failure(at=self.now, message=refusal, reason=reason, resets_at=retry_at))
        self.is_busy = self.in_tool = False
        self.turn += 1
        self.say(f"the agent stops at its prompt: {refusal}")
        self._changed()

    def _reply(self, turn: int) -> None:
        talk, growth = self.talk, self.world.growth
        if self.asked_for:
            if not self.watch.is_measured:
                self.watch.request_read(talk.used_tokens)
            if Fault.DISOBEYS in self.armed:
                self.armed.discard(Fault.DISOBEYS)  # it does another step first
            else:
                wait_s = 5.0 + 40.0 * self.random.random()
                self._later(wait_s, partial(self._write_document, turn))
                return
        elif talk.steps_left <= 0:
            self._over()
            return
        talk.used_tokens += growth.reply(self.random)
        call = ToolCall(at=self.now, name="Bash", call_id=f"c{turn}-{len(talk.samples)}")
        if talk.unread:
            talk.used_tokens += 3_000
            call = ToolCall(at=self.now, name="Read", call_id="c0", argument=talk.unread)
            talk.unread = ""
        talk.add(Reply(at=self.now, text="on"), call)
        talk.measure(self.now)
        self.in_tool = True
        self._compact_if_full()
        self._changed()
        self._later(models.tool_s(self.random), partial(self._result, turn))

    def _compact_if_full(self) -> None:
        talk = self.talk
        if talk.used_tokens < (self.enforced or self.window):
            return
        self.watch.compacted()
        talk.used_tokens = self.model.base_tokens + 15_000
        talk.measure(self.now)

    def _result(self, turn: int) -> None:
        if turn != self.turn or self.process is None:
            return
        talk = self.talk
        self.in_tool = False
        talk.steps_left -= 1
        added = self.world.growth.result(self.random, self.model.max_result_tokens)
        if Fault.SPIKE in self.armed:
            self.armed.discard(Fault.SPIKE)
            added = int(0.12 * self.window)
        talk.used_tokens += added
        self.watch.grew(added)
        call = next((e for e in reversed(talk.events) if isinstance(e, ToolCall)), None)
        talk.add(ToolResult(at=self.now, call_id=call.call_id if call else ""))
        self.world.daemon.wake_handoffs()
        self._later(models.reply_s(self.random), partial(self._request, turn))

    def _over(self) -> None:
        """The turn has ended."""
        self.talk.add(Reply(at=self.now, text="done"), Ended(at=self.now, ok=True))
        self.talk.stop = StopSeen(StopReason.COMPLETED, 0.95)
        self.talk.measure(self.now)
        self.is_busy = self.in_tool = False
        self.asked_for = ""
        self._changed()

    def interrupt(self) -> None:
        """Somebody ends the turn with a key: the user, or segue."""
        if not self.is_busy:
            return
        self.turn += 1
        self.is_busy = self.in_tool = False
        self.asked_for = ""
        self.talk.add(interrupted(self.now))
        self.talk.stop = StopSeen(StopReason.USER_EXIT, 0.9, why="interrupted")
        self._changed()

    # Documents

    def _write_document(self, turn: int) -> None:
        if turn != self.turn or self.process is None or not self.asked_for:
            return
        talk, file = self.talk, self.asked_for
        if Fault.MUTE in self.armed:
            self.armed.discard(Fault.MUTE)
            self._over()
            return
        text = VALID
        if Fault.BAD_DOCUMENT in self.armed:
            self.armed.discard(Fault.BAD_DOCUMENT)
            text = BAD
        if not self.world.is_disk_full:
            self.world.daemon.documents.put(file, text)
        talk.used_tokens += 1_500
        talk.add(
            Reply(at=self.now, text="writing"),
            ToolCall(at=self.now, name="Write", call_id="w", files=(file,)),
            ToolResult(at=self.now, call_id="w"),
        )
        self.world.in_handoff(self.number, answered=True)
        if Fault.SPOILS_DOCUMENT in self.armed and text == VALID:
            self.armed.discard(Fault.SPOILS_DOCUMENT)
            spoils = partial(self._spoil_document, file, talk.id)
            self._later(0.5 + 6.0 * self.random.random(), spoils)
        self._over()

    def _spoil_document(self, file: str, talk_id: str) -> None:
        """The user edits the document and leaves it unfinished."""
        if file in self.world.daemon.documents.files:
            self.world.daemon.documents.put(file, BAD)
            self.watch.spoilt(file, is_cleared=self.talk.id != talk_id)
        self.world.daemon.stir()

    # What goes wrong

    def wake(self) -> None:
        """The clock was set."""
        self.world.daemon.stir()

    def die(self) -> None:
        """The machine goes down, and tmux with it."""
        process = self.process
        self.has_pane = False
        if process is not None:
            self.process = None
            self.turn += 1
            self.is_busy = self.in_tool = False
            self.draft = ""

    def suffer(self, planned: PlannedFault) -> bool:
        """Lets a fault of this session happen. Returns whether it had an effect."""
        fault, size = planned.fault, planned.size
        if fault in _ARMED:
            self.armed.add(fault)
            return True
        if fault is Fault.KILL_SEGUE:
            self.world.daemon.kill()
            return True
        if self.process is None:
            return False
        if fault is Fault.USER_TYPES:
            self._user_types(size)
        elif fault is Fault.CTRL_C and self.is_busy:
            self.watch.interrupted_by_user()
            self.interrupt()
        elif fault in (Fault.USER_EXIT, Fault.HANG_UP):
            self.watch.ended_by_user()
            is_closed = fault is Fault.HANG_UP
            self.has_pane = not is_closed
            code = None if size < 0.3 else -1 if is_closed else 0
            self._end_process(After(terminal="gone" if is_closed else "there", exit_code=code))
        elif fault in (Fault.KILL_AGENT, Fault.CRASH):
            code = -9 if fault is Fault.KILL_AGENT else (None if size < 0.3 else 1)
            self._end_process(After(terminal="there", exit_code=code))
        else:
            return False
        return True

    def _user_types(self, size: float) -> None:
        self.typing_until = self.world.schedule.now + 5.0 + 200.0 * size
        if int(size * 1_000) % 5 == 0:
            self.is_scrolled = True
            self._later(300.0, self._clears_draft)
        if not self.draft or self.draft == self.held:
            self.draft = f"words {self.turn}"
        self._later(6.0 + 200.0 * size, partial(self._stops_typing, size))
