"""Commands in the docs that need a daemon, another machine or a real agent are also run as
written."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import SCRIPT
from support.playing import AGENTS_FOLDER, missing
from support.watching import watching

from segue.agents import drives
from segue.drill.plays import enclosure

DOCS = Path(__file__).parents[2] / "docs"
BIN = Path(sys.executable).parent
HOUR = str(Path(__file__).parents[1] / "support/agents/first_hour.py")
SSH = """#!/bin/sh
# Stands in for another machine: a shell without a profile, in the user's home.
[ "$1" = -t ] && shift
echo "on $1" >&2
shift
cd && exec sh -c "$*"
"""


def commands(page: str, begin: str) -> list[str]:
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", (DOCS / page).read_text(), re.S)
    lines = (line.removeprefix("$ ").strip() for line in "".join(blocks).splitlines())
    return [line for line in lines if line.startswith(begin)]


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A short path: a socket is in there, where the docs say that it is."""
    home = tmp_path_factory.mktemp("h")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SEGUE_HOME")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return home


def said_by(command: str, env: dict[str, str], cwd: Path) -> Iterator[str]:
    """Its lines as they come; it is ended once nobody asks for more."""
    process = subprocess.Popen(
        ["sh", "-c", f"exec {command}"],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            yield from process.stdout
        finally:
            process.terminate()


def test_curl_asks_the_daemon_as_the_docs_say(home: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    sessions, events, handoff = commands("api.md", "curl --unix-socket")
    place = home / ".local/state/segue"
    place.mkdir(parents=True)
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    with watching(place, env):
        assert json.loads("".join(said_by(sessions, env, home)))["sessions"] == []
        stream = said_by(f"{events} -i", env, home)
        assert next(stream).startswith("HTTP/1.1 200")
        assert "text/event-stream" in next(
            line for line in stream if "content-type" in line.lower()
        )
        stream.close()  # type: ignore[attr-defined]
        assert json.loads("".join(said_by(handoff, env, home)))["error"].count("\n") == 0


def test_what_is_typed_over_ssh_works_in_a_shell_without_a_profile(home: Path) -> None:
    project = home / "code/shop"
    project.mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "bin/ssh").write_text(SSH)
    (home / "bin/ssh").chmod(0o755)
    (home / ".config/segue").mkdir(parents=True)
    (home / ".config/segue/config.toml").write_text(
        '[run]\nagent = "mine"\n[agents.mine]\ncommand = ["echo", "All tests pass."]\n'
    )
    path = f"{home / 'bin'}:{BIN}:{os.environ['PATH']}"
    env = {"HOME": str(home), "PATH": path, "LC_ALL": "C.UTF-8"}

    def typed(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", command],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    assert typed("segue run --detach 'mend it'", project).returncode == 0
    attach, status = commands("ssh.md", "ssh ")
    done = typed(attach, home)
    assert (done.returncode, done.stdout.strip()) == (0, "All tests pass."), done.stderr
    assert done.stderr.startswith("on build-host\n")
    done = typed(status, home)
    assert json.loads(done.stdout)["schema"] == 1


def test_the_run_with_codex_and_a_model_of_its_own_reaches_the_end(tmp_path: Path) -> None:
    env = {**os.environ, "SEGUE_AGENTS": AGENTS_FOLDER}
    drive = drives.find("codex")
    if drive is None or drive.find(env) is None:
        missing("codex is not installed")
    if reason := enclosure.why_not():
        missing(reason)
    (command,) = commands("run.md", "segue run --agent codex")
    (tmp_path / "project").mkdir()
    plan = {"commands": [shlex.split(command)[1:]], "calls": [{"say": "It is written."}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    argv = [sys.executable, SCRIPT, HOUR, "codex", str(tmp_path), str(tmp_path / "plan.json")]
    done = subprocess.run(
        enclosure.command(argv), env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    (answered,) = json.loads(done.stdout)["answered"]
    assert (answered["code"], answered["out"]) == (0, "It is written.\n"), answered
