"""`segue open` in a terminal of a person's own: what reaches the agent, what reaches the terminal,
and how both are afterwards. A stand-in for an agent tells what it sees; the real ones are in
test_open_agents."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.gone import is_gone
from support.terminals import hosted_agent
from support.terminals.outside import PASTE, Command, Outside, outside

SEGUE = (sys.executable, "-c", "from segue.start import main; main()")
DETACHES = b"\x1c"


class Place:
    """A home, a folder to work in, and an agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.project = folder / "project $(x) #{y}"
        self.project.mkdir(parents=True)
        self.bin = hosted_agent.install(folder / "bin", self.log)
        self.env = {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(folder),
            "SEGUE_HOME": str(folder / "s"),
            "LC_ALL": "C.UTF-8",
            "SECRET": "line one\nline 'two' $(x) ü",
        }
        self.socket = folder / "s/open/tmux.sock"

    def segue(self, *args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*SEGUE, *args], env=self.env, cwd=self.project, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def tmux(self, *args: str) -> str:
        done = subprocess.run(
            ["tmux", "-N", "-S", str(self.socket), *args],
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.stdout

    def told(self, what: str) -> list[Any]:
        if not self.log.exists():
            return []
        whole, _, _ = self.log.read_text().rpartition("\n")  # the last line may be half written
        values = [json.loads(line) for line in whole.splitlines()]
        return [value[what] for value in values if what in value]

    def read(self) -> str:
        return "".join(self.told("read"))

    def server(self) -> int:
        return int(self.tmux("display-message", "-p", "#{pid}"))

    def client(self) -> int:
        return int(self.tmux("list-clients", "-F", "#{client_pid}").split()[0])


@pytest.fixture
def place() -> Iterator[Place]:
    # Not below pytest's folder: a socket's path may not be long.
    with tempfile.TemporaryDirectory(prefix="segue-open-") as folder:
        found = Place(Path(folder))
        try:
            yield found
        finally:
            found.tmux("kill-server")
            agents = [psutil.Process(pid) for pid in found.told("pid") if psutil.pid_exists(pid)]
            psutil.wait_procs(agents, timeout=30)


@pytest.fixture(params=["a plain terminal", "a tmux"])
def terminal(request: pytest.FixtureRequest, place: Place) -> Iterator[Outside]:
    """Also nested: what the outer tmux sends on is what its own terminal gets."""
    env, project = place.env, str(place.project)
    if request.param == "a plain terminal":
        with outside(env, project) as found:
            yield found
        return
    outer = str(place.folder / "outer")
    setup = [*("set", "-g", "status", "off", ";", "set", "-g", "mouse", "on", ";")]
    setup += ["set", "-s", "set-clipboard", "on", ";", "set", "-g", "set-titles", "on", ";"]
    setup += ["set", "-g", "set-titles-string", "#T", ";", "set", "-s", "escape-time", "0", ";"]
    argv = ["tmux", "-u", "-T", "RGB,clipboard,title,bpaste,mouse", "-f", "/dev/null", "-S", outer,
            "start", ";", *setup, "new-session", "sh", "-i"]  # fmt: skip
    try:
        with outside(env, project, shell=argv) as found:
            yield found
    finally:
        subprocess.run(["tmux", "-S", outer, "kill-server"], capture_output=True)


def opened(place: Place, terminal: Outside, *words: str, agent: str = "claude") -> Command:
    """`segue open`, once the agent is there."""
    known = len(place.told("env"))
    command = terminal.run(*SEGUE, "open", agent, *words)
    terminal.until(lambda: len(place.told("env")) > known and b"ready>" in command.sent, "it")
    return command


def returned(place: Place, terminal: Outside, *words: str) -> Command:
    """`segue open` to one that already exists."""
    command = terminal.run(*SEGUE, "open", *words)
    terminal.until(lambda: b"ready>" in command.sent, "its screen again")
    return command


def left(place: Place, terminal: Outside, command: Command, code: int) -> None:
    """The terminal is the shell's again, as it was."""
    assert command.wait() == code
    terminal.until(lambda: terminal.is_as_before, "the terminal as before")
    assert terminal.run("true").wait("the shell") == 0


def gone(place: Place, terminal: Outside) -> None:
    terminal.until(lambda: not place.tmux("list-sessions"), "no server")


def test_the_agent_and_the_terminal_notice_nothing(place: Place, terminal: Outside) -> None:
    command = opened(place, terminal, "--model", "x y", "")
    told = place.told("env")[0]
    expected = {**place.env, "PWD": str(place.project)}
    assert {name: told.get(name) for name in expected} == expected
    assert told["TERM"] == "tmux-256color"
    assert str(place.socket) not in told.get("TMUX", "")
    assert place.told("argv") == [["--model", "x y", ""]]
    assert place.told("size")[0] == [110, 40]
    assert place.told("cwd") == [str(place.project)]
    assert b"Ctrl+\\" in command.sent
    assert b"segue watch --auto" in command.sent  # nobody watches it
    # Colours, title and clipboard, as the agent sent them.
    terminal.until(lambda: b"38;2;1;22;203m" in command.sent, "its colour")
    terminal.until(lambda: b"my title" in command.sent, "its title")
    terminal.until(lambda: b"c2VndWU=" in command.sent, "the clipboard")
    terminal.until(lambda: "2004" in terminal.modes(), "paste brackets")
    terminal.resize(97, 31)
    terminal.until(lambda: place.told("size")[-1] == [97, 31], "the new size")
    # Ctrl+C as one byte and no signal; a paste whole and once.
    terminal.type(b"\x03")
    terminal.until(lambda: "\x03" in place.read(), "Ctrl+C")
    text = "".join(f"{number} 'paste' $(x) ü\r" for number in range(260))
    pasted = PASTE[0] + text.encode() + PASTE[1]
    assert len(pasted) > 5000
    terminal.type(pasted)
    terminal.until(lambda: pasted.decode("latin-1") in place.read(), "the paste")
    assert place.read() == "\x03" + pasted.decode("latin-1")
    assert place.told("signal") == []
    terminal.type("q")
    left(place, terminal, command, 7)
    assert b"goodbye" in command.sent
    gone(place, terminal)


def test_every_key_is_the_agents(place: Place, terminal: Outside) -> None:
    """But for Ctrl+\\, and in an outer tmux, its prefix. It counts also where it comes together
    with keys typed before it, as over a slow connection."""
    command = opened(place, terminal)
    keys = bytes(n for n in range(1, 0x7F) if n not in (0x1B, 0x1C, 0x02, ord("q")))
    for number in keys:
        terminal.type(bytes((number,)))
    terminal.until(lambda: len(place.read()) == len(keys), "all keys")
    assert place.read().encode() == keys
    for key in (b"\x1b[A", b"\x1b[15~", b"\x1b[1;5C", b"\x1bx", b"\x1b[5~"):
        count = len(place.told("read"))
        terminal.type(key)
        terminal.until(lambda c=count: len(place.told("read")) > c, f"{key!r}")  # type: ignore[misc]
    terminal.type(b"abc" + DETACHES)
    left(place, terminal, command, 0)
    assert place.read().endswith("abc")


@pytest.mark.parametrize(
    ("words", "sent"), [(["mouse"], "\x1b[<64;5;5M"), (["full"], "\x1b[A" * 3)]
)
def test_the_wheel_is_the_agents_if_it_asked_or_has_the_whole_screen(
    words: list[str], sent: str, place: Place
) -> None:
    with outside(place.env, str(place.project)) as terminal:
        opened(place, terminal, *words)
        terminal.until(lambda: "1006" in terminal.modes(), "the mouse")
        terminal.type(b"\x1b[<64;5;5M")
        terminal.until(lambda: place.read().replace("\x1bO", "\x1b[") == sent, "the wheel")


def test_the_wheel_scrolls_back_and_who_types_then_types_to_the_agent(place: Place) -> None:
    with outside(place.env, str(place.project)) as terminal:
        command = opened(place, terminal, "lines")
        assert b"line 20" not in command.sent.rpartition(b"ready>")[0][-400:]
        for _ in range(15):
            terminal.type(b"\x1b[<64;5;5M")
        terminal.until(lambda: b"line 25\x1b" in command.sent.rpartition(b"ready>")[2], "line 25")
        terminal.type("w")
        terminal.until(lambda: place.read() == "w", "the key")
        assert place.tmux("display-message", "-p", "#{pane_in_mode}").strip() == "0"
        # What is marked with the mouse is in the clipboard.
        count = command.sent.count(b"\x1b]52;")
        terminal.type(b"\x1b[<0;1;39M")
        for column in (3, 4, 5, 6):
            terminal.type(f"\x1b[<32;{column};39M")
        here = ("display-message", "-p", "#{selection_end_x}")
        terminal.until(lambda: place.tmux(*here).strip() == "5", "the marked text")
        terminal.type(b"\x1b[<0;6;39m")
        terminal.until(lambda: command.sent.count(b"\x1b]52;") > count, "the clipboard")
        assert place.read() == "w"


def test_it_is_left_by_a_key_by_hand_and_by_closing_and_returned_to(place: Place) -> None:
    with outside(place.env, str(place.project)) as terminal:
        command = opened(place, terminal)
        terminal.type(DETACHES)
        left(place, terminal, command, 0)
        assert b"claude keeps running; to return: segue open claude-1" in command.sent
        command = returned(place, terminal)
        assert "(attached)" in place.segue("open", "--list").stdout
        assert "detached" in place.segue("open", "--detach").stdout
        left(place, terminal, command, 0)
        returned(place, terminal, "claude-1")
    (pid,) = place.told("pid")
    with outside(place.env, str(place.project), size=(80, 24)) as terminal:
        command = returned(place, terminal)
        terminal.until(lambda: place.told("size")[-1] == [80, 24], "its size")
        assert place.told("pid") == [pid]
        assert psutil.pid_exists(pid)
        listed = json.loads(place.segue("open", "--list", "--json").stdout)
        (there,) = listed["open"]
        assert "claude is open" in place.segue("uninstall", "--purge").stderr
        assert (there["name"], there["agent"]) == ("claude-1", "claude")
        assert (there["cwd"], there["attached"]) == (str(place.project), 1)
        terminal.type("q")
        left(place, terminal, command, 7)
    assert "no agent is open" in place.segue("open", "--list").stdout
    assert place.segue("uninstall", "--purge").returncode == 0
    assert not place.socket.parent.exists()


def test_of_several_the_one_of_this_folder_else_a_list_of_commands(place: Place) -> None:
    other = place.folder / "other"
    other.mkdir()
    hosted_agent.install(place.bin, place.log, "codex")
    with outside(place.env, str(place.project)) as terminal:
        command = opened(place, terminal)
        terminal.type(DETACHES)
        left(place, terminal, command, 0)
        terminal.run("cd", str(other)).wait()
        command = opened(place, terminal, agent="codex-cli")
        terminal.type(DETACHES)
        left(place, terminal, command, 0)
        command = returned(place, terminal)  # of this folder
        assert str(other) in place.tmux("list-clients", "-F", "#{@segue_cwd}")
        terminal.type(DETACHES)
        left(place, terminal, command, 0)
        terminal.run("cd", "/").wait()
        command = terminal.run(*SEGUE, "open")
        assert command.wait() == 2
        assert b"segue open claude-1" in command.sent
        assert b"segue open codex-1" in command.sent
        command = returned(place, terminal, "codex-1")
        terminal.type("q")
        left(place, terminal, command, 7)


@pytest.mark.parametrize("who", ["segue", "client", "server"])
def test_the_terminal_is_as_before_when_any_of_them_is_killed(
    who: str, place: Place, terminal: Outside
) -> None:
    command = opened(place, terminal, "full", "mouse")
    (agent,) = place.told("pid")
    segue = psutil.Process(place.client()).parent()
    assert segue is not None
    pid = {"segue": segue.pid, "client": place.client(), "server": place.server()}[who]
    os.kill(pid, signal.SIGKILL)
    left(place, terminal, command, 137 if who == "segue" else 1)
    if who == "server":
        terminal.until(lambda: is_gone(agent), "its end")
        assert b"segue sessions" in command.sent
        return
    command = returned(place, terminal)
    assert psutil.pid_exists(agent)
    terminal.type("q")
    left(place, terminal, command, 7)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_segue_that_is_told_to_end_gives_the_terminal_back_and_leaves_the_agent(
    number: signal.Signals, place: Place
) -> None:
    with outside(place.env, str(place.project)) as terminal:
        command = opened(place, terminal)
        segue = psutil.Process(place.client()).parent()
        assert segue is not None
        segue.send_signal(number)
        left(place, terminal, command, 128 + number)
        command = returned(place, terminal)
        # And of an agent that is killed, the code is what a shell says.
        os.kill(place.told("pid")[0], signal.SIGKILL)
        left(place, terminal, command, 137)


def test_an_agent_that_ends_at_once_is_heard_to_the_end(place: Place) -> None:
    with outside(place.env, str(place.project)) as terminal:
        command = terminal.run(*SEGUE, "open", "claude", "--", "--version")
        left(place, terminal, command, 3)
        assert b"stand-in 1.0" in command.sent
        (place.bin / "claude").write_text("#!/does/not/exist\n")
        command = terminal.run(*SEGUE, "open", "claude")
        left(place, terminal, command, 127)
        assert b"No such file" in command.sent
        gone(place, terminal)


def test_one_that_stops_itself_continues(place: Place) -> None:
    """Ctrl+Z: there is no shell here that could wake it."""
    with outside(place.env, str(place.project)) as terminal:
        command = opened(place, terminal)
        os.kill(place.told("pid")[0], signal.SIGSTOP)
        terminal.type("x")
        terminal.until(lambda: place.read() == "x", "the key")
        terminal.type("q")
        left(place, terminal, command, 7)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("open", "claude"), "segue open needs a terminal"),
        (("open",), "segue open needs a terminal"),
        (("open", "--detach"), "no terminal shows an open agent"),
        (("open", "--detach", "claude-9"), "no terminal shows claude-9"),
    ],
)
def test_without_a_terminal_it_is_one_line(args: tuple[str, ...], said: str, place: Place) -> None:
    done = place.segue(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def _fake_tmux(place: Place, version: str) -> None:
    tool = place.bin / "tmux"
    tool.write_text(f"#!/bin/sh\necho {version}\n")
    tool.chmod(0o755)


@pytest.mark.parametrize(
    ("words", "path", "said"),
    [
        (["cluade"], "", b"unknown agent 'cluade'; did you mean claude?"),
        (["claude-7"], "", b"claude-7 is not open"),
        (["gemini"], "", b"gemini is not installed"),
        ([], "", b"no agent is open; start one: segue open claude"),
        (["claude"], "none", b"segue open needs tmux, which is not installed; install it: brew"),
        (["claude"], "old", b"needs tmux 3.2 or newer, and this is tmux 2.9a: brew install tmux"),
    ],
)
def test_what_cannot_be_opened_is_one_line(
    words: list[str], path: str, said: bytes, place: Place
) -> None:
    env = dict(place.env)
    for name in ("sh", "brew") if path else ():
        (place.bin / name).symlink_to("/bin/sh")
    if path == "old":
        _fake_tmux(place, "tmux 2.9a")
    if path:
        env["PATH"] = str(place.bin)
    with outside(env, str(place.project), shell=("/bin/sh", "-i"), size=(200, 24)) as terminal:
        command = terminal.run(*SEGUE, "open", *words)
        assert command.wait() == 2
        assert said in command.sent
        assert terminal.is_as_before
