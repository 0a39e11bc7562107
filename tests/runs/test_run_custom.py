"""The user's own agents: what counts is the exit code, unless the config names words that do."""

import json
from pathlib import Path

import pytest
from support.running import Ended, Staged, stage

LIMIT = "Error: 429 rate limit exceeded, try again in 5 minutes"
RESULT = json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": "ok"})
REFUSED = json.dumps(
    {"type": "result", "subtype": "success", "is_error": True, "result": "API Error: 529"}
)


def run(s: Staged, command: str, more: str = "") -> Ended:
    words = json.dumps(["sh", "-c", command, "{prompt}"])
    s.config(f"[agents.mine]\ncommand = {words}\n{more}")
    return s.segue("run", "--agent", "mine", "--json", "anything")


def outcome(ended: Ended) -> tuple[int, str]:
    """The exit code of segue, and why the agent's leg ended."""
    stops = [event["data"]["stop"] for event in ended.events if event["kind"] == "legended"]
    return ended.code, stops[-1]["reason"]


@pytest.mark.parametrize(
    "command",
    [
        "true",
        "echo ok",
        "echo ok >&2",
        "printf 'no newline'",
        "echo '{\"ok\": true}'",
        f"echo '{LIMIT}'",
        f"echo '{LIMIT}' >&2",
        f"echo '{REFUSED}'",
        "echo 'Goodbye!'",
    ],
)
def test_exit_code_0_is_done_whatever_was_printed(command: str, tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        assert outcome(run(s, command)) == (0, "completed")


@pytest.mark.parametrize("command", ["false", "echo ok; exit 3", f"echo '{RESULT}'; exit 1"])
def test_another_exit_code_is_not(command: str, tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        assert outcome(run(s, command)) == (1, "error")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo DONE; exit 4", (0, "completed")),
        ("echo DONE", (0, "completed")),
        ("echo FAILED", (1, "error")),
        ("echo neither", (0, "completed")),
        ("echo neither; exit 4", (1, "error")),
        ("echo DONE; kill -KILL $$", (1, "crash")),
    ],
)
def test_words_that_the_config_names_go_first(
    command: str, expected: tuple[int, str], tmp_path: Path
) -> None:
    with stage("success", within=tmp_path) as s:
        said = "done = '^DONE'\nfailed = '^FAILED'\n"
        assert outcome(run(s, command, said)) == expected
