"""A pipe, a device, a folder or a huge file where a file is meant: one clear line, at once."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support import homes

SEGUE = (sys.executable, "-c", "from segue.start import main; main()")
MAX_S = 120.0  # none of it takes a second; a pipe would be waited for for ever


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse


ODD = (fifo, endless, folder, huge)
Made = Callable[[Path], None]


@pytest.fixture
def project(own_home: Path) -> Path:
    made = own_home / "project"
    made.mkdir()
    (own_home / "segue").mkdir(exist_ok=True)
    return made


def segue(
    cwd: Path, *words: str, stdin: int = subprocess.DEVNULL
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*SEGUE, *words],
        cwd=cwd,
        env=dict(os.environ),
        stdin=stdin,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=MAX_S,
        check=False,
    )


def is_one_line(done: "subprocess.CompletedProcess[str]", *words: str) -> None:
    assert done.returncode == 2, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("segue: ")
    for word in words:
        assert word in line


@pytest.mark.parametrize("odd", ODD)
def test_as_a_prompt_file(odd: Made, project: Path, own_home: Path) -> None:
    agent = '[agents.mine]\ncommand = ["true"]\n[prompts]\ncontinuation = "own.md"\n'
    (own_home / "segue" / "config.toml").write_text(agent)
    odd(own_home / "segue" / "own.md")
    is_one_line(segue(project, "run", "--agent", "mine", "x"), "own.md", "cannot be read")


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("where", ["user", "project"])
def test_as_a_config_file(odd: Made, where: str, project: Path, own_home: Path) -> None:
    file = own_home / "segue" / "config.toml" if where == "user" else project / ".segue.toml"
    odd(file)
    for words in (("config", "show"), ("run", "--agent", "claude", "x")):
        is_one_line(segue(project, *words), str(file), "cannot be read")


@pytest.mark.parametrize("odd", ODD)
def test_as_a_file_of_wordings(odd: Made, project: Path, own_home: Path) -> None:
    odd(own_home / "segue" / "wordings.toml")
    done = segue(project, "wordings", "list")
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("odd", ODD)
def test_as_an_agents_settings(odd: Made, project: Path, own_home: Path) -> None:
    settings = own_home / ".claude" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    odd(settings)
    is_one_line(segue(project, "setup", "claude"), str(settings), "nothing was written")


@pytest.mark.parametrize("odd", ODD)
def test_as_an_agents_config_in_a_project(odd: Made, project: Path, own_home: Path) -> None:
    """The repository's: whoever looks at a session in it reads that for the window's size."""
    database = homes.OpencodeDb(own_home / ".local" / "share" / "opencode" / "opencode.db")
    database.session("ses_0123456789abcdef", str(project), homes.START)
    database.message("msg_1", "ses_0123456789abcdef", homes.START, role="user")
    database.answer(2, "ses_0123456789abcdef", homes.START, 5_000)
    database.db.close()
    odd(project / "opencode.json")
    done = segue(project, "sessions", "--json")
    assert done.returncode == 0, done.stderr
    assert "ses_0123456789abcdef" in done.stdout


@pytest.mark.parametrize("odd", [endless, huge])
def test_as_a_task_on_the_input(odd: Made, project: Path, own_home: Path) -> None:
    (own_home / "segue" / "config.toml").write_text('[agents.mine]\ncommand = ["true"]\n')
    odd(project / "task")
    handle = os.open(project / "task", os.O_RDONLY)
    try:
        done = segue(project, "run", "--agent", "mine", "-", stdin=handle)
    finally:
        os.close(handle)
    is_one_line(done, "larger than")


@pytest.mark.parametrize("odd", ODD)
def test_as_what_an_agent_left_behind(odd: Made, project: Path) -> None:
    odd(project / "out")
    done = segue(project, "classify", "out")
    assert "Traceback" not in done.stderr
    assert done.returncode == 2, done
