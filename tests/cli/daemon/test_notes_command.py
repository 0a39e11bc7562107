"""`segue notes`: the daemon's log, for people and for programs."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from segue.cli.daemon.notes import command
from segue.watch.log import LOG_NAME, open_log


@pytest.fixture
def noted(own_home: Path) -> Path:
    """A log with a little of everything."""
    place = own_home / "segue"
    place.mkdir(mode=0o700)
    log, _ = open_log(place / LOG_NAME)
    who = {"agent": "claude", "session_id": "abcdef12-3", "project": "/home/me/shop"}
    log.append("daemon", at=1.0, data={"event": "started"})
    log.append("crossing", at=2.0, data={"zone": "monitor", "fraction": 0.31}, **who)
    log.append("health", at=2.0, data={"check_type": "context", "status": "ok"}, **who)
    for step in ("waiting", "waiting", "asked"):
        data = {"id": "h-1", "cycle": {"step": step, "why": ""}}
        log.append("handoff", at=3.0, data=data, **who)
    log.append("stop", at=4.0, data={"reason": "crash\x1b[2J", "state": "exited"}, **who)
    log.append("wake", at=5.0, data={"verdict": "leave", "why": "you ended it"}, **who)
    log.close()
    return place


def said(*args: str) -> list[str]:
    done = CliRunner().invoke(command, list(args))
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


def test_people_are_shown_what_matters_and_each_step_once(noted: Path) -> None:
    shown = [line.partition(")  ")[2] for line in said()]
    assert shown == [
        "monitor at 31%",
        "handoff h-1: waiting",
        "handoff h-1: asked",
        "stopped: crash [2J (exited)",
        "left alone: you ended it",
    ]


def test_programs_are_given_every_note_whole(noted: Path) -> None:
    notes = [json.loads(line) for line in said("--json")]
    assert [note["kind"] for note in notes] == [
        *("daemon", "crossing", "health", "handoff", "handoff", "handoff", "stop", "wake")
    ]
    assert notes[1]["data"] == {"zone": "monitor", "fraction": 0.31}


def test_a_kind_a_session_and_a_number_narrow_it(noted: Path) -> None:
    assert len(said("--kind", "health")) == 1
    assert len(said("abcdef")) == 5
    assert said("other") == ["no matching notes"]
    assert len(said("-n", "2")) == 2


def test_without_a_log_it_says_how_to_get_one(own_home: Path) -> None:
    done = CliRunner().invoke(command, [])
    assert (done.exit_code, done.stdout) == (0, "")
    assert "segue watch" in done.stderr
