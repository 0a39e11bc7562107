"""What `segue run` warns about before it starts, and what `--strict` does with it."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.running import Ended, Staged, stage

from segue.cli.support.checkup import checks
from segue.cli.support.run import warnings as run_warnings
from segue.drill import casts

STRICT = "segue: --strict: not started because of "


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Staged]:
    with stage("success", within=tmp_path) as staged:
        yield staged


def warned(ended: Ended) -> list[str]:
    begin = "segue: warning: "
    lines = ended.stderr.splitlines()
    return [line.removeprefix(begin) for line in lines if line.startswith(begin)]


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "x", "--allow-empty")


def run(place: Staged, *words: str, cwd: Path | None = None) -> Ended:
    return place.segue("run", "--agent", place.agent, *words, place.task, cwd=cwd)


def test_where_nothing_is_wrong_nothing_is_said_and_strict_starts_it(place: Staged) -> None:
    commit(place.project)
    ended = run(place, "--strict", "--check", "true")
    assert ended.code == 0, ended.stderr
    assert warned(ended) == []


def test_no_repository_and_no_check_are_one_line_each_and_strict_names_both(place: Staged) -> None:
    shutil.rmtree(place.project / ".git", ignore_errors=True)
    ended = run(place, "--strict", "--json")
    assert ended.code == 2
    assert ended.stdout == ""
    assert warned(ended) == [
        "no git repository here: segue cannot take snapshots, and changes cannot be undone;"
        " git init",
        "no --check: only the agent decides when the task is done; add --check CMD",
    ]
    assert ended.stderr.splitlines()[-1] == f"{STRICT}2 warnings"
    assert place.run_ids() == []
    assert place.answers == []


def test_a_run_that_is_warned_of_begins_all_the_same_and_its_stdout_is_its_own(
    place: Staged,
) -> None:
    commit(place.project)
    (place.project / "mine.txt").write_text("half done\n")
    ended = run(place, "--json", "--check", "true")
    assert ended.code == 0
    (line,) = warned(ended)
    assert line.startswith("uncommitted changes here: the agent's will mix with yours; git ")
    assert ended.events[-1]["state"] == "done"


@pytest.mark.parametrize("folder", ["home", "/"])
def test_neither_the_home_folder_nor_the_root_is_a_project(folder: str, place: Staged) -> None:
    cwd = Path(place.env["HOME"]) if folder == "home" else Path("/")
    ended = run(place, "--strict", "--check", "true", cwd=cwd)
    assert ended.code == 2
    (line,) = warned(ended)
    assert line.startswith("the agent would work in ")
    assert line.endswith("; cd into a project first")


def test_a_limit_that_another_run_met_is_known_before_the_next_one_begins(tmp_path: Path) -> None:
    ours = Path(casts.__file__).parents[1] / "scenarios/plan-limit.toml"
    scenario = tmp_path / "long-limit.toml"
    scenario.write_text(ours.read_text().replace("resets_in_s = 8", "resets_in_s = 7200"))
    with stage(scenario, within=tmp_path, policy={"max_limited_s": 0}) as s:
        first = run(s, "--check", "true")
        assert first.code == 75, first.stderr
        commit(s.project)
        ended = run(s, "--strict", "--check", "true")
        assert ended.code == 2
        (line,) = warned(ended)
        assert line.startswith("claude is limited until ")


def test_a_limit_that_a_session_met_is_known_too(place: Staged) -> None:
    """codex tells in its session file how much of its plan is used."""
    used = {"used_percent": 100.0, "window_minutes": 300, "resets_at": int(time.time()) + 7200}
    folder = Path(place.env["HOME"], ".codex/sessions/2026/01/02")
    folder.mkdir(parents=True)
    ident = "01a1e5c0-4d78-7961-8f57-f87dd41f80eb"
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    count = {"last_token_usage": {"total_tokens": 9}, "total_token_usage": {"total_tokens": 9}}
    records = [
        {"timestamp": at, "type": "session_meta", "payload": {"id": ident, "cwd": "/x"}},
        {
            "timestamp": at,
            "type": "event_msg",
            "payload": {
                "type": "token_count",
                "info": count,
                "rate_limits": {"primary": used, "limit_id": "codex"},
            },
        },
    ]
    file = folder / f"rollout-2026-01-02T03-04-05-{ident}.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    program = place.root / "codex"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    commit(place.project)
    words = ("run", "--strict", "--agent", "codex", "--check", "true", "x")
    ended = place.segue(*words, PATH=f"{place.root}:{os.environ['PATH']}")
    assert ended.code == 2
    assert any(line.startswith("codex is limited until ") for line in warned(ended)), ended.stderr


def test_a_disk_that_is_nearly_full_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=200_000_000))
    (line,) = run_warnings.space((str(tmp_path), str(tmp_path / "not/yet")))
    assert line == f"only 200 MB free on the disk of {tmp_path}; make room"


INHIBITED = "segue 0 root 4242 segue-run sleep:idle:handle-lid-switch a night's work block"
DELAYED = "NetworkManager 0 root 700 NetworkManager sleep NetworkManager needs a moment delay"


@pytest.mark.parametrize(("inhibitors", "status"), [(INHIBITED, "ok"), (DELAYED, "warn")])
def test_a_laptop_that_a_program_keeps_awake_does_not_sleep(
    inhibitors: str, status: str, tmp_path: Path
) -> None:
    (tmp_path / "power").mkdir()
    (tmp_path / "power/state").write_text("freeze mem disk\n")
    battery = tmp_path / "class/power_supply/BAT0"
    battery.mkdir(parents=True)
    (battery / "type").write_text("Battery\n")

    def asked(argv: object) -> str:
        return inhibitors if "systemd-inhibit" in str(argv) else "static\nstatic"

    (check,) = checks.sleep({}, platform="linux", sys_folder=tmp_path, asked=asked)
    assert check.status == status
