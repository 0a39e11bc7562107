"""The commands with which people manage a fleet, on a real PostgreSQL."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.fleet.postgres import Postgres, postgres

from segue.cli import cli
from segue.fleet import machines
from segue.fleet.accounts import FleetAccounts
from segue.fleet.database import FleetDatabase
from segue.fleet.machines import Offer

CONFIG = '[run]\nagent = "mine"\n[agents.mine]\ncommand = ["sh", "-c", "{prompt}"]\n'


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


@pytest.fixture
def db(
    server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FleetDatabase]:
    server.sql("DROP SCHEMA IF EXISTS segue CASCADE")
    monkeypatch.setenv("SEGUE_FLEET", server.url())
    place = tmp_path / "home" / "segue"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    with FleetDatabase(server.url()) as found:
        yield found


def segue(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def offers(db: FleetDatabase, name: str, **offer: object) -> None:
    machines.beat(db, name, offer=Offer(jobs=4, **offer))  # type: ignore[arg-type]


def test_status_says_what_each_machine_offers(db: FleetDatabase) -> None:
    offers(db, "m-1", labels=("gpu", "linux"), agents=("claude", "codex"), accounts=("claude-1",))
    told = segue("fleet", "status")
    assert re.search(r"\(m-1\)  last seen \d+ s ago\n", told)
    assert "  tasks 0 of 4; agents claude, codex; labels gpu, linux\n" in told
    assert max(map(len, told.splitlines())) <= 80
    (there,) = json.loads(segue("fleet", "status", "--json"))["machines"]
    assert (there["labels"], there["jobs"]) == (["gpu", "linux"], 4)


def test_a_machine_is_forgotten_once_it_is_silent_and_not_before(db: FleetDatabase) -> None:
    offers(db, "m-1")
    assert "run `segue fleet drain m-1`, end its worker" in segue("fleet", "forget", "m-1", code=2)
    assert "no machine is called 'nobody'" in segue("fleet", "forget", "nobody", code=2)
    db.rows("UPDATE segue.machine SET beat_at = now() - interval '2 minutes'")
    assert "last seen 2 min ago; other machines take over its tasks" in segue("fleet", "status")
    segue("fleet", "forget", "m-1")
    assert json.loads(segue("fleet", "status", "--json"))["machines"] == []


def test_a_cap_on_an_account_is_set_shown_kept_to_and_taken_away(db: FleetDatabase) -> None:
    offers(db, "m-1", accounts=("claude-12ab",))
    assert "no account is called 'nobody'; known: claude-12ab" in segue(
        "fleet", "cap", "nobody", "--usd", "5", code=2
    )
    assert "pass --tasks N" in segue("fleet", "cap", "claude-12ab", code=2)
    told = segue("fleet", "cap", "claude-12ab", "--usd", "5", "--tasks", "1")
    assert told == "claude-12ab: at most 1 task at once, $5 in 24 hours\n"
    FleetAccounts(lambda: db).record_spend("claude-12ab", "run-1", 1, 1_000, 6.0)
    told = segue("fleet", "accounts")
    assert told.startswith("claude-12ab  on 1 machine; $6.00 in 24 h of $5; at most 1 task at once")
    assert segue("fleet", "cap", "claude-12ab", "--none") == "claude-12ab: no caps\n"
    (account,) = json.loads(segue("fleet", "accounts", "--json"))["accounts"]
    assert (account["max_cost_usd"], account["cost_usd"]) == (None, 6.0)


def test_the_queue_says_what_it_waits_for_in_the_whole_fleet(db: FleetDatabase) -> None:
    words = ("submit", "--json", "--repo", "file:///nowhere", "--agent", "mine")
    segue(*words, "--on", "gpu", "true")
    segue(*words, "true")

    def whys() -> list[str]:
        return [task["why"] or "" for task in json.loads(segue("queue", "--json"))["tasks"]]

    assert whys() == ["no worker is running; start one on any machine: segue worker"] * 2
    offers(db, "m-1", agents=("mine",))
    assert whys() == ["needs a machine with the label gpu", ""]
    offers(db, "m-2", labels=("gpu",), agents=("mine",))
    assert whys() == ["", ""]


def test_an_agent_that_only_other_machines_have_can_be_submitted_for(
    db: FleetDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.path.dirname(os.path.realpath("/bin/sh")))
    monkeypatch.setenv("SEGUE_AGENTS", "/nowhere")
    segue("submit", "--repo", "file:///nowhere", "--agent", "claude", "true")
    assert "not installed" in segue("submit", "--here", "--agent", "claude", "true", code=2)
    monkeypatch.delenv("SEGUE_FLEET")
    assert "--on needs a fleet" in segue("submit", "--on", "gpu", "true", code=2)


def test_the_doctor_looks_at_the_fleet(
    db: FleetDatabase, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lines() -> list[dict[str, str]]:
        done = CliRunner().invoke(cli, ("doctor", "--json"))
        return [each for each in json.loads(done.output)["checks"] if each["name"] == "fleet"]

    told = lines()
    assert "answers in" in told[0]["what"]
    assert told[-1]["what"] == "no worker has run here yet; 0 other machines online"
    monkeypatch.setenv("SEGUE_FLEET", server.url("none"))
    (told_once,) = lines()
    assert (told_once["status"], 'database "none" does not exist' in told_once["what"]) == (
        "fail",
        True,
    )
