"""Nothing that a repository names is run by segue: not by looking, whatever command looks."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support import homes
from support.hostile.repository import PLANTS, Armed
from support.watching import watching

from segue import client
from segue.system.git import git
from segue.watch.log import Note

SEGUE = (sys.executable, "-c", "from segue.start import main; main()")
AGENT = "echo more >> work.txt; echo all is done"
CHECK = "test -e ../checked || { : > ../checked; exit 1; }"  # it fails once


@pytest.mark.parametrize("name", [name for name in PLANTS if PLANTS[name].fires])
def test_plain_git_runs(name: str, tmp_path: Path) -> None:
    armed = Armed(tmp_path)
    armed.plant(name)
    assert armed.marks == set()
    armed.fire(name)
    assert armed.marks == {name}


@pytest.mark.parametrize("name", PLANTS)
def test_looking_does_not_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone: together, one may keep another from running."""
    armed = Armed(tmp_path)
    armed.plant(name)
    monkeypatch.setenv("HOME", str(armed.home))
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    for folder in (".", "sub", "nested"):
        found = git.status(str(armed.project / folder))
        assert found is not None
        assert found.digest
    assert armed.marks == set()


@pytest.fixture
def armed(tmp_path: Path) -> Iterator[Armed]:
    found = Armed(tmp_path)
    found.plant(*PLANTS)
    assert found.marks == set()
    yield found
    assert found.marks == set()


@pytest.fixture
def env(armed: Armed) -> Mapping[str, str]:
    """Of a user who has "." on the PATH; what git is asked is written down."""
    real = next(p for p in os.environ["PATH"].split(":") if (Path(p) / "git").exists())
    shim = armed.folder / "bin" / "git"
    shim.parent.mkdir()
    asked = armed.folder / "asked"
    shim.write_text(f'#!/bin/sh\necho "$@" >> {asked}\nexec {real}/git "$@"\n')
    shim.chmod(0o755)
    home = armed.folder / "segue"
    home.mkdir(mode=0o700)
    command = json.dumps(["sh", "-c", AGENT])
    (home / "config.toml").write_text(f'[agents.mine]\ncommand = {command}\ndone = "all is done"\n')
    path = f".:{shim.parent}:{os.environ['PATH']}"
    return {"PATH": path, "HOME": str(armed.home), "LC_ALL": "C.UTF-8", "SEGUE_HOME": str(home)}


def segue(armed: Armed, env: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SEGUE, *words],
        cwd=armed.project,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def asked(armed: Armed) -> str:
    file = armed.folder / "asked"
    return file.read_text() if file.exists() else ""


def test_looking_at_it_runs_none_of_them_and_tells_what_changed(armed: Armed) -> None:
    found = git.status(str(armed.project))
    assert found is not None
    assert found.branch == "main"
    assert found.digest
    assert " M plain.txt" in found.status
    assert "filter-in-nested.txt" not in found.status
    assert "?? nested/" in found.status
    (armed.project / "sub" / "inner.txt").write_text("changed")
    assert git.status(str(armed.project / "sub")) is not None
    again = git.status(str(armed.project))
    assert again is not None
    assert again.digest != found.digest
    assert " M sub" in again.status.split("\n")


def test_no_command_of_a_run_runs_any_of_them(armed: Armed, env: Mapping[str, str]) -> None:
    ran = segue(armed, env, "run", "--agent", "mine", "--check", CHECK, "--json", "the task")
    assert ran.returncode == 0, ran.stderr
    assert "status --porcelain=v2" in asked(armed)
    run = json.loads(ran.stdout.splitlines()[0])["run"]
    for words in (
        ("runs",),
        ("show", run),
        ("logs", run),
        ("status",),
        ("sessions",),
        ("config",),
        ("doctor",),
        ("rerun", run),
        ("resume", run),
    ):
        done = segue(armed, env, *words)
        assert "Traceback" not in done.stderr, words
        assert armed.marks == set(), words


def test_the_daemon_runs_none_of_them(armed: Armed, env: Mapping[str, str]) -> None:
    cwd = str(armed.project)
    homes.claude_session(
        armed.home, homes.prompt("do it", cwd=cwd), homes.reply(1, 100_000, cwd=cwd)
    )
    with watching(armed.folder / "segue", {**env}) as daemon:
        hook = {
            "hook_event_name": "PreCompact",
            "session_id": homes.SESSION,
            "transcript_path": str(next(armed.home.rglob("*.jsonl"))),
            "cwd": cwd,
            "trigger": "auto",
        }
        place = daemon.remote.path
        words = [sys.executable, "-I", "-S", client.__file__, "hook", place, "PreCompact"]

        def saved() -> list[Note]:
            """A hook that finds the daemon busy is not heard."""
            subprocess.run(
                words, input=json.dumps(hook), text=True, env=env, cwd=cwd, check=True, timeout=60
            )
            return daemon.notes("checkpoint")

        note = daemon.until(saved, "a checkpoint")[0]
        assert "plain.txt" in Path(note.data["file"]).read_text()
        assert "status --porcelain=v2" in asked(armed)
