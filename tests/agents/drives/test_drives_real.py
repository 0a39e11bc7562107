"""The real agents and the rehearsal agent, started and spoken to as their drives say, against a
scripted model. The real ones are enclosed."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.playing import AGENTS_FOLDER, missing

from segue.agents import drives
from segue.drill import casts
from segue.drill.plays import enclosure

REAL = ("claude", "codex", "gemini")
LIKE = ("rehearsal", "rehearsal-codex")
TALKING = ("claude", "rehearsal")
DRIVE = Path(__file__).parents[2] / "support/agents/one_drive.py"
SLOW = "touch begun; until [ -e go ]; do sleep 0.05; done; echo gone"
ODD = (
    "-Do \"it\" {prompt} %s \\n\n — ünïcode\u2028 'q' $HOME `ls` @one.txt /etc !x",
    "--help",
    "/etc/hosts is wrong",
)
CHECKPOINT = "CHECKPOINT please"
SAYS = {CHECKPOINT: "the checkpoint"}
KEY = "segue-leg-1-ask-1"

Leg = dict[str, Any]
Run = Callable[..., list[Leg]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs legs of an agent, one after the other, in one folder."""

    def run(agent: str, *legs: dict[str, Any]) -> list[Leg]:
        folder = tmp_path / "play"
        project = folder / "project"
        env = {**os.environ, "SEGUE_AGENTS": AGENTS_FOLDER}
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"legs": legs}))
        argv = [sys.executable, str(DRIVE), agent, str(folder), str(plan)]
        if agent in REAL:
            drive = drives.find(agent)
            assert drive is not None
            if drive.find(env) is None:
                missing(f"{agent} is not installed: {casts.find(agent).install}")
            if reason := enclosure.why_not():
                missing(reason)
            argv = enclosure.command(argv)
        subprocess.run(["git", "init", "-q", str(project)], check=True)
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=200, check=False
        )
        assert done.returncode == 0, done.stderr
        found: list[Leg] = json.loads(done.stdout)
        return found

    return run


def last_words(leg: Leg) -> list[str]:
    """What the user and tools said in the last request."""
    return [part["text"] for part in leg["asked"][-1]["parts"] if part["role"] != "assistant"]


def of_type(leg: Leg, kind: str) -> list[Leg]:
    return [record for record in leg["records"] if record.get("type") == kind]


def answers(leg: Leg) -> list[str]:
    """What each turn of claude came to."""
    return [r.get("result") or r["terminal_reason"] for r in of_type(leg, "result")]


@pytest.mark.parametrize("agent", [*REAL, *LIKE])
def test_a_session_is_begun_used_and_gone_on_with(agent: str, run: Run, tmp_path: Path) -> None:
    project = tmp_path / "play/project"
    first, second = run(
        agent,
        {"prompt": "One, please.", "commands": ["echo 1 > one.txt"]},
        {"prompt": "And two.", "resume": True, "commands": ["echo 2 > two.txt"]},
    )
    assert (first["exit_code"], second["exit_code"]) == (0, 0)
    assert (project / "one.txt").read_text() == "1\n"
    assert (project / "two.txt").read_text() == "2\n"
    assert first["session"]
    assert first["known_id"] in ("", first["session"])
    assert second["session"] == second["known_id"] == first["session"]
    assert any("One, please." in words for words in last_words(second)), "it lost its memory"
    assert any("And two." in words for words in last_words(second))
    assert first["file"] == second["file"]
    assert first["session"] in Path(second["file"]).read_text()
    assert first["left"] == second["left"] == []


@pytest.mark.parametrize("agent", [*REAL, *LIKE])
def test_prompts_arrive_as_they_are_whatever_is_in_them(agent: str, run: Run) -> None:
    for leg, prompt in zip(run(agent, *[{"prompt": p} for p in ODD]), ODD, strict=True):
        assert leg["exit_code"] == 0, leg["stderr"]
        assert last_words(leg)[-1].endswith(prompt)


@pytest.mark.parametrize("agent", [*REAL, *LIKE])
def test_a_long_prompt_arrives_whole_in_a_new_and_in_an_old_session(agent: str, run: Run) -> None:
    long = "".join(f'{n}: "äöü" {{}}\n' for n in range(15_000)) + "the end"
    assert len(long.encode()) > 200_000
    again = long.replace("0", "o")
    first, second = run(agent, {"prompt": long}, {"prompt": again, "resume": True})
    assert long in last_words(first)[-1]
    assert again in last_words(second)[-1]


INTERRUPTED = {"claude": 1, "codex": 1, "gemini": 0, "rehearsal": 1, "rehearsal-codex": 1}


@pytest.mark.parametrize("agent", [*REAL, *LIKE])
def test_interrupted_in_a_tool_it_ends_and_the_session_continues_later(
    agent: str, run: Run, tmp_path: Path
) -> None:
    first, second = run(
        agent,
        {"prompt": "Go.", "commands": [SLOW], "acts": [[{"file": "begun"}, {"interrupt": True}]]},
        {"prompt": "Go on.", "resume": True, "commands": ["echo 2 > two.txt"]},
    )
    assert first["exit_code"] == INTERRUPTED[agent]
    assert len(first["asked"]) == 1
    assert second["exit_code"] == 0
    assert any("Go." in words for words in last_words(second))
    assert any("Go on." in words for words in last_words(second))
    assert (tmp_path / "play/project/two.txt").exists()


@pytest.mark.parametrize("agent", TALKING)
def test_what_is_said_in_a_tool_is_heard_after_it_and_answered_in_the_same_turn(
    agent: str, run: Run
) -> None:
    (leg,) = run(
        agent,
        {
            "prompt": "Go.",
            "commands": [SLOW, "touch after"],
            "says": SAYS,
            "acts": [
                [{"file": "begun"}, {"say": CHECKPOINT, "key": KEY}],
                [{"taken": True}, {"touch": "go"}],
                [{"heard": KEY}, {}],
            ],
        },
    )
    assert answers(leg) == ["the checkpoint"]
    assert len(leg["asked"]) == 2
    told_back = [r.get("uuid") for r in leg["records"]].index(KEY)
    result = next(n for n, r in enumerate(leg["records"]) if "gone" in json.dumps(r))
    assert result < told_back, "it is told back when it is part of the conversation"
    assert leg["exit_code"] == 0


@pytest.mark.parametrize("agent", TALKING)
def test_interrupted_it_answers_what_is_said_next_in_the_same_process(agent: str, run: Run) -> None:
    """Also if it is said at once, and if it is interrupted once more when nothing goes on."""
    (leg,) = run(
        agent,
        {
            "prompt": "Go.",
            "commands": [SLOW],
            "says": SAYS,
            "acts": [
                [{"file": "begun"}, {"interrupt": True}],
                [{}, {"say": CHECKPOINT, "key": KEY}],
                [{"overs": 2}, {"interrupt": True}],
                [{}, {"say": CHECKPOINT, "key": f"{KEY}-2"}],
                [{"overs": 3}, {"close": True}],
            ],
        },
    )
    assert answers(leg) == ["aborted_tools", "the checkpoint", "the checkpoint"]
    assert leg["exit_code"] == 0
    assert leg["left"] == []


@pytest.mark.parametrize("agent", TALKING)
def test_what_is_said_twice_with_one_key_is_said_once(agent: str, run: Run) -> None:
    said = {"say": CHECKPOINT, "key": KEY}
    (leg,) = run(
        agent,
        {
            "prompt": "Go.",
            "commands": [SLOW],
            "says": SAYS,
            "acts": [
                [{"file": "begun"}, said],
                [{}, said],
                [{"taken": True}, {"touch": "go"}],
                [{"overs": 1}, said],
                [{}, {"say": CHECKPOINT, "key": f"{KEY}-2"}],
                [{"overs": 2}, {"close": True}],
            ],
        },
    )
    assert answers(leg) == ["the checkpoint", "the checkpoint"]
    assert len(leg["asked"]) == 3


def test_claude_stays_for_its_background_work_when_its_input_is_closed_after_a_result(
    run: Run, tmp_path: Path
) -> None:
    (leg,) = run(
        "claude",
        {
            "prompt": "Go.",
            "commands": [f"&{SLOW}"],
            "acts": [[{"overs": 1}, {"close": True}], [{"file": "begun"}, {"touch": "go"}]],
        },
    )
    assert answers(leg) == ["It is done.", "It is done."]
    assert "completed (exit code 0)" in last_words(leg)[-1]
    assert leg["exit_code"] == 0
    assert leg["left"] == []


def test_codex_obeys_the_users_sandbox_in_a_resumed_session_too(run: Run, tmp_path: Path) -> None:
    """`resume` itself does not know the flag."""
    run(
        "codex",
        {"prompt": "Go.", "own_flags": ["-s", "read-only"], "commands": ["touch one"]},
        {
            "prompt": "On.",
            "resume": True,
            "own_flags": ["-s", "workspace-write"],
            "commands": ["touch two"],
        },
        {
            "prompt": "On.",
            "resume": True,
            "own_flags": ["-s", "read-only"],
            "commands": ["touch three"],
        },
    )
    assert {p.name for p in (tmp_path / "play/project").iterdir()} == {".git", "two"}


def test_codex_does_not_wait_without_end_for_a_server_that_is_not_there(run: Run) -> None:
    nobody = 'model_providers.drill.base_url="http://127.0.0.1:1/v1"'
    (leg,) = run("codex", {"prompt": "Go.", "flags": ["-c", nobody]})
    assert leg["exit_code"] == 1
    assert of_type(leg, "turn.failed")


def test_codex_starts_where_a_setting_of_ours_is_not_known(run: Run) -> None:
    """A feature that another version does not have is passed over if it is set in this way."""
    (leg,) = run("codex", {"prompt": "Go.", "flags": ["-c", "features.no_such_thing=false"]})
    assert leg["exit_code"] == 0


SETTINGS = json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}})


@pytest.mark.parametrize("is_tidied", [True, False])
def test_gemini_deletes_a_resumed_session_unless_it_is_tidied(is_tidied: bool, run: Run) -> None:
    """With the settings that a user has who set nothing. If the second case fails, gemini has
    been repaired, and tidying is not needed any more."""
    *_, last = run(
        "gemini",
        {"prompt": "One.", "files": {"home/.gemini/settings.json": SETTINGS}},
        {
            "prompt": "Two.",
            "resume": True,
            "age": [r"\d{4}-\d\d-\d\dT\d\d", "2026-01-01T00"],
            "tidy": is_tidied,
        },
        {"prompt": "Of another session."},
        {"prompt": "Three.", "of_leg": 1},
    )
    assert (last["exit_code"] == 0) == is_tidied, last["stderr"]
    assert bool(last["file"]) == is_tidied
    if is_tidied:
        assert any("One." in words for words in last_words(last))
