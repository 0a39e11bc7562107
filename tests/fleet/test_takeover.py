"""Machines that share a queue on a real PostgreSQL: one is lost, the database is lost."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.machines import LEASE_S, TestMachine
from support.postgres import Postgres, postgres

from segue.cli import cli

LONG_S = 90.0
COMMAND = json.dumps(["sh", "-c", 'eval "$0"', "{prompt}"])
AGENT = f'[run]\nagent = "mine"\n[agents.mine]\ncommand = {COMMAND}\n'


def until(holds: Callable[[], Any]) -> Any:
    limit = time.monotonic() + LONG_S
    while not (found := holds()):
        assert time.monotonic() < limit, "it never came true"
        time.sleep(0.1)
    return found


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


def test_the_tasks_of_a_machine_that_is_lost_are_taken_over_and_never_run_on_two_at_once(
    repo: Path, machines: list[TestMachine], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    hold = tmp_path / "hold"
    hold.touch()
    script = (
        f"echo begin $(cat /etc/machine-id) >> {log}; "
        f"while [ -e {hold} ]; do echo at work $(cat /etc/machine-id) >> {log}; sleep 0.2; done; "
        "echo done > done.txt; exit 0"  # what follows is what segue says of the machine
    )
    task = submit(repo, script)
    machines[0].start("worker")
    until(lambda: log.exists() and "at work" in log.read_text())
    machines[1].start("worker")
    until(lambda: segue("fleet", "status").count("at work") == 2)
    lost_at = time.monotonic()
    machines[0].power_cut()
    first = (machines[0].folder / "machine-id").read_text()
    second = (machines[1].folder / "machine-id").read_text()
    lines = log.read_text().count("\n")
    until(lambda: f"begin {second}" in log.read_text())
    print(f"taken over after {time.monotonic() - lost_at:.1f} s, lease {LEASE_S} s")
    after = log.read_text().splitlines()[lines:]
    assert first not in "".join(after)
    hold.unlink()
    until(lambda: shown(task)["state"] == "done")
    told = segue("fleet", "status")
    assert "its work is taken over" in told
    silent = json.loads(segue("fleet", "status", "--json"))["machines"]
    (gone,) = [each["machine"] for each in silent if not each["is_alive"]]
    segue("fleet", "forget", gone)
    assert gone not in segue("fleet", "status")


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


def test_a_machine_that_cannot_reach_the_database_ends_its_agent_within_the_lease(
    repo: Path, machines: list[TestMachine], server: Postgres, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    submit(repo, f"while true; do date +%s.%N >> {log}; sleep 0.1; done")
    machines[0].start("worker")
    until(lambda: log.exists() and log.read_text().count("\n") > 5)
    server.stop()
    stopped_at = time.time()
    until(lambda: time.time() - float(log.read_text().split()[-1]) > 2)
    assert float(log.read_text().split()[-1]) - stopped_at < LEASE_S
    server.start()


def test_a_drained_machine_takes_nothing_new(repo: Path, machines: list[TestMachine]) -> None:
    worker = machines[0].start("worker")
    until(lambda: "at work" in segue("fleet", "status"))
    (there,) = json.loads(segue("fleet", "status", "--json"))["machines"]
    segue("fleet", "drain", there["machine"])
    task = submit(repo, "echo x > c.txt")
    machines[1].start("worker", "--until-empty")
    until(lambda: shown(task)["state"] == "done")
    assert worker.poll() is None
    assert "starts with" not in machines[0].said()
    segue("fleet", "drain", "--undo", there["machine"])
    segue("fleet", "drain", "nobody", code=2)


def test_what_a_lost_machine_had_pushed_is_there_where_its_task_goes_on(
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
    assert "this task was begun on another machine, which was lost" in run["task"]
    assert "what was done later is lost" in run["task"]
    hold.unlink()


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout
