"""A daemon with a clock, a terminal and agents of the test's, and the real rules, log, records and
documents: for tests of handoffs that need no process."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from segue.agents import terminals
from segue.core.handoffs.machine.types import HandoffStep
from segue.core.policy import Policy
from segue.core.sessions.forecasts.forecast import Forecast
from segue.core.sessions.reading import Reading
from segue.core.sessions.types import Process, Session, SessionState
from segue.core.terminals.screen import Screen
from segue.runs.clock import Clock
from segue.system.notices import Notices
from segue.system.tmux.panes import AgentPane
from segue.system.tmux.typist import TypingRefused
from segue.watch.daemon import Watch
from segue.watch.handoffs.messages import Messages
from segue.watch.log import Log, Note, open_log
from segue.watch.state import TrackedSession
from support.homes import call, interruption, prompt, reply

AT = 2_000_000_000.0  # later than any file's own time
WINDOW = 200_000
AUTO = Policy(auto_handoff=True, busy_wait_s=10, handoff_wait_s=60, draft_wait_s=30)
DOCUMENT = """# Handoff

## Goal
Do the twelve numbered steps of the job in this repository, each exactly once and in order.

## Completed Work
Steps 1 to 8: each was run with `sh job/step N`, and each said that it is done.

## Remaining Tasks
1. `sh job/step 9`, then 10, 11 and 12.
"""
IDLE, BUSY = Screen("idle"), Screen("busy")
DIALOG = Screen("dialog")


class Killed(BaseException):
    """kill -9, here."""


class Hand(Clock):
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = AT

    def now(self) -> float:
        return self.at

    awake = elapsed = now


class Rules:
    """The policy that a test gives."""

    def __init__(self, policy: Policy) -> None:
        self.given = policy
        self.notes: list[str] = []
        self.homes: dict[str, list[str]] = {}

    def policy(self, agent: str, model: str, cwd: str) -> Policy:
        return self.given

    def messages(self, cwd: str) -> Messages:
        return Messages({})


class Observer:
    """Sees what a test tells."""

    degraded: tuple[str, ...] = ()
    sessions: dict[Any, Any] = {}  # noqa: RUF012 - it has none

    def wake(self) -> None:
        pass

    def nudge(self, agent: str, session_id: str, path: str = "") -> None:
        pass


class Agent:
    """One claude in one pane, at work on its job. It does as it is told, at once."""

    def __init__(self, scene: "Scene", pid: int) -> None:
        self.scene, self.pid, self.number = scene, pid, 1
        self.screen: Screen | TypingRefused = BUSY
        self.seat = AgentPane(
            socket="", pane=f"%{pid}", tty="", pid=pid, start_ticks=pid, agent="claude"
        )
        self.obeys = True
        self.document = DOCUMENT
        self.standing = ""  # ours, in the input line
        self.sent: list[str] = []  # what came to it
        self.pressed: list[tuple[str, ...]] = []
        self.drafts: list[str] = []  # the user's that were taken out and put back
        self.docs_at_clear: list[str] = []
        self.used = 100_000
        self.forecast: Callable[[], Forecast | None] = lambda: None
        self.record(prompt("Do the job.", at=AT - 100, session=self.session_id))
        self.work()

    @property
    def session_id(self) -> str:
        return f"s{self.pid}-{self.number}"

    @property
    def path(self) -> Path:
        return self.scene.folder / f"{self.session_id}.jsonl"

    def record(self, line: str) -> None:
        with self.path.open("a") as file:
            file.write(line + "\n")

    def work(self) -> None:
        """A tool runs."""
        self.screen = BUSY
        works = call("Bash", command="make")
        now = self.scene.clock.at
        self.record(reply(1, self.used, at=now, session=self.session_id, content=works, stop=None))

    def finish(self) -> None:
        """Its turn is over, with nothing left to do."""
        self.screen = IDLE
        self.record(reply(2, self.used, at=self.scene.clock.at, session=self.session_id))

    def interrupt(self) -> None:
        """Somebody presses Escape."""
        self.screen = IDLE
        self.record(interruption(at=self.scene.clock.at, session=self.session_id))

    def session(self, *, process: bool = True) -> Session:
        reading = Reading(input_tokens=self.used, window_tokens=WINDOW)
        behind = Process(
            agent="claude", pid=self.pid, started_at=AT - 200, start_ticks=self.pid, certain=True
        )
        return Session(
            agent="claude",
            session_id=self.session_id,
            path=str(self.path),
            cwd=str(self.scene.project),
            model="claude-sonnet-4-5",
            started_at=AT - 100 if self.number == 1 else self.scene.clock.at,
            last_at=self.scene.clock.at,
            reading=reading,
            zone=reading.zone(self.scene.rules.given),
            forecast=self.forecast(),
            state=SessionState.WORKING if self.screen == BUSY else SessionState.WAITING_FOR_USER,
            process=behind if process else None,
        )

    def hear(self, text: str) -> None:
        """Somebody submitted it."""
        self.sent.append(text)
        now, name = self.scene.clock.at, self.session_id
        if text == "/clear":
            found = list((self.scene.project / ".segue" / "handoffs").glob("handoff-*.md"))
            self.docs_at_clear += [file.read_text() for file in found] or [""]
            self.scene.see(self, process=False)
            self.number, self.used = self.number + 1, 20_000
            self.path.touch()
            self.scene.see(self)
            return
        self.record(prompt(text, at=now, session=name))
        files = [line.strip() for line in text.splitlines() if line.strip().startswith("/")]
        if "Create handoff document now" in text and self.obeys:
            Path(files[0]).parent.mkdir(parents=True, exist_ok=True)
            Path(files[0]).write_text(self.document)
            os.utime(files[0], (now, now))
            self.record(reply(3, self.used, at=now, session=name))
        elif "and resume work" in text and self.obeys:
            file = text.split("Read handoff from ")[1].split(" and resume")[0]
            read = call("Read", file_path=file)
            self.record(reply(1, self.used, at=now, session=name, content=read))
            self.record(reply(2, self.used, at=now, session=name, content=call("Bash", command="")))


class Typist:
    """Types into agents of the test's, and may be killed in the middle."""

    def __init__(self, scene: "Scene") -> None:
        self.scene = scene

    def _agent(self, seat: AgentPane) -> Agent:
        return next(agent for agent in self.scene.agents if agent.pid == seat.pid)

    def look(self, seat: AgentPane, terminal: object) -> Screen | TypingRefused:
        agent = self._agent(seat)
        if isinstance(agent.screen, Screen) and agent.standing:
            return replace(agent.screen, draft=agent.standing)
        return agent.screen

    def type(
        self,
        seat: AgentPane,
        terminal: object,
        text: str,
        *,
        landed: Callable[[], bool],
        keep_draft: bool,
    ) -> TypingRefused | None:
        agent, seen = self._agent(seat), self.look(seat, terminal)
        self.scene.moment("before typing")
        if isinstance(seen, TypingRefused):
            return seen
        if seen.state != "idle":
            return TypingRefused("dialog" if seen.state == "dialog" else "busy")
        if seen.draft and seen.draft != text:
            if not keep_draft or seen.pasted:
                return TypingRefused("draft")
            agent.drafts.append(seen.draft)
        agent.standing = text
        self.scene.moment("in the input line")
        agent.standing = ""
        agent.hear(text)
        self.scene.moment("sent")
        return None if landed() else TypingRefused("swallowed", "nothing is heard of it")

    def press(
        self, seat: AgentPane, terminal: object, keys: tuple[str, ...], *, states: tuple[str, ...]
    ) -> TypingRefused | None:
        agent = self._agent(seat)
        if isinstance(agent.screen, TypingRefused) or agent.screen.state not in states:
            return TypingRefused("unknown")
        agent.pressed.append(keys)
        agent.interrupt()
        self.scene.moment("pressed")
        return None


class Scene:
    """A daemon, its log, and agents; a daemon that is killed is followed by another."""

    def __init__(self, folder: Path, policy: Policy = AUTO, agents: int = 1) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir(exist_ok=True)
        self.clock, self.rules, self.typist = Hand(), Rules(policy), Typist(self)
        self.said: list[str] = []
        self.left: int | None = None  # moments until it is killed
        self.moments: list[str] = []
        self.log: Log = open_log(folder / "watch.db")[0]
        self._append = self.log.append
        self.log.append = self._noted  # type: ignore[method-assign]
        self.agents: list[Agent] = []
        self.watch: Watch
        self.begin()
        for number in range(agents):
            self.agents.append(Agent(self, 100 + number))
            self.see(self.agents[-1])

    def moment(self, what: str) -> None:
        self.moments.append(what)
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Killed(what)

    def _noted(self, kind: str, **given: Any) -> Note:
        if kind not in ("handoff", "metrics"):
            return self._append(kind, **given)
        self.moment(f"before {kind}")
        note = self._append(kind, **given)
        self.moment(f"after {kind}")
        return note

    def begin(self) -> None:
        """A daemon that knows what runs, and what is in the log."""
        self.watch = Watch(
            env={},
            log=self.log,
            rules=self.rules,  # type: ignore[arg-type]
            say=self.said.append,
            clock=self.clock,
            notices=Notices(ways=()),
            observer=Observer(),  # type: ignore[arg-type]
            typist=self.typist,  # type: ignore[arg-type]
        )
        for agent in self.agents:
            self.see(agent)
        self.watch.handoffs.restore()

    def see(self, agent: Agent, *, process: bool = True) -> TrackedSession:
        """As the observer has it now."""
        session = agent.session(process=process)
        kept = self.kept(agent)
        if kept is None:
            kept = self.watch.state.tracked["claude", session.session_id] = TrackedSession(session)
            kept.seat, kept.terminal = agent.seat, terminals.find("claude")
        kept.session = session
        return kept

    def kept(self, agent: Agent) -> TrackedSession | None:
        return self.watch.state.tracked.get(("claude", agent.session_id))

    def use(self, agent: Agent, tokens: int) -> None:
        """The agent's context has grown, and the daemon sees it."""
        agent.used = tokens
        self.watch.gauge.measure(self.see(agent))

    def tick(self, seconds: float = 1.0) -> None:
        """As both threads do."""
        self.clock.at += seconds
        self.watch.gauge.hand_over_next()
        self.watch.handoffs.look_round()

    def until(self, *steps: HandoffStep, max_ticks: int = 400) -> None:
        """Until the last handoff is in one of these steps."""
        for _ in range(max_ticks):
            if (cycles := self.cycles()) and cycles[-1]["step"] in steps:
                return
            self.tick()
        raise AssertionError((self.cycles()[-1:], self.said))

    def cycles(self) -> list[dict[str, Any]]:
        """The handoffs as they are in the log, the oldest first."""
        found: dict[str, dict[str, Any]] = {}
        for note in self.log.since(0, ("handoff",), 100_000):
            found[note.data["id"]] = note.data["cycle"]
        return list(found.values())

    def notes(self, kind: str) -> list[dict[str, Any]]:
        return [note.data for note in self.log.since(0, (kind,), 100_000)]


def kinds(agent: Agent) -> list[str]:
    """What it was told."""
    names = {"Create handoff document now": "request", "/clear": "clear", "and resume": "resume"}
    return [next((names[n] for n in names if n in text), "other") for text in agent.sent]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.log.close()
