"""Whoever reads what a run prints, slowly, not at all or in another encoding: the run goes on, and
its exit code tells of the run."""

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from support.running import LONG_S, Staged, stage

SEGUE = [sys.executable, "-c", "from segue.start import main; main()"]


@contextmanager
def unread_terminal() -> Iterator[tuple[int, int]]:
    """A terminal that takes nothing more, and that nobody reads."""
    master, slave = pty.openpty()
    try:
        os.set_blocking(slave, False)
        room = select.poll()
        room.register(slave, select.POLLOUT)
        while room.poll(100):  # the kernel moves some of it on, and then there is room again
            with suppress(BlockingIOError):
                while True:
                    os.write(slave, b"x")
        os.set_blocking(slave, True)
        yield master, slave
    finally:
        os.close(master)
        os.close(slave)


def on(s: Staged, terminal: int, *words: str) -> "subprocess.Popen[bytes]":
    """A command of segue with all its streams on a terminal, which is its own."""
    process = subprocess.Popen(
        [*SEGUE, *words],
        env={**s.env, "TERM": "xterm"},
        cwd=s.project,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0),
    )
    s.started.append(process)  # type: ignore[arg-type]
    return process


@pytest.mark.parametrize("how", [(), ("--json",), ("--raw",)])
def test_a_run_ends_although_nobody_reads_its_terminal(
    how: tuple[str, ...], tmp_path: Path
) -> None:
    with stage("success", within=tmp_path) as s, unread_terminal() as (_, slave):
        process = on(s, slave, *s.words(*how))
        assert process.wait(LONG_S) == 0
        assert s.state(s.run_ids()[0]) == "done"
        assert s.continuity().is_whole


@pytest.mark.parametrize("by", ["Ctrl+C", "SIGTERM", "cancel"])
def test_a_run_on_a_terminal_that_nobody_reads_can_be_ended(by: str, tmp_path: Path) -> None:
    with stage("silent-hang", within=tmp_path) as s, unread_terminal() as (_, slave):
        s.config(policy={"stall_s": 600.0})
        process = on(s, slave, *s.words())
        (run_id,) = s.until(s.run_ids)
        s.until(lambda: (s.leg(run_id) / "keeper.json").exists())
        if by == "cancel":
            assert s.segue("cancel", run_id).code == 0
        elif by == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        else:
            deadline = time.monotonic() + LONG_S
            while process.poll() is None and time.monotonic() < deadline:
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(2)
        assert process.wait(LONG_S) == 130
        assert s.state(run_id) == "cancelled"


def test_a_terminal_that_is_read_late_shows_the_answer(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s, unread_terminal() as (master, slave):
        process = on(s, slave, *s.words())
        s.until(lambda: s.run_ids() and s.state(s.run_ids()[0]) == "done")
        shown = b""
        while b"All 6 steps are done." not in shown:
            shown += os.read(master, 65536)
        assert process.wait(LONG_S) == 0


def test_a_slow_reader_gets_every_event(tmp_path: Path) -> None:
    with stage("three-exhaustions", within=tmp_path) as s:
        process = s.start_run("--json")
        assert process.stdout is not None
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        run_id = s.until(lambda: next(iter(s.run_ids()), ""))
        s.until(lambda: s.state(run_id) == "done")
        assert process.poll() is None  # it waits for its reader, and for nothing else
        ended = s.end(process)
        assert ended.code == 0
        with s.store() as store:
            assert [event["seq"] for event in ended.events] == [e.seq for e in store.log(run_id)]


# What is closed, and what cannot be encoded

ODD = "half a pair: \\ud83d and é ✓ 日本"


def speaker(s: Staged, text: str) -> None:
    """An agent like claude that says this, as JSON has it."""
    record = {"session_id": "s", "type": "result", "subtype": "success", "is_error": False}
    say = {"message": {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "@"}]}}
    lines = [
        json.dumps({"type": "assistant", "session_id": "s", **say}).replace("@", text),
        json.dumps({**record, "result": "@"}).replace("@", text),
    ]
    (s.root / "said").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = json.dumps(["sh", "-c", f"cat {s.root / 'said'}"])
    s.config(f'[agents.odd]\ncommand = {command}\nlike = "claude"\n')


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii", "utf-8:strict"])
def test_an_answer_that_cannot_be_encoded_is_still_an_answer(encoding: str, tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        speaker(s, ODD)
        ended = s.segue("run", "--agent", "odd", "x", PYTHONIOENCODING=encoding)
        assert ended.code == 0, ended.stderr
        assert "half a pair: " in ended.stdout
        assert "Traceback" not in ended.stderr
        (run_id,) = s.run_ids()
        for words in (["show", run_id], ["logs", run_id], ["runs", "--all"], ["status"]):
            shown = s.segue(*words, PYTHONIOENCODING=encoding)
            assert shown.code == 0, words
            assert "Traceback" not in shown.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("how", ["", "--json", "--raw"])
def test_a_closed_stream_is_nobody_listening(how: str, closed: str, tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        speaker(s, "fine")
        line = f'exec "$@" run --agent odd {how} x {closed}'
        process = subprocess.run(
            ["sh", "-c", line, "sh", *SEGUE],
            env=s.env, cwd=s.project, capture_output=True, timeout=LONG_S, check=False,
        )  # fmt: skip
        assert process.returncode == 0, process.stderr
        assert b"Traceback" not in process.stderr
        assert s.state(s.run_ids()[0]) == "done"


READERS = (
    "status", "sessions", "runs", "scan", "config show", "doctor", "fits 100", "wordings list",
    "--help", "--version", "show nothing", "logs run-none", "nonsense", "run",
)  # fmt: skip


@pytest.mark.parametrize("words", READERS)
def test_no_command_minds_a_closed_stream(words: str, own_home: Path) -> None:
    def ended(more: str) -> tuple[int, bool]:
        process = subprocess.run(
            ["sh", "-c", f'exec "$@" {words} {more}', "sh", *SEGUE],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            cwd=own_home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LONG_S,
            check=False,
        )
        return process.returncode, b"Traceback" in process.stderr

    code, is_broken = ended("")
    assert not is_broken
    for closed in (">&-", "2>&-", ">&- 2>&-"):
        assert ended(closed) == (code, False), closed
