"""A leg's process as a model: an agent that asks its provider, calls tools, does the steps of its
task and prints records. It survives segue, and its records remain, as a file would."""

from collections.abc import Callable
from random import Random
from typing import Literal

from msgspec import Struct, field

from segue.core.runs.types import StartLeg
from segue.testing.simulation import models
from segue.testing.simulation.clock import Schedule
from segue.testing.simulation.faults import Fault
from segue.testing.simulation.machines import Machine
from segue.testing.simulation.models import AgentModel, Growth
from segue.testing.simulation.providers import Account

_HITS = 0.004
"""The share of replies that end exactly at a mark, the only place where `<` and `<=` differ."""
Kind = Literal["named", "reply", "tool", "boundary", "answer", "works_on", "over", "compaction"]
Cause = Literal[
    "completed", "context", "limited", "overloaded", "outage", "refused", "crash", "killed",
    "lost", "ended", "declined",
]  # fmt: skip


class Record(Struct, frozen=True, kw_only=True):
    """One line of a leg's output."""

    kind: Kind
    at: float  # awake time of the machine
    used_tokens: int = 0
    acted: bool = False


class Conversation(Struct, kw_only=True):
    """A session on disk."""

    id: str
    window_tokens: int
    used_tokens: int  # size of the next request
    known: int = 0  # the last step of the task that it knows about
    replied: bool = False
    in_doubt: bool = False  # its last tool call has no result
    largest_turn: int = 0
    loads: bool = True
    loaded_tokens: int = 0  # the part that an agent with a `resume_factor` does not repeat again


class Project(Struct, kw_only=True):
    """The working tree: the steps that were done, and how often each was."""

    steps: int
    done: dict[int, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The last step before which all steps are done, inclusive."""
        place = 0
        while place + 1 in self.done:
            place += 1
        return place


class Exit(Struct, frozen=True, kw_only=True):
    """How a process ended."""

    cause: Cause
    at: float
    by_command: str = ""
    more: str = ""


class Leg:
    """The lifetime of one agent process."""

    def __init__(
        self,
        order: StartLeg,
        conversation: Conversation,
        project: Project,
        *,
        model: AgentModel,
        growth: Growth,
        account: Account,
        machine: Machine,
        schedule: Schedule,
        random: Random,
        armed: set[Fault],
        report: Callable[[str], None],
        marks: tuple[int, ...] = (),
    ) -> None:
        self.order, self.conversation, self.project = order, conversation, project
        self.model, self.growth, self.account, self.machine = model, growth, account, machine
        self.schedule, self.random, self.armed, self.report = schedule, random, armed, report
        self.marks = marks  # sizes to hit exactly now and then
        self.records: list[Record] = []
        self.exit: Exit | None = None
        self.wakes: Callable[[], None] = lambda: None
        self.boot = machine.boot
        self.began = machine.clock.awake()
        self.replies = self.spent_tokens = 0
        self.done_before = len(project.done)
        self.is_asked = order.purpose == "checkpoint"
        self.is_closed = self.is_ending = self.in_tool = self.is_over = self.is_deaf = False
        self.is_alone = False  # nobody drove its run for a while, so no limit was checked
        self.request_tokens = 0  # size of the request that asked for a checkpoint
        self.largest_request = 0
        self.fails = ""  # the message with which it fails before it does anything
        self.has_read = False  # the model has read the request for a checkpoint
        self._after(1.0 + 4.0 * random.random(), self._load)

    @property
    def is_alive(self) -> bool:
        """Whether its process is running."""
        return self.exit is None

    # What segue does to it

    def ask(self, *, now: bool) -> None:
        """Asks the agent for a checkpoint. `now` interrupts its tool first."""
        if self.is_asked or not self.is_alive:
            return
        self.is_asked = True
        if now and self.in_tool:
            self.in_tool = False
            self.conversation.in_doubt = True
            self._turn += 1
            self._after(0.5, self._request)
        elif self.is_over:
            self.is_over = False
            self._after(0.5, self._request)

    def close(self) -> None:
        """Closes the process's input: it ends by itself once its turn is over."""
        if not self.is_closed:
            self.is_closed = True
            if self.is_over:
                self._after(0.5, lambda: self.end("completed"))

    def stop(self, how: str) -> None:
        """Ends the process as its keeper does."""
        if not self.is_alive or (self.is_ending and how != "kill"):
            return
        self.is_ending = True
        if how == "close" and self.is_over:
            self.close()
            return
        wait_s = 0.05 if how == "kill" else 0.3 + 6.0 * self.random.random()
        self._after(wait_s, lambda: self.end("ended", by_command=how), always=True)

    def end(self, cause: Cause, by_command: str = "") -> None:
        """The process ends, unless it has ended already."""
        if self.exit is None:
            if self.in_tool:
                self.conversation.in_doubt = True
            self.exit = Exit(
                cause=cause, at=self.schedule.now, by_command=by_command, more=self.fails
            )
            self.wakes()

    # What the agent does

    _turn = 0

    def _after(self, wait_s: float, act: Callable[[], None], *, always: bool = False) -> None:
        turn = self._turn

        def due() -> None:
            if not self.is_alive or self.boot != self.machine.boot:
                return
            if (awake_at := self.machine.awake_at) > self.schedule.now:
                self.schedule.at(awake_at, due)
            elif always or turn == self._turn:
                act()

        self.schedule.at(self.schedule.now + wait_s, due)

    def _say(self, kind: Kind, *, acted: bool = False) -> None:
        used = self.conversation.used_tokens
        self.records.append(
            Record(kind=kind, at=self.machine.clock.awake(), used_tokens=used, acted=acted)
        )
        self.wakes()

    def _load(self) -> None:
        if Fault.NOT_LOADED in self.armed and self.order.session_id:
            self.armed.discard(Fault.NOT_LOADED)
            self.conversation.loads = False
        if not self.conversation.loads:
            self.end("crash")
            return
        talk = self.conversation
        if self.order.session_id:
            new = max(0, talk.used_tokens - talk.loaded_tokens)
            talk.used_tokens += int(new * (self.model.resume_factor - 1))
            talk.loaded_tokens = talk.used_tokens
        elif not talk.replied:
            talk.loaded_tokens = talk.used_tokens  # what it begins with is sent once
        if self.conversation.in_doubt:  # it looks before it repeats that call
            self.conversation.known = max(self.conversation.known, self.project.last)
            self.conversation.in_doubt = False
        self._say("named")
        self._request()

    def _request(self) -> None:
        talk, model = self.conversation, self.model
        if Fault.HANG in self.armed:
            self.armed.discard(Fault.HANG)
            self.is_deaf = True
            return  # silent until it is ended
        if Fault.CRASH in self.armed:
            self.armed.discard(Fault.CRASH)
            self.end("crash")
            return
        if self.fails:
            self.end("crash")
            return
        if Fault.DECLINES in self.armed:
            self.armed.discard(Fault.DECLINES)
            self.end("declined")
            return
        at = model.compacts_at
        if at is not None and talk.used_tokens >= at * talk.window_tokens:
            talk.used_tokens = model.base_tokens + 15_000
            self.report("compacted")
            self._say("compaction")
        if talk.used_tokens > talk.window_tokens:
            self.report("exhausted")
            self.end("context")
            return
        refusal = self.account.ask(self.schedule.now)
        if refusal is not None:
            causes: dict[str, Cause] = {
                "limited": "limited",
                "overloaded": "overloaded",
                "outage": "outage",
                "refused": "refused",
            }
            cause = causes[refusal]
            self._after(2.0 + 20.0 * self.random.random(), lambda: self.end(cause))
            return
        self.spent_tokens += talk.used_tokens
        self.largest_request = max(self.largest_request, talk.used_tokens)
        if self.is_asked and not self.has_read:
            self.has_read, self.request_tokens = True, talk.used_tokens
            self.report("request read")
        self._after(models.reply_s(self.random), self._reply)

    def _reply(self) -> None:
        talk = self.conversation
        talk.used_tokens += self.growth.reply(self.random)
        ahead = [mark for mark in self.marks if mark > talk.used_tokens]
        if ahead and self.random.random() < _HITS:
            mark = ahead[int(len(ahead) * self.random.random())]
            talk.largest_turn = max(talk.largest_turn, mark - talk.used_tokens)
            talk.used_tokens = mark
        talk.replied = True
        self.replies += 1
        if self.has_read:
            self._answer()
        elif talk.known >= self.project.steps:
            self._say("reply", acted=True)
            self._finish_turn()
        else:
            self._call()

    def _answer(self) -> None:
        if Fault.MUTE in self.armed:
            self.armed.discard(Fault.MUTE)
            self.is_deaf = True
            return
        if Fault.DISOBEYS in self.armed and self.order.purpose == "work":
            self.armed.discard(Fault.DISOBEYS)
            self.has_read = self.is_asked = False
            self._say("works_on")
            self._call()
            return
        self._say("reply")
        self._say("answer")
        self.report("answered")
        self.is_over = True
        if self.order.purpose == "checkpoint" or self.is_closed:
            self._after(1.0, lambda: self.end("completed"))

    def _finish_turn(self) -> None:
        self.is_over = True
        self._say("over")
        if not self.model.talks or self.is_closed:
            self._after(1.0, lambda: self.end("completed"))

    def _call(self) -> None:
        self.in_tool = True
        self._say("reply", acted=True)
        self._say("tool")
        self._after(models.tool_s(self.random), self._result)

    def _result(self) -> None:
        talk = self.conversation
        step = talk.known + 1
        self.project.done[step] = self.project.done.get(step, 0) + 1
        self.report(f"step {step}")
        talk.known = step
        most = self.model.max_result_tokens
        added = self.growth.result(self.random, most)
        if Fault.SPIKE in self.armed:
            self.armed.discard(Fault.SPIKE)
            added = int(0.12 * talk.window_tokens)
        talk.used_tokens += added
        talk.largest_turn = max(talk.largest_turn, added)
        self.in_tool = False
        self._say("boundary")
        self._request()
