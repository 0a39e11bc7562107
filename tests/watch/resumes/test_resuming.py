"""How a session is gone on with: in its pane's shell, in a window, without a terminal. Real tmux,
real shells, and a stub in place of the agent and of `segue run`."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from support.terminals import panes
from support.waiting import until
from support.watch.stops import NOON, FakeRules

from segue.agents import terminals
from segue.core.accounts import Answer
from segue.core.handoffs.machine.types import HandoffStep
from segue.core.resumes import decisions as wake
from segue.core.sessions.types import Process, Session, SessionState
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.core.terminals.screen import Screen
from segue.runs.clock import Clock
from segue.runs.store import leases, open_store
from segue.system.process.procfs import system
from segue.system.tmux.panes import AgentPane, shell_in
from segue.system.tmux.typist import TypingRefused, Typist
from segue.watch.handoffs.seating import shell_waits
from segue.watch.log import Log
from segue.watch.resumes import places as module
from segue.watch.resumes.pending import Pending
from segue.watch.resumes.resuming import Resumer
from segue.watch.state import DaemonState, TrackedSession

ODD = "p$(touch PWNED)`touch PWNED`'\"; touch PWNED\n#{pane_id}#(touch PWNED)"
STUB = """\
import json, os, sys
with open(os.environ["STUB_FILE"], "a") as file:
    told = sys.argv[1:], os.getcwd(), "" if sys.stdin.isatty() else sys.stdin.read()
    file.write(json.dumps(told) + "\\n")
"""


class NoHands:
    """No handoff is under way, and everything is done at once."""

    cycle: Any = None

    def do(self, job: Callable[[], None]) -> None:
        job()

    def of(self, session: Session) -> Any:
        return self.cycle


class Answers:
    """In place of `Stops`."""

    def __init__(self) -> None:
        self.given: list[tuple[str, bool]] = []

    def tracked_of(self, pending: Pending) -> TrackedSession:
        return pending.tracked

    def carried(
        self, pending: Pending, why_not: str, *, retry: bool = False, is_begun: bool = False
    ) -> None:
        self.given.append((why_not, retry))


class Scene:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.project = folder / ODD
        self.project.mkdir()
        self.told, self.agent, self.segue = folder / "told", folder / "agent", folder / "segue"
        for stub in (self.agent, self.segue):
            stub.write_text(f"#!{sys.executable}\n{STUB}")
            stub.chmod(0o755)
        monkeypatch.setenv("STUB_FILE", str(self.told))
        self.log = Log(Path(os.environ["SEGUE_HOME"]) / "watch.db")
        self.rules = FakeRules(handoff_folder=".segue/handoffs")
        self.hands = NoHands()
        self.typist: Any = Typist()
        self.world = DaemonState(
            env=dict(os.environ),
            clock=Clock(),
            log=self.log,
            rules=self.rules,  # type: ignore[arg-type]
            typist=self.typist,
            notices=None,  # type: ignore[arg-type]
            say=lambda line: None,
        )
        self.waking = Resumer(self.world, self.hands, verify_s=8.0)  # type: ignore[arg-type]
        self.answers = Answers()
        self.waking.stops = self.answers  # type: ignore[assignment]

    def pending(self, session_id: str = "s-1", **fields: Any) -> Pending:
        path = self.folder / "s.jsonl"
        path.touch()
        session = Session(
            agent="claude",
            session_id=session_id,
            path=str(path),
            cwd=str(self.project),
            state=SessionState.GONE,
        )
        kept = TrackedSession(session, terminal=terminals.find("claude"), program=str(self.agent))
        stop = Stop(reason=StopReason.CRASH, confidence=0.9, resume="same_session")
        ending = wake.StoppedSession(
            agent="claude",
            session_id=session_id,
            project=str(self.project),
            stop=stop,
            at=NOON,
            **fields,
        )
        verdict = wake.WaitForReset(0, "")
        return Pending(id="w-0a", ending=ending, tracked=kept, draw=0.5, verdict=verdict)

    def carry(self, pending: Pending, place: Any, prompt: Any = "resume") -> tuple[str, bool]:
        self.waking.carry_out(pending, wake.Resume(place, prompt, "why"))
        return self.answers.given[-1]

    def runs(self) -> list[Any]:
        if not self.told.exists():
            return []
        return [json.loads(line) for line in self.told.read_text().splitlines()]

    def comes_back(self, pending: Pending) -> None:
        """From now on an agent is seen behind it, once the stub has run."""

        def tracked_of(asked: Pending) -> TrackedSession:
            if self.runs():
                process = Process(agent="claude", pid=1, started_at=1.0)
                asked.tracked.session = replace(asked.tracked.session, process=process)
            return asked.tracked

        self.answers.tracked_of = tracked_of  # type: ignore[method-assign, assignment]

    def is_clean(self) -> bool:
        return [*self.folder.rglob("PWNED")] == []


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    os.makedirs(os.environ["SEGUE_HOME"], mode=0o700)
    made = Scene(tmp_path, monkeypatch)
    yield made
    made.log.close()


@pytest.fixture
def server(scene: Scene) -> Iterator[panes.Server]:
    with panes.serving() as found:
        yield found


def shell(server: panes.Server, scene: Scene, *argv: str) -> AgentPane:
    """A shell in the odd folder, at its prompt."""
    argv = argv or ("bash", "--norc", "--noprofile", "-i")
    env = {"PS1": "> ", "STUB_FILE": str(scene.told), "ENV": ""}
    pane = server.tmux.new_window(str(scene.project), argv, env, "shell")
    until(lambda: server.tmux.shell_line(pane) == ">")
    found = server.tmux.pane(pane)
    assert found is not None
    facts = system().facts(found.pid)
    assert facts is not None
    return AgentPane(
        socket=server.tmux.socket, pane=pane, tty=found.tty, pid=found.pid,
        start_ticks=facts.start_ticks, agent="claude",
    )  # fmt: skip


def sit(pending: Pending, seat: AgentPane, line: str | None = ">") -> None:
    pending.tracked.seat, pending.tracked.socket, pending.tracked.shell_line = (
        seat,
        seat.socket,
        line,
    )


# In its pane


def test_its_shell_is_given_one_line_of_segues_own_and_no_name_is_run(
    scene: Scene, server: panes.Server
) -> None:
    pending = scene.pending()
    sit(pending, shell(server, scene))
    scene.comes_back(pending)
    assert scene.carry(pending, "pane") == ("", False)
    argv, cwd, _ = scene.runs()[0]
    assert argv[:3] == ["--resume", "s-1", "--"]
    assert argv[3].startswith("RESUMING")
    assert cwd == str(scene.project)
    text = "\n".join(server.tmux.capture(pending.tracked.seat.pane).lines)  # type: ignore[union-attr]
    typed = [line for line in text.splitlines() if line.startswith("> ") and line != "> "]
    assert len(typed) == 1
    assert shlex.split(typed[0][2:])[1:3] == ["back", "w-0a"]
    assert scene.is_clean()


@pytest.mark.parametrize("line", ["> something", None])
def test_a_shell_that_is_not_as_it_was_is_not_typed_into(
    scene: Scene, server: panes.Server, line: str | None
) -> None:
    scene.rules.given["resume_places"] = ("pane",)
    pending = scene.pending()
    seat = shell(server, scene)
    sit(pending, seat, line)
    why, retry = scene.carry(pending, "pane")
    assert ("typed in its shell" in why) or ("no shell waits" in why)
    assert not retry
    assert server.tmux.shell_line(seat.pane) == ">"
    assert scene.runs() == []


def test_a_pane_that_is_another_now_is_not_typed_into(scene: Scene, server: panes.Server) -> None:
    scene.rules.given["resume_places"] = ("pane",)
    pending = scene.pending()
    seat = shell(server, scene)
    sit(pending, replace(seat, tty="/dev/pts/none"))
    assert scene.carry(pending, "pane") == ("its pane is gone", False)


def test_a_shell_without_an_editor_hears_nothing_in_a_terminal_that_was_left_raw(
    scene: Scene, server: panes.Server
) -> None:
    if subprocess.run(["dash", "-c", ":"], check=False).returncode:
        pytest.skip("dash is not installed")
    seat = shell(server, scene, "dash", "-i")
    pane = server.tmux.pane(seat.pane)
    assert pane is not None
    until(lambda: shell_waits(pane))
    subprocess.run(["stty", "-F", seat.tty, "raw", "-echo"], check=True)
    until(lambda: shell_in(pane))  # it is there, and sleeps
    assert not shell_waits(pane)
    subprocess.run(["stty", "-F", seat.tty, "sane"], check=True)
    until(lambda: shell_waits(pane))


# In a window


def test_what_cannot_be_typed_is_begun_in_a_window_and_no_name_is_run(
    scene: Scene, server: panes.Server
) -> None:
    pending = scene.pending()
    sit(pending, shell(server, scene), None)
    scene.comes_back(pending)
    assert scene.carry(pending, "pane") == ("", False)
    argv, cwd, _ = scene.runs()[0]
    assert (argv[:2], cwd) == (["--resume", "s-1"], str(scene.project))
    assert scene.is_clean()


def test_what_back_has_to_say_is_known_at_once(scene: Scene, server: panes.Server) -> None:
    pending = scene.pending()
    pending.tracked.flags = ("--model", "x")
    sit(pending, shell(server, scene), None)
    with open_store() as store:
        key = "session:claude:s-1"
        other = subprocess.Popen(["sleep", "60"])
        try:
            facts = system().facts(other.pid)
            assert facts is not None
            me = leases.me()
            holder = replace(me, pid=other.pid, started=float(facts.start_ticks), note="a run")
            lease = store.acquire(key, holder, time.time())
            assert "has the session (a run)" in scene.carry(pending, "window")[0]
            store.release(lease)
        finally:
            other.kill()
            other.wait()
    assert scene.runs() == []
    os.rmdir(scene.project)
    why, _ = scene.carry(pending, "window")
    assert why


def test_an_id_that_an_agent_could_take_for_a_flag_is_refused(scene: Scene) -> None:
    why, _ = scene.carry(scene.pending("--dangerously-skip-permissions"), "window")
    assert "command line" in why


# Without a terminal


def test_without_tmux_a_run_takes_the_work_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "program", lambda: (str(scene.segue),))
    pending = scene.pending()
    assert scene.carry(pending, "headless") == ("", False)
    argv, cwd, task = scene.runs()[0]
    assert argv == ["run", "--agent", "claude", "--no-project-check", "-"]
    assert cwd == str(scene.project)
    (document,) = (scene.project / ".segue" / "handoffs").glob("handoff-*.md")
    assert json.dumps(str(document)) in task  # there is a line feed in it
    assert scene.is_clean()


def test_a_run_that_could_not_be_begun_says_why(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.segue.write_text("#!/bin/sh\necho 'no such agent' >&2\nexit 2\n")
    monkeypatch.setattr(module, "program", lambda: (str(scene.segue),))
    why, retry = scene.carry(scene.pending(), "headless")
    assert "ended with 2: no such agent" in why
    assert not retry


# At its prompt


class Typing:
    """In place of the typist."""

    def __init__(
        self, *screens: Screen, refuses: tuple[TypingRefused | None, ...] = (None,)
    ) -> None:
        self.screens, self.refuses = list(screens), list(refuses)
        self.typed: list[tuple[str, bool]] = []
        self.pressed: list[tuple[str, ...]] = []

    def look(self, seat: AgentPane, terminal: Any) -> Screen:
        return self.screens.pop(0) if len(self.screens) > 1 else self.screens[0]

    def press(self, seat: AgentPane, terminal: Any, keys: Any, **_: Any) -> None:
        self.pressed.append(tuple(keys))

    def type(self, seat: AgentPane, terminal: Any, text: str, **how: Any) -> TypingRefused | None:
        self.typed.append((text, how["keep_draft"]))
        return self.refuses.pop(0) if len(self.refuses) > 1 else self.refuses[0]


SEAT = AgentPane(socket="/none", pane="%1", tty="/dev/none", pid=1, start_ticks=1, agent="claude")


def test_a_harmless_question_is_closed_before_it_is_told_to_continue(scene: Scene) -> None:
    scene.world.typist = typing = Typing(Screen("dialog", is_harmless=True), Screen("idle"))  # type: ignore[assignment]
    pending = scene.pending(state="at_prompt")
    sit(pending, SEAT)
    assert scene.carry(pending, "pane", "continue") == ("", False)
    assert typing.pressed == [("Escape",)]
    assert typing.typed[0][0].startswith("RESUMING")


@pytest.mark.parametrize(
    ("refused", "retry"),
    [("busy", True), ("draft", True), ("user_active", True), ("gone", False), ("unknown", False)],
)
def test_what_is_in_the_way_just_now_is_told_from_what_stays(
    scene: Scene, refused: Any, retry: bool
) -> None:
    scene.world.typist = Typing(Screen("idle"), refuses=(TypingRefused(refused),))  # type: ignore[assignment]
    pending = scene.pending(state="at_prompt")
    sit(pending, SEAT)
    assert scene.carry(pending, "pane", "continue") == (refused, retry)


def test_a_draft_that_stays_is_kept_and_put_back(scene: Scene) -> None:
    scene.rules.given["draft_wait_s"] = 0.0
    refuses = (TypingRefused("draft"), None)
    scene.world.typist = typing = Typing(Screen("idle"), refuses=refuses)  # type: ignore[assignment]
    pending = scene.pending(state="at_prompt")
    sit(pending, SEAT)
    assert scene.carry(pending, "pane", "continue") == ("draft", True)
    assert scene.carry(pending, "pane", "continue") == ("", False)
    assert [keep for _, keep in typing.typed] == [False, True]


def test_a_session_that_is_being_handed_over_is_not_told_anything(scene: Scene) -> None:
    scene.hands.cycle = SimpleNamespace(step=HandoffStep.ASKING)
    pending = scene.pending(state="at_prompt")
    assert scene.carry(pending, "pane", "continue") == ("a handoff is in progress", True)


def test_a_limit_that_its_account_met_while_it_waited_for_its_turn_holds(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [Answer(until=time.time() + 60), Answer()]
    monkeypatch.setattr(scene.waking.gate, "ask", lambda kept, *, takes_turn: answers.pop(0))
    scene.world.typist = typing = Typing(Screen("idle"))  # type: ignore[assignment]
    pending = scene.pending(state="at_prompt")
    sit(pending, SEAT)
    assert scene.carry(pending, "pane", "continue") == ("its account is limited", True)
    assert not typing.typed
    assert scene.carry(pending, "pane", "continue") == ("", False)
    assert typing.typed


# `segue back`


def back(*args: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "segue", "back", *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


def test_back_starts_what_was_ordered_and_only_once(scene: Scene) -> None:
    order = {"id": "w-1", "argv": [str(scene.agent), "$(x)", "a\nb"], "cwd": str(scene.project)}
    scene.log.append("order", at=NOON, agent="claude", session_id="s", data=order | {"writes": "s"})
    home = os.environ["SEGUE_HOME"]
    assert back("w-1", "--state", home).returncode == 0
    assert scene.runs()[0][:2] == [["$(x)", "a\nb"], str(scene.project)]
    again = back("w-1")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "already started" in again.stderr
    assert len(scene.runs()) == 1


@pytest.mark.parametrize(
    "args", [("x; touch PWNED",), ("w-none",), ("w-$(touch PWNED)",), ("w-2",), ("w-3",)]
)
def test_back_says_what_is_wrong_in_a_line(scene: Scene, args: tuple[str, ...]) -> None:
    for name, argv in (("w-2", ["/no/such/agent"]), ("w-3", [str(scene.agent), "a\0b"])):
        data = {"id": name, "argv": argv, "cwd": "/"}
        scene.log.append("order", at=NOON, agent="claude", session_id="s", data=data)
    done = back(*args)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert done.stderr.strip().count("\n") <= 1
    errors = [note.data["error"] for note in scene.log.since(0, ("back",)) if "error" in note.data]
    assert len(errors) == (args[0] in ("w-2", "w-3"))
