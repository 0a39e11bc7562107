"""The real agents in `segue open`, typed to and read as a person does it, on a pty without tmux and
in an outer tmux, with the real daemon beside them. Enclosed: no test leaves loopback."""

import contextlib
import hashlib
import json
import os
import re
import signal
import socket as sockets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.paths import SCRIPT
from support.terminals import tui as tuis
from support.terminals.outside import PASTE, Command, Outside
from support.terminals.tui import MARK, Server, Tui
from support.watching import SEGUE, Watching, watching

from segue.core.handoffs import document as documents
from segue.core.sessions.spend import Spend
from segue.drill.model import server
from segue.drill.model.answer import ModelAnswer, ModelReply
from segue.drill.model.ask import Ask, Kind
from segue.drill.model.script import Script
from segue.drill.plays import enclosure
from segue.drill.plays import job as jobs
from segue.drill.scenarios.types import Context, Job, Scenario, ScenarioRule
from segue.system.process.descendants import end_all

LATE_S = 90.0
DETACHES = b"\x1c"
COLOURED = {"claude": rb"38;2;", "codex": rb"\x1b\[(?:\d+;)*3[1-6]m", "opencode": rb"38;2;"}
"""Of codex's own colours there are sixteen: those of the user's terminal."""
IN_TMUX = ("new-session", "env", "PS1=in-tmux$ ", "sh", "-i", ";", "set", "status", "off")
CONFIG = """
[policy]
busy_wait_s = 0
reset_jitter_min_s = 1
reset_jitter_max_s = 1
resume_gap_s = 0
stand_by_s = 2
monitor_mark = 0.15
warning_mark = 0.25
critical_mark = 0.35
soft_mark = 0.60
hard_mark = 0.60
"""


class Desktop(Server):
    """An enclosed shell on a pty: the agent is started in it, with `segue open`."""

    def __init__(self, agent: str, folder: Path, model: server.Model, **more: Any) -> None:
        given = {"window_tokens": 200_000, "size": (110, 40), "options": {}, "env": {}}
        given |= {"settings": None, "prepare": None, "work": None}
        super().__init__(agent, folder, model, **{**given, **more})
        self.socket = str(folder / "segue/open/tmux.sock")
        self.terminal_outside: Outside | None = None

    @contextlib.contextmanager
    def open_outside(self, shell: Sequence[str]) -> Iterator[Outside]:
        ours, theirs = sockets.socketpair(sockets.AF_UNIX, sockets.SOCK_STREAM)
        argv = [sys.executable, SCRIPT, __file__, str(theirs.fileno()), *shell]
        with contextlib.ExitStack() as stack:
            found = Outside(
                {**os.environ, MARK: self.mark}, str(self.project), size=self.size,
                shell=enclosure.command(argv), pass_fds=[theirs.fileno()],
            )  # fmt: skip
            stack.callback(self._end_all)
            stack.callback(found.close)
            theirs.close()
            _, handles, *_ = sockets.recv_fds(ours, 1, 1)
            assert handles, found.sent
            listener = sockets.socket(fileno=handles[0])
            self._stage(listener.getsockname()[1])
            model = server.Running(tuis._Enclosed(self.model, listener))
            self.requests = model.requests
            model.start()
            stack.callback(model.stop)
            env = {**self.env, MARK: self.mark, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
            ours.sendall(json.dumps({**env, "PS1": "$ ", "ENV": ""}).encode() + b"\n")
            ours.close()
            found.begin()
            yield found

    def _end_all(self) -> None:
        self.tmux("kill-server", check=False)
        end_all(self._left)


class Person:
    """Before a terminal with an agent that is hosted."""

    def __init__(self, desktop: Desktop, outside: Outside) -> None:
        self.desktop, self.outside = desktop, outside
        flags = tuis._FLAGS[desktop.agent]
        self.command: Command = outside.run(*SEGUE, "open", desktop.agent, *flags)
        panes = ("list-panes", "-a", "-F", "#{pane_id}")
        outside.until(lambda: desktop.tmux(*panes, check=False), "its pane", LATE_S)
        self.tui = Tui(desktop, (desktop.tmux(*panes) or "").strip(), in_shell=False)

    @property
    def pid(self) -> int:
        """Of the agent."""
        return psutil.Process(self.tui.pid).children()[0].pid

    def told(self, form: str) -> str:
        return (self.desktop.tmux("display-message", "-p", "-t", self.tui.pane, form) or "").strip()

    def paste(self, text: str) -> None:
        """Pastes and sends it."""
        self.tui.wait_for(lambda s: s.state == "idle", LATE_S)
        self.outside.type(PASTE[0] + text.replace("\n", "\r").encode() + PASTE[1])
        self.tui.wait_for(lambda s: s.draft != "", LATE_S, "its draft")
        self.tui._still()
        self.outside.type("\r")

    def leave(self) -> None:
        self.outside.type(DETACHES)
        assert self.command.wait() == 0
        self.outside.until(lambda: self.outside.is_as_before, "the terminal as before")

    def come_back(self) -> None:
        self.command = self.outside.run(*SEGUE, "open")
        self.outside.until(lambda: self.told("#{session_attached}") == "1", "its terminal")


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: sockets are in there."""
    return tmp_path_factory.mktemp("o")


@pytest.fixture(autouse=True)
def utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


def heard(model: Script) -> list[Ask]:
    """What the model is asked from now on, of the work."""
    asks: list[Ask] = []
    answer = model.answer

    def hear(ask: Ask, now: float) -> ModelAnswer:
        if ask.kind is Kind.MAIN:
            asks.append(ask)
        return answer(ask, now)

    model.answer = hear  # type: ignore[method-assign]
    return asks


def await_work(watch: Watching, person: Person, job: Job) -> None:
    def is_done() -> bool:
        return len(jobs.check(person.desktop.project, job, finished=False).done) == job.steps

    watch.until(is_done, "the job", LATE_S)
    whole = jobs.check(person.desktop.project, job, finished=True)
    assert whole.is_whole, whole


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode"])
def test_it_is_used_as_without_segue_and_handed_over_and_resumed_by_the_daemon(
    agent: str, place: Path
) -> None:
    job = Job(steps=8, step_s=1.2, output_bytes=8_000)
    limit = ScenarioRule(before_step=2, fault="plan_limit", resets_in_s=4)
    scenario = Scenario(
        about="",
        job=job,
        context=Context(fills_after_steps=9, refuses=False),
        rules=[] if agent == "opencode" else [limit],  # it waits for limits by itself
    )
    options = {"plan": "1"} if agent == "claude" else {}
    model = Script(scenario, window_tokens=200_000)
    asks = heard(model)
    desktop = Desktop(agent, place / "tui", model, options=options, work=job)
    with desktop.open_outside(("sh", "-i")) as outside:
        with watching(place / "tui/segue", desktop.env, "--auto", config=CONFIG) as watch:
            person = Person(desktop, outside)
            person.tui.wait_for(lambda s: s.state == "idle", LATE_S)
            outside.resize(100, 35)
            outside.until(lambda: person.told("#{pane_width} #{pane_height}") == "100 35", "size")
            # It is left, and works on; it is returned to.
            words = "x" * 79 + "\n"
            person.tui.hold(8)  # above the mark, and before the end
            person.paste(desktop.prompt + "\n\nNever mind this:\n" + words * 64)
            watch.until(lambda: asks, "a request", LATE_S)
            told = [part.text for part in asks[0].parts if part.role == "user"]
            assert sum(text.count(words.strip()) for text in told) == 64
            person.leave()
            watch.until(watch.steps, "the mark", LATE_S)
            person.tui.let_go()
            watch.until(lambda: watch.steps()[-1:] == ["done"], "the handoff", LATE_S)
            # From another terminal: one inside a tmux, which is not the one it sits in.
            outer = outside.run("tmux", "-f", "/dev/null", "-S", str(place / "outer"), *IN_TMUX)
            outside.until(lambda: b"in-tmux$" in outer.sent, "the outer tmux")
            person.come_back()
            await_work(watch, person, job)
            assert re.search(COLOURED[agent], outside.sent), "its own colours, as it sent them"
            (kept,) = watch.notes("metrics")
            assert (kept.data["outcome"], kept.data["went_on"]) == ("done", True)
            last = watch.notes("handoff")[-1].data["cycle"]
            assert documents.check(Path(last["file"]).read_text()) == ""
            stops = [note.data["reason"] for note in watch.notes("stop")]
            if agent != "opencode":
                assert "rate_limit" in stops
                resumed = [n for n in watch.notes("wake") if n.data["verdict"] == "resumed"]
                assert len(resumed) == 1
            shown = json.loads(watch.segue("status", "--json"))["sessions"]
            assert str(desktop.project) in {each["cwd"] for each in shown}
        person.tui.wait_for(lambda s: s.state == "idle", LATE_S)
        # Ctrl+C takes a draft away, and ends nobody; its exit code is segue's.
        outside.type("words")
        person.tui.wait_for(lambda s: s.draft == "words", LATE_S)
        outside.type(b"\x03")
        person.tui.wait_for(lambda s: s.draft == "", LATE_S)
        outside.type("/exit")
        person.tui.wait_for(lambda s: s.draft == "/exit", LATE_S)
        person.tui._still()
        outside.type("\r")
        assert person.command.wait() == 0
        outside.type("exit\n")
        assert outer.wait("the end of the outer tmux") == 0
        outside.until(lambda: outside.is_as_before, "the terminal as before")


def test_one_that_crashed_continues_in_a_session_that_can_be_returned_to(place: Path) -> None:
    job = Job(steps=3, step_s=0.5)
    model = Script(Scenario(about="A crash.", job=job), window_tokens=200_000)
    desktop = Desktop("claude", place / "tui", model, work=job)
    with (
        desktop.open_outside(("sh", "-i")) as outside,
        watching(place / "tui/segue", desktop.env, "--auto", config=CONFIG) as watch,
    ):
        person = Person(desktop, outside)
        # The server must outlive it: the daemon's own would not be enclosed.
        desktop.tmux("new-session", "-d", "cat")
        person.paste(desktop.prompt)
        watch.until(lambda: jobs.check(desktop.project, job, finished=False).done, "a step", LATE_S)
        os.kill(person.pid, signal.SIGKILL)
        assert person.command.wait() == 137
        outside.until(lambda: outside.is_as_before, "the terminal as before")
        await_work(watch, person, job)
        (open_again,) = json.loads(watch.segue("open", "--list", "--json"))["open"]
        assert open_again["cwd"] == str(desktop.project)
        person.command = outside.run(*SEGUE, "open")
        outside.until(lambda: b"Claude Code" in person.command.sent, "its screen")
        person.leave()


class Lines:
    """Answers with more lines than a screen has, each unlike the others."""

    texts = tuple(f"{hashlib.sha256(bytes((n,))).hexdigest()[:24]}" for n in range(120))

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        spend = Spend(input_tokens=1_000, output_tokens=10)
        text = "A title" if ask.kind is not Kind.MAIN else "\n\n".join(self.texts)
        return ModelAnswer(reply=ModelReply(text=text, spend=spend))


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode"])
def test_the_wheel_scrolls_back_and_a_killed_segue_leaves_the_terminal_as_before(
    agent: str, place: Path
) -> None:
    desktop = Desktop(agent, place / "tui", Lines())
    with desktop.open_outside(("sh", "-i")) as outside:
        person = Person(desktop, outside)
        person.paste("say much")
        early, last = Lines.texts[70], Lines.texts[-1]
        outside.until(lambda: last in person.tui.text(), "the answer", LATE_S)
        person.tui.wait_for(lambda s: s.state == "idle", LATE_S)
        assert early not in person.tui.text()
        before = len(outside.sent)

        def is_back() -> bool:
            outside.type(b"\x1b[<64;5;5M")
            return early.encode() in outside.sent[before:] or early in person.tui.text()

        outside.until(is_back, "what was scrolled out")
        # Who types then, types to the agent.
        outside.type("words")
        person.tui.wait_for(lambda s: s.draft == "words", LATE_S)
        assert person.told("#{pane_in_mode}") == "0"
        client = int((desktop.tmux("list-clients", "-F", "#{client_pid}") or "0").strip())
        segue = psutil.Process(client).parent()
        assert segue is not None
        agent_pid = person.pid
        segue.kill()
        assert person.command.wait() == 137
        outside.until(lambda: outside.is_as_before, "the terminal as before")
        person.come_back()
        person.tui.wait_for(lambda s: s.draft == "words", LATE_S)
        assert person.pid == agent_pid
        person.leave()


if __name__ == "__main__":
    enclosure.demand()
    with sockets.socket(fileno=int(sys.argv[1])) as other:
        with sockets.create_server(("127.0.0.1", 0)) as listener:
            sockets.send_fds(other, [b"x"], [listener.fileno()])
        told = other.makefile().readline()
    if told:
        os.execvpe(sys.argv[2], sys.argv[2:], json.loads(told))
