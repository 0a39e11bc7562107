"""Sessions of the real agents that died without segue, against scripted models, one for each
provider: they go on, by the same agent and by another, every step once. Enclosed. The wider matrix
was played by hand: docs/rescue.md."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.playing import AGENTS_FOLDER, missing

from segue.agents import drives
from segue.drill import casts
from segue.drill.plays import enclosure

SCRIPT = Path(__file__).parents[1] / "script.py"
WARD = Path(__file__).parents[1] / "support/runs/ward.py"

KILLED = """\
about = "Whoever works is killed by hand."
[job]
steps = 4
step_s = 1.0
"""
FULL = """\
about = "The window is full, and the request for a summary is too long as well."
[job]
steps = 6
[context]
fills_after_steps = 3.5
[[rules]]
kind = "compaction"
fault = "too_long"
times = "for ever"
"""
LIMITED = """\
about = "The plan's limit is reached; there is a new one later."
[job]
steps = 4
[[rules]]
before_step = 3
fault = "plan_limit"
resets_in_s = {resets_in_s}
[options.claude]
plan = "1"
"""


def played(tmp_path: Path, scenario: str, dies: str, rescues: str, **more: Any) -> dict[str, Any]:
    """One death and one rescue."""
    env = {**os.environ, "SEGUE_AGENTS": AGENTS_FOLDER}
    for agent in (dies, rescues):
        drive = drives.find(agent)
        assert drive is not None
        if drive.find(env) is None:
            missing(f"{agent} is not installed: {casts.find(agent).install}")
    if reason := enclosure.why_not():
        missing(reason)
    (tmp_path / "scenario.toml").write_text(scenario)
    plan = {
        "root": str(tmp_path / "w"),
        "scenario": str(tmp_path / "scenario.toml"),
        "dies": dies,
        "rescues": rescues,
        **more,
    }
    (tmp_path / "w").mkdir()
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    argv = [sys.executable, str(SCRIPT), str(WARD), str(tmp_path / "plan.json")]
    done = subprocess.run(
        enclosure.command(argv), env=env, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["code"] == 0, found["err"]
    assert found["is_whole"], found
    return found


@pytest.mark.parametrize(
    ("dies", "rescues"),
    [(name, name) for name in ("claude", "codex", "opencode", "gemini", "pi")]
    + [("claude", "codex"), ("gemini", "claude")],
)
def test_a_session_killed_in_a_tool_continues(dies: str, rescues: str, tmp_path: Path) -> None:
    found = played(tmp_path, KILLED, dies, rescues, death={"in_step": 2})
    (told,) = found["listed"]["sessions"]
    assert (told["agent"], told["session_id"], told["reason"]) == (dies, found["session"], "crash")
    assert told["ways"][0] == "same_session"
    assert (found["shown"]["session_id"] == found["session"]) == (dies == rescues)


def test_a_session_cut_in_mid_line_continues_in_another_agent(tmp_path: Path) -> None:
    found = played(tmp_path, KILLED, "codex", "claude", death={"in_step": 3, "cut": True})
    (told,) = found["listed"]["sessions"]
    assert told["ways"] == ["new_session", "other_agent"]


@pytest.mark.parametrize(
    ("dies", "rescues"), [("claude", "claude"), ("codex", "codex"), ("codex", "claude")]
)
def test_a_session_whose_window_is_full_continues_in_a_new_one(
    dies: str, rescues: str, tmp_path: Path
) -> None:
    found = played(tmp_path, FULL, dies, rescues)
    (told,) = found["listed"]["sessions"]
    assert (told["reason"], told["ways"][0]) == ("context_exhausted", "new_session")
    if dies != rescues:
        assert found["asked_again"] == 0  # its own provider is not troubled again


@pytest.mark.parametrize("rescues", ["claude", "codex"])
def test_a_limited_session_waits_and_continues_in_itself_or_at_once_in_another_agent(
    rescues: str, tmp_path: Path
) -> None:
    resets_in_s = 12 if rescues == "claude" else 7200
    found = played(tmp_path, LIMITED.format(resets_in_s=resets_in_s), "claude", rescues)
    (told,) = found["listed"]["sessions"]
    assert told["reason"] == "rate_limit"
    assert told["retry_at"] is not None
    assert (found["shown"]["session_id"] == found["session"]) == (rescues == "claude")
    if rescues != "claude":
        assert found["asked_again"] == 0
