"""The user's own agents: the exit code counts, unless the config names patterns."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.running import Ended, Staged, stage

SEGUE = (sys.executable, "-c", "from segue.start import main; main()")
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


def test_a_prompt_too_long_for_an_argument_is_reported_with_what_to_write(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        long = tmp_path / "long.md"
        long.write_text("x" * 200_000)
        s.config('[agents.mine]\ncommand = ["true", "{prompt}"]\n')
        ended = s.segue("run", "--agent", "mine", "--json", "--task-file", str(long))
        said = json.dumps(ended.events[-1], ensure_ascii=False)
        assert ended.code == 1
        assert "200,000 bytes" in said
        assert "write {prompt_file} instead of {prompt}" in said


def test_an_answer_that_finds_no_room_is_reported_and_the_run_is_done(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s, open("/dev/full", "wb") as full:
        s.config('[agents.mine]\ncommand = ["sh", "-c", "echo fine", "{prompt}"]\n')
        done = subprocess.run(
            [*SEGUE, "run", "--agent", "mine", "anything"],
            cwd=s.project, env=s.env, stdin=subprocess.DEVNULL, stdout=full,
            stderr=subprocess.PIPE, text=True, timeout=120,
        )  # fmt: skip
        (run,) = s.run_ids()
        assert done.returncode == 0
        assert done.stderr.splitlines()[-1] == (
            "segue: stdout could not be written: No space left on device; "
            f"to see the answer: segue report {run}"
        )
        assert "fine" in s.segue("report", run).stdout
