"""What segue did not understand is stored, shown, and can be taught through the commands."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.running import stage

from segue.cli.look import explain
from segue.cli.tools import wordings
from segue.core.stops.reasons import StopReason
from segue.core.stops.text import drafts
from segue.core.stops.types import Stop
from segue.system import doubts

ODD = "Working on it.\nError: The flux capacitor of org-1234567890abcd is bent at 17:30.\n"
AGENT = "import sys; print('Working.'); sys.exit('Error: job sk-ant-api03-%s: ' + sys.argv[1])" % (
    "a" * 80
)


def told(*words: str) -> Result:
    return CliRunner().invoke(wordings.command, list(words))


@pytest.fixture
def odd(tmp_path: Path) -> str:
    (tmp_path / "odd.txt").write_text(ODD)
    return str(tmp_path / "odd.txt")


def test_a_draft_leaves_open_what_changes_from_one_time_to_the_next() -> None:
    line = drafts.line_of(ODD, 100)
    pattern = drafts.draft(line, "rate_limit").pattern
    assert pattern.startswith("The flux capacitor of")
    assert "1234567890" not in pattern
    assert "17:30" not in pattern


def test_a_suggestion_gives_the_text_its_reason_and_changes_nothing_else(odd: str) -> None:
    done = told("suggest", odd, "--reason", "rate_limit", "--json")
    said = json.loads(done.stdout)
    assert (done.exit_code, said["before"], said["after"]) == (0, "error", "rate_limit")
    assert said["changed"] == []
    assert said["examples"] > 300
    assert said["written"] is None


def test_a_suggestion_that_is_written_is_used_from_then_on(odd: str, own_home: Path) -> None:
    assert told("suggest", odd, "--reason", "rate_limit", "--write").exit_code == 0
    assert told("check").exit_code == 0
    again = ODD.replace("org-1234567890abcd", "org-zzzz98765432yy").replace("17:30", "09:15")
    said = json.loads(told("test", "--json", again).stdout)
    assert said["reason"] == "rate_limit"


def test_a_suggestion_that_changes_another_verdict_is_refused(odd: str, own_home: Path) -> None:
    line = "Prompt is too long"
    done = told("suggest", odd, "--reason", "billing", "--line", line, "--write")
    assert done.exit_code == 1
    assert "it would change another verdict" in done.stderr
    assert not (own_home / "segue" / "wordings.toml").exists()


def test_a_text_in_which_nobody_speaks_gets_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    done = told("suggest", str(tmp_path / "empty.txt"), "--reason", "error")
    assert done.exit_code != 0
    assert "no line in it looks like a message" in str(done.exception)


def test_explain_says_what_would_have_to_be_different(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("Rate limit exceeded\n")
    done = CliRunner().invoke(explain.command, ["--json", str(tmp_path / "x.txt")])
    said = json.loads(done.stdout)
    assert said["reason"] == "rate_limit"
    otherwise = {other["reason"]: other["change"] for other in said["otherwise"]}
    assert otherwise["unknown"] == "without 'Rate limit exceeded'"
    assert all(other["reason"] != "rate_limit" for other in said["otherwise"])


def test_a_stop_of_a_run_that_is_in_doubt_is_kept_without_its_secrets(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        words = [sys.executable, "-c", AGENT, "the flux capacitor is drained"]
        s.config(f"[agents.own]\ncommand = {json.dumps([*words, '{prompt}'])}\n")
        assert s.segue("run", "--agent", "own", "The task.").code != 0
        kept = json.loads(s.segue("wordings", "review", "--json").stdout)["doubts"]
        shown = s.segue("wordings", "review").stdout
    assert len(kept) == 1
    assert kept[0]["reason"] == "error"
    assert "the flux capacitor is drained" in kept[0]["text"]
    assert "sk-ant-api03-aaaa" not in json.dumps(kept)
    assert "the flux capacitor is drained" in shown


def doubt(at: float, text: str = "x") -> doubts.Doubt:
    return doubts.Doubt(at=at, reason="unknown", confidence=0.5, text=text)


def test_doubts_are_private_few_and_not_kept_for_ever() -> None:
    for number in range(205):
        doubts.keep(doubt(float(number), f"text {number}"))
    assert len(doubts.load()) == 200
    assert stat.S_IMODE(os.stat(doubts.path()).st_mode) == 0o600
    doubts.keep(doubt(doubts.KEPT_S * 2, "new"))
    assert [d.text for d in doubts.load()] == ["new"]
    assert doubts.clear() == 1
    assert doubts.load() == []


def test_a_damaged_file_of_doubts_costs_only_its_bad_lines() -> None:
    doubts.keep(doubt(1.0, "good"))
    with doubts.path().open("ab") as file:
        file.write(b'{"half\n\xff\xfe\n')
    assert [d.text for d in doubts.load()] == ["good"]


@pytest.mark.parametrize(
    ("reason", "confidence", "is_one"),
    [
        (StopReason.UNKNOWN, 0.82, True),
        (StopReason.ERROR, 0.4, True),
        (StopReason.RATE_LIMIT, 0.99, False),
        (StopReason.USER_EXIT, 0.4, False),
    ],
)
def test_what_is_a_doubt(reason: StopReason, confidence: float, is_one: bool) -> None:
    assert doubts.is_doubtful(Stop(reason=reason, confidence=confidence), 0.8) is is_one
