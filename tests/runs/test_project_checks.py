"""A check in a project's file is somebody else's command: it runs once the user has said yes to
that very text in that folder, and never because a daemon resumed something."""

import os
import pty
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from support import homes
from support.agents.agents_alive import Agent
from support.running import Ended, Staged, stage
from support.watching import watching

from segue import run as library_run
from segue.runs.starting.run_request import CheckNotAccepted

SEGUE = (sys.executable, "-c", "from segue.start import main; main()")


def put_check(s: Staged, more: str = "", folder: Path | None = None) -> tuple[Path, str]:
    """A check that leaves a mark, and what it says."""
    mark = s.root / "ran"
    check = f"touch {mark}{more}"
    ((folder or s.project) / ".segue.toml").write_text(f"[run]\ncheck = '''{check}'''\n")
    return mark, check


def is_refused(s: Staged, ended: Ended, check: str) -> None:
    assert ended.code == 2, ended
    (line,) = ended.stderr.splitlines()
    assert f"{s.project / '.segue.toml'}:2 sets a check" in line
    assert check in line
    assert "--trust-check" in line
    assert "--no-project-check" in line
    assert ended.stdout == ""


def test_it_runs_only_once_the_user_has_accepted_that_very_text(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        mark, check = put_check(s)
        is_refused(s, s.run(), check)
        assert s.run_ids() == []
        assert s.server.requests == []
        assert s.run("--trust-check").code == 0
        assert mark.exists()
        kept = list((s.home / "trusted").iterdir())
        assert [stat.S_IMODE(f.stat().st_mode) for f in (*kept, kept[0].parent)] == [0o600, 0o700]
        mark.unlink()
        assert s.run("--share-tree").code == 0  # it is remembered
        assert mark.exists()
        mark.unlink()
        _, other = put_check(s, "; true")
        is_refused(s, s.run(), other)
        inner = s.project / "inner"
        inner.mkdir()
        put_check(s, folder=inner)
        refused = s.segue("run", "--agent", s.agent, "x", cwd=inner)  # accepted, but not here
        assert refused.code == 2
        assert f"{inner / '.segue.toml'}:2" in refused.stderr
        assert not mark.exists()


def test_a_run_of_the_past_is_rerun_and_resumed_with_the_check_that_it_had(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        mark, _ = put_check(s)
        assert s.run("--trust-check").code == 0
        (run,) = s.run_ids()
        mark.unlink()
        (s.project / ".segue.toml").write_text("[run]\ncheck = 'touch never'\n")
        assert s.segue("rerun", run).code == 0
        assert mark.exists()
        assert not (s.project / "never").exists()


def test_what_the_user_says_needs_no_yes(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        _, check = put_check(s)
        own = s.root / "own"
        assert s.run("--check", f"touch {own}").code == 0
        assert own.exists()
        own.unlink()
        s.config(f"[run]\ncheck = 'touch {own}'\n")
        is_refused(s, s.run(), check)
        assert s.run("--no-project-check").code == 0
        assert own.exists()
        assert not (s.root / "ran").exists()
        both = s.run("--no-project-check", "--trust-check")
        assert both.code == 2
        assert "cannot be combined" in both.stderr


def test_a_dry_run_tells_of_it_and_accepts_nothing(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        mark, check = put_check(s)
        shown = s.run("--dry-run")
        assert shown.code == 0
        assert check in shown.stdout
        assert "not accepted" in shown.stdout
        is_refused(s, s.run(), check)
        assert not mark.exists()


@pytest.mark.parametrize(("answer", "code"), [("n", 2), ("", 2), ("y", 0)])
def test_on_a_terminal_it_is_asked_once_with_the_literal_command(
    answer: str, code: int, tmp_path: Path
) -> None:
    with stage("success", within=tmp_path) as s:
        mark = s.root / "ran"
        check = f"touch {mark} #\\u001b[2K"  # a terminal would show an empty line
        (s.project / ".segue.toml").write_text(f'[run]\ncheck = "{check}"\n')
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [*SEGUE, *s.words("--json")], cwd=s.project, env=s.env, stdin=slave, stderr=slave,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(slave)
        try:
            shown = until_asked(master)
            assert check in shown
            assert s.run_ids() == []
            os.write(master, f"{answer}\n".encode())
            while process.poll() is None:
                with suppress(OSError):
                    os.read(master, 4096)
        finally:
            process.kill()
            process.wait()
            os.close(master)
        assert process.returncode == code
        assert mark.exists() == (code == 0)
        if code == 0:
            assert s.run("--share-tree").code == 0


def until_asked(master: int) -> str:
    shown = b""
    deadline = time.monotonic() + 60
    while b"Accept it" not in shown:
        assert time.monotonic() < deadline
        shown += os.read(master, 4096)
    return shown.decode()


def test_a_program_has_to_say_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stage("success", within=tmp_path) as s:
        mark, _ = put_check(s)
        for name in list(os.environ):
            monkeypatch.delenv(name)
        for name, value in s.env.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(CheckNotAccepted):
            library_run(s.task, agent=s.agent, cwd=s.project)
        assert s.server.requests == []
        library_run(s.task, agent=s.agent, cwd=s.project, trust_check=True)
        assert mark.exists()


@pytest.mark.parametrize("is_accepted", [False, True])
def test_the_daemon_resumes_without_it(
    is_accepted: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A session by hand is killed in the middle of its turn, and goes on as a run."""
    with stage("success", within=tmp_path_factory.mktemp("s")) as s:
        mark, _ = put_check(s)
        if is_accepted:
            assert s.run("--trust-check").code == 0
            mark.unlink()
        home, now = Path(s.env["CLAUDE_CONFIG_DIR"]), time.time()
        busy = homes.call("Bash", command="sleep 600")
        cwd = str(s.project)
        homes.claude_session(
            home,
            homes.prompt(s.task, cwd=cwd, at=now - 9),
            homes.reply(1, 20_000, cwd=cwd, at=now - 8, stop="tool_use", content=busy),
            folder=".",
        )
        agent = Agent(home)
        more = 'resume_places = ["headless"]\nresume_gap_s = 0\n'
        s.config(more=more)
        known = len(s.run_ids())
        try:
            with watching(s.home, s.env, "--auto") as daemon:
                seen = lambda: [  # noqa: E731
                    x for x in daemon.remote.get("/v1/sessions")["sessions"]
                    if x["session_id"] == homes.SESSION and x["state"] == "working"
                ]  # fmt: skip
                daemon.until(seen, "the session at work")
                agent.end(signal.SIGKILL)
                daemon.until(lambda: len(s.run_ids()) > known, "a run")
                run = s.run_ids()[0]
                daemon.until(lambda: s.state(run) == "done", "its end", 120)
        finally:
            agent.end()
        assert not mark.exists()
