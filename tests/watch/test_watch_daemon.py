"""`segue watch` as a process: one for a user, its signals, its output, its config, its hooks."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.agents.agents_alive import Agent
from support.homes import SESSION, claude_session, prompt, reply
from support.waiting import LONG_S, until
from support.watching import SEGUE, Watching, watching

from segue.cli import cli
from segue.system import units
from segue.system.files import state
from segue.watch.daemon import Watch
from segue.watch.log import open_log
from segue.watch.observe.observer import SETTLE_S
from segue.watch.rules import Rules

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

HEAVY = ("rich", "genai_prices", "mcp", "apprise", "pydantic", "anyio", "asyncio", "httpx")


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder whose socket's path is not too long for one."""
    with tempfile.TemporaryDirectory(prefix="segue-") as folder:
        monkeypatch.setenv("SEGUE_HOME", folder)
        yield Path(folder)


@pytest.fixture
def env(own_home: Path) -> dict[str, str]:
    return {"HOME": str(own_home)}


def segue(there: Watching, *words: str, cwd: Path | None = None) -> tuple[int, str, str]:
    done = subprocess.run(
        [*SEGUE, *words], env=there.env, cwd=cwd, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def end(there: Watching, number: signal.Signals) -> None:
    """It ends, whoever still follows it, and its exit code is 0."""
    assert there.process is not None
    there.process.send_signal(number)
    assert there.process.wait(timeout=30) == 0, there.said.read_text()


def test_one_daemon_a_user_and_a_killed_one_is_replaced_at_once(
    env: dict[str, str], home: Path, tmp_path: Path
) -> None:
    with watching(home, env) as there:
        code, out, said = segue(there, "watch")
        assert (code, out) == (1, "")
        assert there.process is not None
        assert said.startswith(f"segue: a daemon is already running: process {there.process.pid};")
        assert said.count("\n") == 1
        mode = (home / "watch" / "segue.sock").stat().st_mode & 0o777
        assert mode == 0o600
        code, said, _ = segue(there, "pause", cwd=tmp_path)
        assert (code, said) == (0, f"paused: {tmp_path}\n")
        there.kill()
        assert (home / "watch" / "segue.sock").exists()
        there.start()
        assert there.remote.get("/v1/status")["paused"] == [str(tmp_path)]
        followed = there.remote.events()
        threading.Thread(target=lambda: next(followed, None), daemon=True).start()
        there.until(lambda: "segue_api_streams 1" in there.remote.get("/metrics"), "a follower")
        end(there, signal.SIGINT)
        assert not (home / "watch" / "segue.sock").exists()
        there.start()
        end(there, signal.SIGTERM)
        code, _, said = segue(there, "pause")
        assert (code, said) == (2, "segue: no daemon is running; start it: segue watch\n")
        events = [note.data["event"] for note in there.notes("daemon")]
        assert events == ["started", "started", "stopped", "started", "stopped"]


class Piped:
    """A daemon whose output is read as it comes."""

    def __init__(self, env: dict[str, str], *args: str, interpreter: tuple[str, ...] = ()) -> None:
        command = [SEGUE[0], *interpreter, *SEGUE[1:], "watch", *args]
        whole = {**os.environ, **env, "TZ": "UTC"}
        self.child = subprocess.Popen(
            command, env=whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.out, self.err = b"", b""
        self.readers = [
            threading.Thread(target=self._read, args=(name,)) for name in ("out", "err")
        ]
        for reader in self.readers:
            reader.start()

    def _read(self, name: str) -> None:
        stream = self.child.stdout if name == "out" else self.child.stderr
        assert stream is not None
        while more := os.read(stream.fileno(), 65536):
            setattr(self, name, getattr(self, name) + more)

    def until(self, holds: Callable[[], Any], what: str) -> None:
        def held() -> Any:
            assert self.child.poll() is None, self.err
            return holds()

        until(held, lambda: f"{what}: {self.err!r}")

    def notes(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines(keepends=True) if b"\n" in line]

    def end(self) -> int:
        self.child.terminate()
        code = self.child.wait(timeout=30)
        for reader in self.readers:
            reader.join()
        return code


def test_a_config_is_read_again_and_a_broken_one_is_reported_in_json_and_words(
    env: dict[str, str], own_home: Path
) -> None:
    config = own_home / "segue" / "config.toml"
    there = Piped(env, "--json")
    try:
        there.until(lambda: there.notes(), "a note")
        reloads: list[list[str]] = []
        for text in ("[policy]\nhard_mark = 'x'\n", "[policy]\nauto_resume = true\n"):
            config.write_text(text)
            there.child.send_signal(signal.SIGHUP)
            there.until(lambda: len(there.notes()) == len(reloads) + 2, "a reload")
            reloads.append(there.notes()[-1]["data"]["wrong"])
        assert "keeping the previous settings" in reloads[0][0]
        assert reloads[1] == []
        there.until(lambda: b"acting by itself: auto_resume in every project" in there.err, "words")
    finally:
        assert there.end() == 0
    assert b"It does not type into terminals" in there.err
    assert reloads[0][0].encode() in there.err
    assert [note["kind"] for note in there.notes()] == ["daemon"] * 4
    assert [note["seq"] for note in there.notes()] == [1, 2, 3, 4]


@pytest.mark.parametrize("how", ["never there", "gone", "not read"])
def test_nobody_has_to_read_its_output(env: dict[str, str], home: Path, how: str) -> None:
    there = Watching(home, env, ("--json",))
    closed = 'exec "$@" >&- 2>&-' if how == "never there" else 'exec "$@"'
    command = ["/bin/sh", "-c", closed, "sh", *SEGUE, "watch", "--json"]
    there.process = subprocess.Popen(
        command, env=there.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        there.until(there.remote.is_there, "the daemon")
        if how == "gone":
            assert there.process.stdout is not None
            assert there.process.stderr is not None
            there.process.stdout.close()
            there.process.stderr.close()
        # More than a pipe holds.
        folders = [home / (f"{number}-" + "x" * 200) for number in range(60)]
        for folder in folders:
            there.remote.post("/v1/pause", {"what": str(folder)})
        there.process.send_signal(signal.SIGHUP)
        there.until(lambda: there.notes("daemon")[1:], "a reload")
        assert there.remote.get("/v1/status")["paused"] == sorted(map(str, folders))
        end(there, signal.SIGTERM)
    finally:
        if there.process.poll() is None:
            there.kill()
        for stream in (there.process.stdout, there.process.stderr):
            if stream is not None:
                stream.close()


@pytest.mark.parametrize(
    ("words", "config", "code", "said"),
    [
        ((), "[policy", 2, "not TOML"),
        ((), '[prompts]\nresume = "none.md"\n', 2, "none.md: cannot be read"),
        (("--in", "."), "", 2, "--in needs --auto"),
        (("--auto", "--in", "nowhere"), "", 2, "--in nowhere: no such folder"),
        (("--http", "x"), "", 2, "must be a whole number from 0 to 65,535, not x"),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(
    words: tuple[str, ...], config: str, code: int, said: str
) -> None:
    folder = Path(os.environ["SEGUE_HOME"])
    folder.mkdir()
    (folder / "config.toml").write_text(config)
    done = subprocess.run(
        [*SEGUE, "watch", *words], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("segue: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not Path(state.socket_path()).exists()


@pytest.mark.parametrize("where", ["/proc/nothing", "file"])
def test_a_state_folder_that_cannot_be_written_is_one_line(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEGUE_HOME", str(tmp_path / where))
    done = CliRunner().invoke(cli, ["watch"])
    assert done.exit_code == 1
    assert done.output.startswith("segue: ")
    assert "segue cannot keep its state here" in done.output
    assert done.output.count("\n") == 1


def test_at_the_start_it_says_plainly_what_it_does() -> None:
    from segue.cli.daemon.watch import _introduction

    quiet = _introduction("", auto=False, folders=())
    assert "does not type into terminals or resume sessions" in quiet
    everywhere = _introduction("", auto=True, folders=())
    assert "segue acts by itself in every project" in everywhere
    assert "segue pause" in everywhere
    assert "by itself below a, b:" in _introduction("", auto=True, folders=("a", "b"))
    by_config = _introduction("auto_resume in /x", auto=False, folders=())
    assert "by itself as your config says (auto_resume in /x):" in by_config


def test_what_is_being_typed_is_finished_before_it_ends(own_home: Path) -> None:
    state.make_watch_folder()
    log, _ = open_log(own_home / "watch.db")
    watch = Watch(env={"HOME": str(own_home)}, log=log, rules=Rules({}), say=lambda line: None)
    typing, typed, done = threading.Event(), threading.Event(), []

    def job() -> None:
        typing.set()
        assert typed.wait(LONG_S)
        done.append("typed")

    thread = threading.Thread(target=watch.run)
    thread.start()
    watch.handoffs.do(job)
    assert typing.wait(LONG_S)
    watch.stop()
    thread.join(0.3)
    assert thread.is_alive()
    typed.set()
    thread.join(LONG_S)
    assert not thread.is_alive()
    assert done == ["typed"]
    log.close()


def test_the_output_of_a_headless_run_is_deleted_after_a_month(
    env: dict[str, str], home: Path
) -> None:
    logs = home / "watch" / "headless"
    logs.mkdir(parents=True)
    for name, days in (("old.log", 31), ("new.log", 29)):
        (logs / name).write_text("resuming\n")
        at = time.time() - days * 86_400
        os.utime(logs / name, (at, at))
    with watching(home, env):
        until(lambda: not (logs / "old.log").exists(), "the old log was kept")
        assert (logs / "new.log").exists()


def test_a_full_disk_is_reported_once_and_does_not_end_it(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from segue.errors import StateError
    from segue.watch import daemon

    monkeypatch.setattr(daemon, "TICK_S", 0.01)
    state.make_watch_folder()
    log, _ = open_log(own_home / "watch.db")
    said: list[str] = []
    watch = Watch(env={"HOME": str(own_home)}, log=log, rules=Rules({}), say=said.append)
    failed = threading.Semaphore(0)

    def full(*_: Any, **__: Any) -> Any:
        failed.release()
        raise StateError("watch.db: the disk is full")

    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        until(watch.handoffs._thread.is_alive)
        with monkeypatch.context() as broken:
            broken.setattr(log, "append", full)
            for _ in range(3):
                watch.reload()
                assert failed.acquire(timeout=LONG_S)
        watch.reload()
        until(lambda: "the config was reloaded" in said)
    finally:
        watch.stop()
        thread.join(LONG_S)
    assert said.count("watch.db: the disk is full") == 1
    assert [note.data["event"] for note in log.since(0)][-2:] == ["reloaded", "stopped"]
    log.close()


# --- hooks and the status line, by what `segue setup` installs ------------------------------------


class Client:
    """claude, as far as it calls hooks."""

    def __init__(self, there: Watching) -> None:
        self.env = {**there.env, "NO_COLOR": "1"}

    def _run(self, kind: str, told: str, given: dict[str, Any]) -> tuple[int, str, str]:
        argv = list(units.client_argv(kind, told))
        done = subprocess.run(
            argv, input=json.dumps(given), env=self.env, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def hook(self, event: str, **more: Any) -> dict[str, Any]:
        given = {"hook_event_name": event, "session_id": SESSION, **more}
        code, out, err = self._run("hook", event, given)
        assert (code, err) == (0, "")
        found: dict[str, Any] = json.loads(out) if out else {}
        return found

    def line(self) -> str:
        marks = "0.3,0.5,0.7,0.85"
        code, out, err = self._run("statusline", marks, {"session_id": SESSION})
        assert (code, err) == (0, "")
        return out


@pytest.fixture
def agent(own_home: Path) -> Iterator[Agent]:
    found = Agent(own_home / ".claude", status="idle")
    yield found
    if found.child.poll() is None:
        found.end()


def test_a_crash_is_told_by_its_signal_also_if_the_agents_parent_is_late_to_ask(
    env: dict[str, str], own_home: Path, home: Path
) -> None:
    claude_session(own_home, prompt(), reply(1, 20_000, stop="tool_use"))
    agent = Agent(own_home / ".claude", status="busy")
    with watching(home, env) as there:
        there.until(lambda: there.notes("live"), "the agent")
        os.kill(agent.pid, signal.SIGKILL)
        asked = threading.Timer(4 * SETTLE_S, agent.child.wait)
        asked.start()
        (stop,) = there.until(lambda: there.notes("stop"), "its stop")
        asked.join()
    (evidence,) = stop.data["evidence"]
    tells = tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 15)
    assert (stop.data["reason"], evidence["rule"]) == (
        "crash",
        "ending.exit" if tells else "ending.turn",
    )


def test_hooks_and_status_line_of_a_live_session(
    env: dict[str, str], own_home: Path, home: Path, agent: Agent, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    now = time.time() - 60
    large = tmp_path / "large.txt"
    large.write_bytes(b"x" * 400_000)
    lines = [
        prompt("Port the parser.", at=now, cwd=str(project)),
        reply(1, 110_000, at=now + 1, cwd=str(project), model="claude-haiku-4-5"),
    ]
    file = claude_session(own_home, *lines)
    config = '[policy]\ngate = "block"\n'
    with watching(home, env, config=config) as there:
        client = Client(there)
        there.until(lambda: there.notes("crossing"), "a crossing")
        told = client.hook("PostToolUse", transcript_path=str(file))
        assert "Context at 55%" in told["hookSpecificOutput"]["additionalContext"]
        assert client.hook("PostToolUse") == {}
        read = {"tool_name": "Read", "tool_input": {"file_path": str(large)}}
        refused = client.hook("PreToolUse", **read)["hookSpecificOutput"]
        assert refused["permissionDecision"] == "deny"
        assert "55% warning · 110K of 200K" in client.line()
        client.hook("PreCompact", trigger="auto")
        there.until(lambda: there.notes("checkpoint"), "a document")
        (document,) = (project / ".segue" / "handoffs").iterdir()
        assert "Port the parser." in document.read_text()
        assert (project / ".segue" / ".gitignore").read_text() == "*\n"
        client.hook("SessionEnd", reason="prompt_input_exit")
        agent.end()
        (stop,) = there.until(lambda: there.notes("stop"), "the end")
        assert (stop.data["reason"], stop.data["ended_by"]) == ("user_exit", "user")
        assert stop.at - there.notes("hook")[-1].at < 2.0
        calls = there.remote.get("/metrics")
        assert 'segue_hook_calls_total{event="PostToolUse"} 2' in calls
        assert "segue_statusline_calls_total 1" in calls
        there.stop()
        # Without the daemon a hook says nothing, and what only it tells is read at the next start.
        assert client.hook("SessionEnd", reason="logout") == {}
        assert Path(f"{there.remote.path}.hooks").exists()
        there.start()
        ends = there.until(lambda: [n for n in there.notes("hook") if n.data.get("reason")], "it")
        there.until(lambda: len([n for n in there.notes("hook") if n.data.get("reason")]) == 2, "")
        assert ends[0].data["reason"] == "prompt_input_exit"
        assert not Path(f"{there.remote.path}.hooks").exists()


def test_the_daemon_loads_nothing_that_it_does_not_need(
    env: dict[str, str], own_home: Path, agent: Agent
) -> None:
    now = time.time() - 60
    claude_session(own_home, prompt(at=now), reply(1, 170_000, at=now))
    there = Piped(env, "--json", interpreter=("-X", "importtime"))
    try:
        there.until(lambda: [n for n in there.notes() if n["kind"] == "crossing"], "a crossing")
        status = Path(f"/proc/{there.child.pid}/status").read_text()
        rss_kb = int(status.partition("VmRSS:")[2].split()[0])
    finally:
        there.end()
    loaded = {line.rpartition("|")[2].strip() for line in there.err.decode().splitlines()}
    assert "segue.watch.server.answers" in loaded
    assert not {name for name in loaded if name.partition(".")[0] in HEAVY}
    assert rss_kb < 80_000
