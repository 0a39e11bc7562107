"""One writer for a session, a working tree and a run; the user counts as one too."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.files.real_processes import running, start_ticks
from support.running import Staged, stage
from support.waiting import until

from segue.runs import conflicts

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def pid_file(s: Staged, pid: int, session_id: str) -> None:
    """As Claude Code says which process has which session."""
    machine_id = Path("/etc/machine-id")
    machine = machine_id.read_text().strip() if machine_id.exists() else ""
    folder = Path(s.env["CLAUDE_CONFIG_DIR"]) / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "pid": pid,
        "sessionId": session_id,
        "procStart": start_ticks(pid),
        "pidDomain": f"linux:{machine}:{os.readlink('/proc/self/ns/pid')}",
        "status": "idle",
    }
    (folder / f"{pid}.json").write_text(json.dumps(told))


@ON_LINUX
def test_a_session_that_the_user_has_open_by_hand_is_not_resumed(tmp_path: Path) -> None:
    with stage("user-interrupt", within=tmp_path) as s:
        process, run_id = s.new_run()
        process.send_signal(signal.SIGTERM)
        assert s.end(process).code == 130
        with s.store() as store:
            session_id = store.legs(run_id)[0].session_id
        with running("claude", cwd=s.project) as by_hand:
            pid_file(s, by_hand.pid, session_id)
            ended = s.segue("resume", run_id)
            assert ended.code == 1
            assert f"process {by_hand.pid} has session {session_id} open" in ended.stderr
        again = s.segue("resume", run_id)
        assert again.code == 0, again.stderr
        assert s.continuity().is_whole


BY_HAND = """
import ctypes, sys
ctypes.CDLL(None).prctl(15, b"claude", 0, 0, 0)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def by_hand(cwd: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A claude that was started with these words, of a version that writes no pid file."""
    script = cwd.parent / "by_hand.py"
    script.write_text(BY_HAND)
    child = subprocess.Popen(
        [sys.executable, str(script), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
    finally:
        child.kill()
        child.communicate()


@ON_LINUX
@pytest.mark.parametrize("words", [("--continue",), ("-c", "go on"), ("--model", "opus", "-c")])
def test_the_newest_session_that_the_user_continues_with_by_hand_is_not_resumed(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    with stage("user-interrupt", within=tmp_path) as s:
        process, run_id = s.new_run()
        process.send_signal(signal.SIGTERM)
        assert s.end(process).code == 130
        with s.store() as store:
            session_id = store.legs(run_id)[0].session_id
        with by_hand(s.project, *words) as child:
            shown = json.loads(s.segue("status", "--json").stdout)["sessions"]
            assert [x["state"] for x in shown if x["session_id"] == session_id] != ["gone"]
            ended = s.segue("resume", run_id)
            assert ended.code == 1, ended.stderr
            assert f"process {child.pid} has session {session_id} open" in ended.stderr
        # Elsewhere, with a session of its own, or with a newer one, it is no hindrance.
        (file,) = Path(s.env["CLAUDE_CONFIG_DIR"]).rglob(f"{session_id}.jsonl")
        newer = file.with_name("99999999-2222-4333-8444-555555555555.jsonl")
        newer.write_text(file.read_text().replace(session_id, newer.stem))
        with (
            by_hand(s.root, *words),
            by_hand(s.project),
            by_hand(s.project, *words, "--fork-session"),
            by_hand(s.project, *words),
        ):
            again = s.segue("resume", run_id)
        assert again.code == 0, again.stderr
        assert s.continuity().is_whole


def session_files(folder: Path) -> tuple[Path, Path]:
    """An old session and a newer one, of the same project."""
    folder.mkdir(parents=True)
    old, new = folder / "old.jsonl", folder / "new.jsonl"
    for number, file in enumerate((old, new)):
        file.write_text("{}\n")
        os.utime(file, (1000 + number, 1000 + number))
    return old, new


@ON_LINUX
@pytest.mark.parametrize("words", [("-r", "latest"), ("--resume",), ("-r", "1")])
def test_gemini_by_hand_has_the_newest_session_open(words: tuple[str, ...], tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    env = {"HOME": str(tmp_path)}
    old, new = session_files(tmp_path / ".gemini" / "tmp" / "p" / "chats")
    script = tmp_path / "bin" / "gemini"
    script.parent.mkdir()
    script.write_text("console.log('ready'); setInterval(() => 0, 1000)\n")
    project = str(tmp_path)
    with subprocess.Popen(
        [node, str(script), *words], stdout=subprocess.PIPE, text=True, cwd=project
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            found = conflicts.working_on("gemini", "an-id", str(new), project, env)
            assert found is not None
            assert found.pid == child.pid
            assert conflicts.working_on("gemini", "an-id", str(old), project, env) is None
            assert conflicts.working_on("gemini", "an-id", str(new), "/elsewhere", env) is None
        finally:
            child.kill()


@ON_LINUX
@pytest.mark.parametrize("has_terminal", [True, False])
def test_pi_hides_its_words_so_whoever_sits_before_it_goes_first(
    has_terminal: bool, tmp_path: Path
) -> None:
    env = {"HOME": str(tmp_path)}
    old, new = session_files(tmp_path / ".pi" / "agent" / "sessions" / "--p--")
    program = tmp_path / "pi"
    shutil.copy(os.path.realpath(shutil.which("sleep") or "/bin/sleep"), program)
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [program, "600"], cwd=tmp_path, stdin=slave if has_terminal else subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: Path(f"/proc/{child.pid}/comm").read_text() == "pi\n")
        found = conflicts.working_on("pi", "an-id", str(new), str(tmp_path), env)
        assert (found.pid if found else 0) == (child.pid if has_terminal else 0)
        assert conflicts.working_on("pi", "an-id", str(old), str(tmp_path), env) is None
    finally:
        child.kill()
        child.wait()
        os.close(master)
        os.close(slave)


def test_two_runs_in_one_tree_are_refused_unless_they_are_to_share_it(tmp_path: Path) -> None:
    with stage("user-interrupt", within=tmp_path) as s:
        process, run_id = s.new_run()
        below = s.project / "steps"
        second = s.segue(*s.words(), cwd=below)
        assert second.code == 2
        assert run_id in second.stderr
        assert "--share-tree" in second.stderr
        assert s.run_ids() == [run_id], "a run that is refused leaves nothing behind"
        process.send_signal(signal.SIGTERM)
        s.end(process)


def test_a_run_that_one_segue_drives_is_not_driven_by_a_second(tmp_path: Path) -> None:
    with stage("user-interrupt", within=tmp_path) as s:
        process, run_id = s.new_run()
        second = s.segue("resume", run_id)
        assert second.code not in (0, -9)
        assert "driven by process" in second.stderr
        ended = s.end(process)
        assert ended.code == 0, ended.stderr
        assert s.continuity().is_whole
