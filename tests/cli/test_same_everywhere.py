"""What holds for every command: JSON says which form it has, the same fault has the same exit code,
and times have one form."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.homes import claude_session, reply
from support.running import LONG_S

from segue.cli import COMMANDS
from segue.watch.log import Log

SESSION = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def place(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a session, a finished run, a note of the daemon's and an agent."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    claude_session(own_home, reply(1, 20_000, at=time.time(), cwd=str(work)))
    home = Path(os.environ["SEGUE_HOME"])
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text('[run]\nagent = "mine"\n[agents.mine]\ncommand = ["true"]\n')
    (home / "wordings.toml").write_text(
        '[[wording]]\nid = "a"\nreason = "rate_limit"\npattern = "b"\nexample = ["b"]\n'
    )
    log = Log(home / "watch.db")
    data = {"zone": "warning", "fraction": 0.5}
    for at in (time.time(), time.time() - 3 * 86_400):
        log.append("crossing", at=at, agent="claude", session_id=SESSION, data=data)
    log.close()
    assert segue("run", "do it").returncode == 0
    (work / "out.txt").write_text("API Error: Rate limit reached\n")
    return work


def segue(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "segue", *words],
        input="API Error: Rate limit reached\n",
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )


READS: dict[str, list[tuple[str, ...]]] = {
    "runs": [()],
    "logs": [()],
    "attach": [()],
    "status": [()],
    "sessions": [()],
    "show": [(), (SESSION,)],
    "notes": [()],
    "fits": [("5K",), ("5K", SESSION)],
    "scan": [(), ("--cost",)],
    "classify": [("out.txt",), ("--example", "claude-context-full")],
    "explain": [("out.txt",)],
    "config": [("show",), ("path",), ("path", "--project")],
    "doctor": [()],
    "wordings": [("list",), ("test", "x"), ("check",)],
    "service": [("status",)],
    "drill": [("--list",)],
    "run": [("--dry-run", "x")],
    "open": [("--list",)],
    "forget": [("--all", "--dry-run")],
    "queue": [()],
    "report": [(), ("--figures",)],
    "limits": [()],
    "tune": [()],
    "simulate": [("--sessions", "1", "--days", "1", "--no-compare")],
    "rescue": [()],
    "checkpoint": [(SESSION,)],
}
"""Commands that only read, with the words that make them do so."""
NO_JSON = {
    "resume": "acts; its --json is that of run",
    "rerun": "acts; its --json is that of run",
    "cancel": "acts, and says so in one line",
    "watch": "acts; prints notes",
    "pause": "acts", "unpause": "acts", "handoff": "acts", "allow": "acts", "notify": "acts",
    "setup": "acts", "uninstall": "acts",
    "statusline": "prints what claude shows",
    "dashboard": "serves pages",
    "fleet": "needs a database; tests/fleet reads its JSON",
    "submit": "acts", "worker": "acts", "restore": "acts",
    "diff": "prints a diff",
    "completion": "prints a script",
    "mcp": "waiting for MCP",
}  # fmt: skip


def test_no_command_is_left_out() -> None:
    others = set(COMMANDS) - set(READS) - set(NO_JSON)
    assert not others, f"does it only read? {others}"


def test_every_read_has_json_that_says_which_form_it_has(place: Path) -> None:
    missing = []
    for command, ways in READS.items():
        for words in ways:
            done = segue(command, *words, "--json")
            lines = done.stdout.splitlines()
            if not lines or not all(json.loads(line).get("schema") == 1 for line in lines):
                missing.append((command, *words, done.stdout[:80], done.stderr[-200:]))
    assert not missing


def codes(*calls: tuple[str, ...]) -> dict[tuple[str, ...], tuple[int, int]]:
    """Of each call its exit code, and how many lines it needed to say why."""
    found = {}
    for words in calls:
        done = segue(*words)
        assert "Traceback" not in done.stderr, (words, done.stderr)
        found[words] = done.returncode, len(done.stderr.splitlines())
    return found


def all_are(found: dict[tuple[str, ...], tuple[int, int]], code: int) -> bool:
    others = {words: said for words, said in found.items() if said != (code, 1)}
    assert not others
    return True


RUN_COMMANDS = ("logs", "show", "resume", "attach", "cancel", "rerun", "forget")


def test_an_unknown_run_is_2_everywhere(place: Path) -> None:
    assert all_are(codes(*((name, "run-nothing") for name in RUN_COMMANDS)), 2)


def test_an_unknown_agent_is_2_everywhere(place: Path) -> None:
    calls = [
        ("run", "--agent", "nobody", "x"),
        ("run", "--dry-run", "--agent", "nobody", "x"),
        ("sessions", "--agent", "nobody"),
        ("drill", "--agent", "nobody"),
        ("config", "show", "--agent", "nobody"),
        ("setup", "nobody"),
    ]
    assert all_are(codes(*calls), 2)


def test_a_file_that_is_not_there_is_2_everywhere(place: Path) -> None:
    calls = [
        ("classify", "nothing.txt"),
        ("classify", "--stdout", "nothing.txt"),
        ("explain", "nothing.txt"),
        ("run", "--task-file", "nothing.txt"),
        ("wordings", "check", "nothing.txt"),
        ("drill", "--scenario", "nothing.toml"),
    ]
    assert all_are(codes(*calls), 2)


def test_a_wrong_config_is_2_everywhere(place: Path) -> None:
    (Path(os.environ["SEGUE_HOME"]) / "config.toml").write_text("[policy]\nhard_mark = true\n")
    calls = [
        ("run", "x"),
        ("status",),
        ("sessions",),
        ("show", SESSION),
        ("fits", "5K"),
        ("classify", "out.txt"),
        ("explain", "out.txt"),
        ("config", "show"),
        ("rerun", "run-"),
        ("watch",),
        ("wordings", "list"),
    ]
    assert all_are(codes(*calls), 2)
    for words in calls:
        assert "config.toml:2: " in segue(*words).stderr


def test_a_damaged_store_is_2_everywhere_and_is_left_as_it_is(place: Path) -> None:
    home = Path(os.environ["SEGUE_HOME"])
    for name in ("runs.db-wal", "runs.db-shm"):
        (home / name).unlink(missing_ok=True)
    broken = b"no database" * 1000
    (home / "runs.db").write_bytes(broken)
    calls = [("runs",), *((name, "run-1") for name in RUN_COMMANDS), ("run", "x")]
    assert all_are(codes(*calls), 2)
    assert (home / "runs.db").read_bytes() == broken


TIME = re.compile(r"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d")
OTHER = re.compile(r"(?<![\d:])\d\d:\d\d(?![:\d])|\d\d? (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep)")


def test_times_have_one_form(place: Path) -> None:
    (place / "limit.txt").write_text("API Error: You've hit your session limit · resets 3pm (UTC)")
    for words in (("logs",), ("show",), ("notes",), ("classify", "limit.txt")):
        said = segue(*words).stdout
        assert TIME.search(said), said
        assert not OTHER.search(said), said
