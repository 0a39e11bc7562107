"""State files of the version whose settings were called `most_` and `least_`, dumped from real
ones: one run was done, one was cut short by a kill."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from support.paths import DATA

from segue.runs.store import open_store
from segue.system.files import state


def restore(name: str) -> Path:
    place = Path(state.state_folder()) / name
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with closing(sqlite3.connect(place)) as db:
        db.executescript((DATA / "old" / f"{name}.sql").read_text())
    place.chmod(0o600)
    return place


@pytest.fixture
def old_runs() -> Path:
    return restore("runs.db")


def segue(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "segue", *words],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_runs_of_an_older_version_are_listed_and_shown(old_runs: Path) -> None:
    listed = json.loads(segue("runs", "--json").stdout)
    assert {each["task"]: each["state"] for each in listed["runs"]} == {
        "count to three": "done",
        "a task that was cut short": "working",
    }
    shown = segue("show", "run-37673008", "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["state"] == "done"


def test_a_run_keeps_the_settings_that_an_older_version_gave_it(old_runs: Path) -> None:
    with closing(open_store()) as store:
        done, cut_short = store.run("run-37673008"), store.run("run-d23373e5")
    assert done is not None
    assert (done.policy.max_legs, done.policy.max_tokens) == (7, 123_456)
    assert cut_short is not None
    assert cut_short.policy.max_limited_s == 3600.0


def test_the_watch_log_of_an_older_version_is_read() -> None:
    restore("watch.db")
    noted = segue("notes", "--json")
    assert noted.returncode == 0, noted.stderr
    kinds = [json.loads(line)["kind"] for line in noted.stdout.splitlines()]
    assert kinds == ["daemon", "daemon"]
