"""What the real agents survive by themselves and with segue, and that segue sees why they stop.

Each play is the real program, enclosed, against the scripted model. The slow ones (agents with
fixed waits of minutes) are in the full matrix: `segue drill --agent all --full`.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.playing import AGENTS_FOLDER, Played, play

from segue.drill.scenarios import load

ALL = ("claude", "codex", "opencode", "gemini", "pi")
DEAD = -9
STOPS = {"auth": 1, "user_exit": 130}


@pytest.fixture(autouse=True)
def agents_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEGUE_AGENTS", AGENTS_FOLDER)


def spoken(played: Played) -> str:
    """All words of the stream, without blanks: some agents print them bit by bit."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, str):
            found.append("".join(value.split()))
        elif isinstance(value, dict):
            for key in ("content", "text", "message", "part", "item", "result", "messages"):
                walk(value.get(key))
        elif isinstance(value, list):
            for each in value:
                walk(each)

    for line in played.stdout.splitlines():
        if line.startswith("{"):
            walk(json.loads(line))
    return "".join(found)


def sessions(played: Played) -> list[dict[str, Any]]:
    """What segue finds in the agent's own home: files, or opencode's database."""
    home = {"HOME": str(played.folder / "home"), "SEGUE_HOME": str(played.folder / "segue")}
    done = subprocess.run(
        [sys.executable, "-m", "segue", "sessions", "--json"],
        env={"PATH": os.environ["PATH"], **home},
        capture_output=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)["sessions"]
    return found


def left_its_traces(played: Played) -> None:
    """A stream on stdout, and a session that segue finds and can read."""
    assert [line for line in played.stdout.splitlines() if line.startswith("{")]
    (session,) = sessions(played)
    assert session["cwd"] == str(played.folder / "project")
    assert session["context"]["used"] > 0


def still_running(played: Played) -> list[str]:
    """What runs in the play's folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cwd().startswith(str(played.folder)):
                found.append(" ".join(process.cmdline()))
    return found


@pytest.mark.parametrize("agent", ALL)
def test_an_agent_that_nothing_disturbs_does_every_step_once(agent: str, tmp_path: Path) -> None:
    played = play(agent, "success", tmp_path)
    outcome = played.outcome
    assert outcome.done == list(range(1, outcome.steps + 1))
    assert (outcome.exit_code, outcome.reason, outcome.is_as_expected) == (0, "completed", True)
    assert "All6stepsaredone." in spoken(played)
    (session,) = sessions(played)
    last = [e["request"] for e in played.events if e["kind"] == "request"][-1]
    # As the scripted model reported it, and the few tokens of its last words.
    assert 0 < session["context"]["used"] - last["tokens"] < 20
    assert session["cwd"] == str(played.folder / "project")
    assert [a for a in played.answers if a.startswith("step ")] == [
        f"step {n}" for n in range(1, 7)
    ]


# With segue


@pytest.mark.parametrize("agent", ALL)
def test_with_segue_a_full_window_is_handed_over_and_no_step_is_lost_or_repeated(
    agent: str, tmp_path: Path
) -> None:
    """One that fills too fast for the agent's own summary, which is refused besides."""
    played = play(agent, "too-long-no-compaction", tmp_path, with_segue=True)
    outcome = played.outcome
    assert outcome.is_as_expected, (outcome, played.said)
    assert outcome.done == list(range(1, 11))
    assert outcome.handoffs >= 1
    assert outcome.legs >= 2
    assert still_running(played) == []


@pytest.mark.parametrize("agent", ["claude", "codex"])  # one takes words while it works
def test_with_segue_what_the_user_says_halfway_outlives_full_windows(
    agent: str, tmp_path: Path
) -> None:
    """They add a fact, correct one and forbid a file; no summary tells of it."""
    played = play(agent, "facts-from-the-user", tmp_path, with_segue=True)
    outcome = played.outcome
    assert outcome.is_as_expected, (outcome, played.said)
    assert (outcome.touched, outcome.unfired) == ([], [])
    assert outcome.handoffs >= 1
    assert still_running(played) == []


def test_with_segue_words_of_the_work_are_not_taken_for_the_checkpoint(tmp_path: Path) -> None:
    """opencode tells the request back before the reply under way is over; then it is refused."""
    text = (load.PACKAGED / "facts-never-asked.toml").read_text()
    for old, new in (
        ("limit_s = 120", "limit_s = 400"),
        ("steps = 16", "steps = 10"),
        ("needed_from = 12", "needed_from = 9"),
        ("needed_from = 13", "needed_from = 10"),
    ):
        assert old in text
        text = text.replace(old, new)
    scenario = tmp_path / "one-handoff.toml"
    scenario.write_text(text)
    played = play("opencode", scenario, tmp_path, with_segue=True)
    assert played.outcome.is_as_expected, (played.outcome, played.said)
    assert any("without the agent's words" in said for said in played.said)
    assert not any("with the checkpoint" in said for said in played.said)


@pytest.mark.parametrize("agent", ["claude", "pi"])  # the others cannot wait for segue
def test_with_segue_an_agent_knows_what_its_compaction_left_out_before_it_acts(
    agent: str, tmp_path: Path
) -> None:
    """Even if the model answers at once; no tool was called that had to be interrupted."""
    text = (load.PACKAGED / "facts-compacted-away.toml").read_text()
    scenario = tmp_path / "at-once.toml"
    scenario.write_text(re.sub("step_s = .*", "step_s = 0.0", text))
    played = play(agent, scenario, tmp_path, with_segue=True)
    outcome = played.outcome
    assert outcome.is_as_expected, (outcome, played.said)
    assert (outcome.legs, outcome.handoffs) == (1, 0)
    assert list(played.folder.glob("segue/runs/*/leg-001/recall-*-held.md"))
    (commands,) = played.folder.glob("segue/runs/*/leg-001/control.jsonl")
    assert "cut-" not in commands.read_text()
    assert still_running(played) == []


@pytest.mark.parametrize("agent", ALL)
def test_with_segue_a_crash_in_a_tool_is_gone_on_from_in_the_same_session(
    agent: str, tmp_path: Path
) -> None:
    played = play(agent, "crash-in-tool", tmp_path, with_segue=True)
    outcome = played.outcome
    assert outcome.is_as_expected, (outcome, played.said)
    assert (outcome.legs, outcome.handoffs, outcome.waits) == (2, 0, 0)
    assert len(sessions(played)) == 1
    assert still_running(played) == []


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "pi"])  # opencode waits by itself
def test_with_segue_a_limit_of_the_plan_is_waited_for(agent: str, tmp_path: Path) -> None:
    played = play(agent, "plan-limit", tmp_path, with_segue=True)
    outcome = played.outcome
    assert outcome.is_as_expected, (outcome, played.said)
    assert outcome.waits >= 1  # gemini does not say for how long
    assert (outcome.legs, outcome.handoffs) == (outcome.waits + 1, 0)
    assert len(sessions(played)) == 1


@pytest.mark.parametrize(
    ("agent", "scenario"),
    [
        (agent, scenario)
        for agent in ALL
        for scenario in ("user-interrupt", "auth-failure")
        if (agent, scenario) != ("claude", "auth-failure")  # it asks again for three minutes
    ],
)
def test_with_segue_what_the_user_must_decide_ends_the_run_with_its_reason(
    agent: str, scenario: str, tmp_path: Path
) -> None:
    played = play(agent, scenario, tmp_path, with_segue=True)
    outcome = played.outcome
    assert outcome.is_as_expected, (outcome, played.said)
    assert outcome.exit_code == STOPS[outcome.reason]
    assert outcome.legs == 1
    assert still_running(played) == []


# Without


TOO_LONG = {"claude": 1, "codex": 1, "opencode": 1, "gemini": 144, "pi": 0}


@pytest.mark.parametrize("agent", ["claude", "codex", "pi"])  # all of them in the matrix
def test_a_window_that_stays_full_is_seen_for_what_it_is(agent: str, tmp_path: Path) -> None:
    played = play(agent, "too-long-no-compaction", tmp_path)
    outcome = played.outcome
    left_its_traces(played)
    assert "too_long" in played.answers
    assert outcome.exit_code == TOO_LONG[agent]
    assert outcome.reason == "context_exhausted"
    assert outcome.is_whole
    assert not outcome.is_as_expected
    assert 0 < len(outcome.done) < outcome.steps


PLAN_LIMIT = {"claude": 1, "codex": 1, "gemini": 173, "pi": 0}


@pytest.mark.parametrize("agent", PLAN_LIMIT)
def test_a_limit_of_the_plan_is_seen_for_what_it_is(agent: str, tmp_path: Path) -> None:
    played = play(agent, "plan-limit", tmp_path)
    outcome = played.outcome
    left_its_traces(played)
    assert (outcome.exit_code, outcome.reason) == (PLAN_LIMIT[agent], "rate_limit")
    assert outcome.done == [1, 2]


@pytest.mark.parametrize("agent", ["claude", "pi"])  # the others wait for minutes, or for ever
def test_a_request_without_an_answer_is_given_up_and_sent_again(agent: str, tmp_path: Path) -> None:
    played = play(agent, "silent-hang", tmp_path)
    hung = [e["request"] for e in played.events if e["kind"] == "request"]
    assert [r["delivery"] for r in hung].count("hang") == 1
    assert played.outcome.is_as_expected


@pytest.mark.parametrize("agent", ["claude", "codex", "pi"])  # all of them with segue
def test_a_crash_in_a_tool_is_a_crash_and_leaves_no_process(agent: str, tmp_path: Path) -> None:
    played = play(agent, "crash-in-tool", tmp_path)
    outcome = played.outcome
    assert (outcome.exit_code, outcome.reason) == (DEAD, "crash")
    assert outcome.done == [1, 2]
    (session,) = sessions(played)
    assert session["state"] in ("stopped", "gone")
    assert session["context"]["used"] > 0
    assert still_running(played) == []


INTERRUPTED = {"claude": 0, "codex": 1, "opencode": -2, "gemini": 0, "pi": -2}


@pytest.mark.parametrize("agent", ALL)
def test_the_users_interrupt_is_the_users_will(agent: str, tmp_path: Path) -> None:
    played = play(agent, "user-interrupt", tmp_path)
    outcome = played.outcome
    left_its_traces(played)
    assert (outcome.exit_code, outcome.reason) == (INTERRUPTED[agent], "user_exit")
    assert outcome.is_whole
    assert outcome.is_as_expected
