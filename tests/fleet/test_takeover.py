"""Machines that share a queue on a real PostgreSQL: what one of them means for the other. How they
fail is played in `test_three_machines`."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.fleet.machines import TestMachine
from support.fleet.postgres import Postgres, postgres
from support.waiting import until

from segue.cli import cli

LONG_S = 90.0
COMMAND = json.dumps(["sh", "-c", 'eval "$0"', "{prompt}"])
AGENT = f'[run]\nagent = "mine"\n[agents.mine]\ncommand = {COMMAND}\n'


@pytest.fixture
def server() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    who = ("-c", "user.name=me", "-c", "user.email=me@example.invalid")
    (folder / "a.txt").write_text("one\n")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "first")):
        subprocess.run(["git", *who, *words], cwd=folder, check=True)
    return folder


@pytest.fixture
def machines(tmp_path: Path, server: Postgres) -> Iterator[list[TestMachine]]:
    made = [TestMachine.make(tmp_path / name, server.url(), AGENT) for name in ("one", "two")]
    yield made
    for machine in made:
        machine.power_cut()


def segue(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def submit(repo: Path, text: str) -> str:
    told = segue("submit", "--json", "--repo", f"file://{repo}", text)
    (task,) = json.loads(told.splitlines()[-1])["tasks"]
    return str(task)


def shown(task: str) -> dict[str, Any]:
    told = json.loads(segue("queue", "--json"))
    found: dict[str, Any] = {each["task"]: each for each in told["tasks"]}[task]
    return found


@pytest.fixture(autouse=True)
def here(tmp_path: Path, server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks is on a third machine."""
    monkeypatch.setenv("SEGUE_FLEET", server.url())
    place = tmp_path / "home" / "segue"
    place.mkdir()
    (place / "config.toml").write_text(AGENT)
    monkeypatch.chdir(tmp_path)


def test_a_database_that_is_away_for_a_moment_interrupts_nothing(
    repo: Path, machines: list[TestMachine], server: Postgres, tmp_path: Path
) -> None:
    log, hold = tmp_path / "log", tmp_path / "hold"
    hold.touch()
    script = f"echo begin >> {log}; while [ -e {hold} ]; do sleep 0.1; done; echo done > done.txt"
    task = submit(repo, script)
    machines[0].start("worker")
    until(lambda: log.exists())
    server.stop()
    server.start()
    hold.unlink()
    until(lambda: shown(task)["state"] == "done")
    assert log.read_text() == "begin\n"


def test_a_limit_that_one_machine_meets_keeps_another_from_trying_until_it_is_forgotten(
    repo: Path, machines: list[TestMachine], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    limit = "Error: 429 You have hit your usage limit. Try again in 1 hour."
    tasks = [
        submit(repo, f"echo {name} >> {log}; echo '{limit}' >&2; exit 1") for name in ("a", "b")
    ]
    machines[0].start("worker", "--jobs", "1")
    until(lambda: shown(tasks[0])["state"] == "waiting")
    machines[1].start("worker")
    until(lambda: segue("fleet", "status").count("last seen") == 2)
    until(lambda: shown(tasks[1])["why"] == "mine is limited")
    (account,) = json.loads(segue("fleet", "accounts", "--json"))["accounts"]
    assert account["limited_until"] is not None
    assert log.read_text() == "a\n"
    segue("limits", "--clear")
    until(lambda: log.read_text().count("\n") >= 2)


def test_a_drained_machine_takes_nothing_new(repo: Path, machines: list[TestMachine]) -> None:
    worker = machines[0].start("worker")
    until(lambda: "last seen" in segue("fleet", "status"))
    (there,) = json.loads(segue("fleet", "status", "--json"))["machines"]
    segue("fleet", "drain", there["machine"])
    task = submit(repo, "echo x > c.txt")
    machines[1].start("worker", "--until-empty")
    until(lambda: shown(task)["state"] == "done")
    assert worker.poll() is None
    assert "starts with" not in machines[0].said()
    segue("fleet", "drain", "--undo", there["machine"])
    segue("fleet", "drain", "nobody", code=2)


def test_what_a_lost_machine_had_pushed_is_there_where_its_task_continues(
    repo: Path, machines: list[TestMachine], tmp_path: Path
) -> None:
    log, hold = tmp_path / "log", tmp_path / "hold"
    hold.touch()
    script = (
        f"ls >> {log}; echo begun >> {log}; "
        "test -e half.txt || { echo half > half.txt; git add -A; echo more > more.txt; }; "
        f"while [ -e {hold} ]; do sleep 0.1; done; exit 1"
    )
    task = submit(repo, script)
    machines[0].start("worker")
    until(lambda: log.exists() and "begun" in log.read_text())
    # The first leg fails, and its end is a snapshot; the run waits for a user then.
    hold.unlink()
    until(lambda: shown(task)["state"] == "failed")
    until(lambda: f"refs/segue/{task}" in _git(repo, "for-each-ref", "refs/segue"))
    until(lambda: "more.txt" in _git(repo, "ls-tree", "--name-only", f"refs/segue/{task}"))
    machines[0].power_cut()
    hold.touch()
    segue("queue", "retry", task)
    machines[1].start("worker")
    until(lambda: log.read_text().count("begun") == 2)
    second = log.read_text().split("begun")[1]
    assert {"half.txt", "more.txt"} <= set(second.split())
    runs = {each["run"]: each for each in json.loads(segue("runs", "--json"))["runs"]}
    run = runs[shown(task)["run"]]
    assert "this task was started on another machine, which was lost" in run["task"]
    assert "later work is lost" in run["task"]
    hold.unlink()


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout
