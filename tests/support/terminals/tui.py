"""A real agent's TUI in a tmux of its own, talking to a scripted model in the test's process.

The tmux server, and so all that runs in its panes, stands in a network namespace with nothing but
loopback. The model's listening socket is made in there and handed out, so that the model can be any
object of the test's. The tmux socket is a file: whoever has `Tui.env` can type into the panes.
"""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import socket as sockets
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from segue.agents import terminals
from segue.agents.contracts.terminal import Terminal
from segue.core.terminals.screen import PaneCapture, Screen
from segue.drill import casts
from segue.drill.casts.installed import write
from segue.drill.model import server
from segue.drill.model.ask import Ask, Kind
from segue.drill.model.connection import READ_BYTES
from segue.drill.model.script import Script
from segue.drill.plays import enclosure, job
from segue.drill.scenarios.types import Job, Scenario
from segue.system.process.descendants import end_all, runs
from support.agents.driven import Model
from support.paths import SCRIPT
from support.playing import AGENTS_FOLDER, missing
from support.waiting import pause_s, until

MARK = "SEGUE_TUI"
"""In the environment of all that runs in such a tmux."""
LIMIT_S = 90.0
_LOOK_S = 0.05
_FLAGS = {
    "claude": ("--allowedTools", "Bash", "--model", "claude-sonnet-4-5"),
    # Its daemon would outlive it, and an old model's name is answered with a chooser.
    "codex": ("--no-daemon", "--dangerously-bypass-approvals-and-sandbox", "-m", "drill-model"),
    "opencode": (),
}
_STILL = {"opencode": (".local/state/opencode/kv.json", {"animations_enabled": False})}
"""Nobody reads how it spins, and half of its work is to draw that."""
_POSITION = "#{cursor_x} #{cursor_y} #{pane_width} #{alternate_on} #{pane_height}"
_SHELL = ("sh", "-i")


class Server:
    """The tmux server, the model and the agent's home: what all panes share."""

    def __init__(
        self,
        agent: str,
        folder: Path,
        model: server.Model,
        *,
        window_tokens: int,
        size: tuple[int, int],
        options: Mapping[str, str],
        env: Mapping[str, str],
        settings: Mapping[str, Any] | None,
        prepare: Callable[[casts.PlayStage], None] | None,
        work: Job | None,
    ) -> None:
        self.agent, self.model, self.size, self.folder = agent, model, size, folder
        self.terminal: Terminal = _terminal(agent)
        cast = casts.find(agent)
        self.cast = cast
        self.program = cast.find({**os.environ, "SEGUE_AGENTS": AGENTS_FOLDER}) or ""
        if not self.program:
            missing(f"{agent} is not installed: {cast.install}")
        # Short: a socket's path may have 107 characters.
        self.socket = str(folder / "tmux")
        self.mark = uuid.uuid4().hex
        self.home, self.project = folder / "agent", folder / "project"
        for place in (self.home, self.home / "tmp", self.project):
            place.mkdir(parents=True)
        self.prompt = job.make(self.project, work or Job())
        self.held = folder / "held"
        _make_holdable(self.project, self.held)
        self._given = env
        self._settings, self._prepare = settings, prepare
        self._window_tokens, self._options = window_tokens, options
        self.env: dict[str, str] = {}
        self.requests: list[Any] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """From the tmux server's start to the end of everything in it."""
        ours, theirs = sockets.socketpair(sockets.AF_UNIX, sockets.SOCK_STREAM)
        with ours, theirs:
            argv = [sys.executable, SCRIPT, __file__, str(theirs.fileno()), self.socket]
            with contextlib.ExitStack() as stack:
                # The stage needs the port, and the port needs the namespace: so the environment
                # is sent once the socket is here.
                enclosed = subprocess.Popen(
                    enclosure.command(argv),
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env={**os.environ, MARK: self.mark},
                )
                stack.callback(self._end, enclosed)
                theirs.close()
                _, found, *_ = sockets.recv_fds(ours, 1, 1)
                assert found, enclosed.stderr and enclosed.stderr.read().decode()
                listener = sockets.socket(fileno=found[0])
                stage = self._stage(listener.getsockname()[1])
                model = server.Running(_Enclosed(self.model, listener))
                self.requests = model.requests
                model.start()
                stack.callback(model.stop)
                ours.sendall(json.dumps({**stage, MARK: self.mark}).encode() + b"\n")
                self._await_tmux(enclosed)
                yield

    def _stage(self, port: int) -> dict[str, str]:
        stage = casts.PlayStage(
            home=self.home,
            project=self.project,
            port=port,
            window_tokens=self._window_tokens,
            options=self._options,
        )
        self.cast.prepare(stage)
        if self.agent in _STILL:
            write(stage, *_STILL[self.agent])
        if self._settings is not None:
            folder = self.home / ".claude"
            (folder / "settings.json").write_text(json.dumps(self._settings))
        if self._prepare is not None:
            self._prepare(stage)
        env = dict(self.cast.start("x", stage, "x", "").env)
        env |= {"LC_ALL": "C.UTF-8", "PS1": "$ ", "ENV": "", **self._given}
        env = {name: value for name, value in env.items() if value}
        segue = {"SEGUE_HOME": str(self.folder / "segue"), "SEGUE_AGENTS": AGENTS_FOLDER}
        self.env = {**env, **segue}
        return env

    def _await_tmux(self, enclosed: "subprocess.Popen[bytes]") -> None:
        until = time.monotonic() + LIMIT_S
        while enclosed.poll() is None and time.monotonic() < until:
            if self.tmux("set-option", "-g", "status", "off", check=False) is not None:
                return
            time.sleep(_LOOK_S)
        raise AssertionError("tmux did not start")

    def tmux(self, *args: str, check: bool = True, text: str | None = None) -> str | None:
        """What a tmux command prints. It never starts a server of its own."""
        argv = ["tmux", "-N", "-u", "-S", self.socket, *args]
        done = subprocess.run(
            argv, input=text, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        if done.returncode:
            assert not check, done.stderr
            return None
        return done.stdout

    def argv(self, *more: str) -> list[str]:
        """How the agent is started in a terminal."""
        return [self.program, *_FLAGS[self.agent], *more]

    def _end(self, enclosed: "subprocess.Popen[bytes]") -> None:
        """Ends all that carries the mark: tools run in sessions of their own."""
        self.tmux("kill-server", check=False)
        with contextlib.suppress(subprocess.TimeoutExpired):
            enclosed.wait(2.0)
        end_all(self._left)
        enclosed.wait(LIMIT_S)
        if enclosed.stderr:
            enclosed.stderr.close()

    def _left(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                if process.environ().get(MARK) == self.mark and runs(process):
                    found.append(process)
        return found


class Tui:
    """One agent in one pane."""

    def __init__(self, place: Server, pane: str, in_shell: bool) -> None:
        self.place, self.pane, self.in_shell = place, pane, in_shell
        self.agent, self.terminal, self.model = place.agent, place.terminal, place.model
        self.socket, self.home, self.project = place.socket, place.home, place.project
        self.env, self.prompt = place.env, place.prompt

    @property
    def pid(self) -> int:
        """The agent's process; 0 if it has ended."""
        found = self.place.tmux("display-message", "-p", "-t", self.pane, "#{pane_pid}")
        pid = int(found or 0)
        if not self.in_shell:
            return pid
        children = psutil.Process(pid).children()
        return children[0].pid if children else 0

    @property
    def requests(self) -> list[Any]:
        """What the model was asked so far (`segue.drill.model.log.Logged`)."""
        return self.place.requests

    def shown(self) -> PaneCapture:
        """What the pane shows now, all of it from one moment."""
        target = ("-t", self.pane)
        told = self.place.tmux(
            *("display-message", "-p", *target, _POSITION, ";"),
            *("capture-pane", "-p", *target, ";"),
            *("capture-pane", "-p", "-e", *target),
        )
        assert told is not None
        position, *lines = told.split("\n")
        x, y, width, alternate, height = map(int, position.split())
        plain, styled = lines[:height], lines[height : 2 * height]
        return PaneCapture(tuple(plain), tuple(styled), (x, y), width, bool(alternate))

    def screen(self) -> Screen:
        """The same as it is read."""
        return self.terminal.read(self.shown())

    def text(self) -> str:
        """The same without styles."""
        return "\n".join(self.shown().lines).rstrip()

    def wait_for(
        self, is_so: Callable[[Screen], bool] | str, limit_s: float = LIMIT_S, what: str = ""
    ) -> Screen:
        """Until the screen is so, or shows that text."""
        began = time.monotonic()
        while True:
            shown = self.shown()
            screen = self.terminal.read(shown)
            text = "\n".join(shown.lines)
            if is_so in text if isinstance(is_so, str) else is_so(screen):
                return screen
            waited_s = time.monotonic() - began
            assert waited_s < limit_s, f"{what or is_so}: {screen}\n{text.rstrip()}"
            time.sleep(pause_s(waited_s))

    def until(self, is_so: Callable[[], bool], limit_s: float = LIMIT_S, what: str = "") -> None:
        """Until something outside is so."""
        until(is_so, lambda: f"{what}: {self.text()}", limit_s)

    def keys(self, *names: str) -> None:
        """Presses keys by tmux's names."""
        self.place.tmux("send-keys", "-t", self.pane, *names)

    def type_as_user(self, text: str) -> None:
        """Types it letter by letter, without Enter."""
        self.place.tmux("send-keys", "-t", self.pane, "-l", "--", text)

    def paste(self, text: str) -> None:
        """Pastes it in brackets, if the program asked for them; without Enter."""
        self.place.tmux("load-buffer", "-b", "test", "-", text=text)
        self.place.tmux("paste-buffer", "-p", "-r", "-d", "-b", "test", "-t", self.pane)

    def submit(self, text: str) -> None:
        """As a user does it: types, sees it in the input line, presses Enter."""
        self.type_as_user(text)
        if not text.startswith("/"):
            self.wait_for(lambda s: s.draft == text, what="its draft")
        else:
            self.wait_for(text)
        self._still()
        self.keys(self.terminal.submit)

    def _still(self) -> None:
        """Until the screen is the same for as long as the agent needs between text and Enter."""
        before, since = self.shown(), time.monotonic()
        until = time.monotonic() + LIMIT_S
        while time.monotonic() - since < self.terminal.settle_s and time.monotonic() < until:
            time.sleep(_LOOK_S)
            now = self.shown()
            if now.lines != before.lines or now.cursor != before.cursor:
                before, since = now, time.monotonic()

    def hold(self, step: int) -> None:
        """From this step of the job on, the agent's command waits until `let_go`: however late
        others are, they find the work where the test wants it."""
        self.place.held.write_text(f"{step}\n")

    def let_go(self) -> None:
        self.place.held.unlink()

    def session(self) -> str:
        """The id of the newest session in the agent's home; "" if there is none."""
        stage = casts.PlayStage(home=self.home, project=self.project, port=0, window_tokens=1)
        return self.place.cast.session(stage)[0]

    def another(self, *flags: str, in_shell: bool = False) -> "Tui":
        """The same agent again, in a window of its own. Only once this one is idle: two first
        starts of codex in one home break its database."""
        return _begin(self.place, flags, in_shell)

    def run(self, argv: Sequence[str]) -> None:
        """Runs a command in the shell of the pane, once the agent has ended."""
        assert self.in_shell
        # By a file: a line break that is typed would be an Enter.
        script = self.place.folder / f"run-{uuid.uuid4().hex[:8]}"
        script.write_text(f"exec {shlex.join(argv)}\n")
        self.type_as_user(f"clear; sh {shlex.quote(str(script))}")
        self.keys("Enter")

    def start_again(self, *flags: str) -> None:
        """The agent, in the same way."""
        self.run(self.place.argv(*flags))


def _begin(place: Server, flags: Sequence[str], in_shell: bool) -> Tui:
    width, height = place.size
    verb = ["new-session", "-d", "-x", str(width), "-y", str(height)]
    if place.tmux("has-session", check=False) is not None:
        verb = ["new-window", "-d"]
    argv = _SHELL if in_shell else place.argv(*flags)
    folder = str(place.project).replace("#", "##")  # tmux takes it for a format
    pane = place.tmux(*verb, "-P", "-F", "#{pane_id}", "-c", folder, "--", *argv)
    found = Tui(place, (pane or "").strip(), in_shell)
    if in_shell:
        found.until(lambda: "$" in found.text(), what="its shell")
        found.start_again(*flags)
    return found


@contextlib.contextmanager
def open_tui(
    agent: str,
    folder: Path,
    script: Scenario | server.Model | None = None,
    *,
    window_tokens: int = 200_000,
    size: tuple[int, int] = (110, 40),
    flags: Sequence[str] = (),
    in_shell: bool = False,
    env: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
    prepare: Callable[[casts.PlayStage], None] | None = None,
) -> Iterator[Tui]:
    """The agent in a pane, as it starts: `wait_for` its idle screen before anything is typed.

    `script` is a scenario or whatever answers (`driven.Model` if there is none: it says that it is
    done; with `commands`, it has them run first). `settings`: claude's settings.json, such as hooks
    and a status line. `options`: of the agent's cast. `env`: more for the panes, "" takes a
    variable away. `prepare` may change the agent's files before it starts. `in_shell`: the pane is
    an `sh` that outlives the agent.

    What is not there (tmux, a namespace, the agent) is a skip, and in CI a failure."""
    if reason := enclosure.why_not():
        missing(reason)
    if shutil.which("tmux") is None:
        missing("tmux is not installed")
    work = script.job if isinstance(script, Scenario) else None
    if isinstance(script, Scenario):
        options = {**script.options.get(agent, {}), **(options or {})}
        script = Script(script, window_tokens=window_tokens)
    place = Server(
        agent,
        folder / "tui",
        script or Model(),
        window_tokens=window_tokens,
        size=size,
        options=options or {},
        env=env or {},
        settings=settings,
        prepare=prepare,
        work=work,
    )
    with place.running():
        yield _begin(place, flags, in_shell)


def _make_holdable(project: Path, held: Path) -> None:
    step = project / "job" / "step"
    first, rest = step.read_text().split("\n", 1)
    wait = (
        f'while [ "$1" -ge "$(cat {shlex.quote(str(held))} 2>/dev/null || echo 9999)" ]; do\n'
        "    sleep 0.05\ndone\n"
    )
    step.write_text(f"{first}\n{wait}{rest}")
    job._git(project, "commit", "-q", "--amend", "--no-edit", "-a")


def _terminal(agent: str) -> Terminal:
    found = terminals.find(agent)
    assert found is not None
    return found


def _kind(ask: Ask) -> Kind:
    """In a terminal, codex asks for a name of the session, too; without tools, as no work is."""
    if ask.wire == "responses" and not ask.tools and ask.last_text.startswith("Generate a"):
        return Kind.TITLE
    return casts.kind_of(ask)


class _Enclosed(server.ModelServer):
    """Listens where the agent is."""

    def __init__(self, model: server.Model, listener: sockets.socket) -> None:
        super().__init__(model, kind_of=_kind)
        self._socket = listener

    async def start(self, port: int = 0) -> int:
        self._listener = await asyncio.start_server(
            self._connected, sock=self._socket, limit=READ_BYTES
        )
        self.port = int(self._socket.getsockname()[1])
        return self.port


def _enclosed(descriptor: int, place: str) -> None:
    """The enclosed side: makes the model's socket, hands it out, becomes tmux."""
    enclosure.demand()
    with sockets.socket(fileno=descriptor) as other:
        with sockets.create_server(("127.0.0.1", 0)) as listener:
            sockets.send_fds(other, [b"x"], [listener.fileno()])
        told = other.makefile().readline()
    if not told:
        sys.exit("the test has ended")
    os.execvpe("tmux", ["tmux", "-u", "-f", "/dev/null", "-S", place, "-D"], json.loads(told))


if __name__ == "__main__":
    _enclosed(int(sys.argv[1]), sys.argv[2])
