"""The queue with the real claude and codex, isolated, against a scripted model."""

import json
import os
import subprocess
import sys
from pathlib import Path

from support.playing import AGENTS_FOLDER, missing

from segue.agents import drives
from segue.drill import casts
from segue.drill.plays import enclosure

TESTS = Path(__file__).parents[1]
SCRIPT = TESTS / "support/fleet/queue_real.py"


def test_one_account_is_limited_in_the_middle_and_the_other_agent_takes_the_rest(
    tmp_path: Path,
) -> None:
    env = {**os.environ, "SEGUE_AGENTS": AGENTS_FOLDER}
    for name in ("claude", "codex"):
        drive = drives.find(name)
        if drive is None or drive.find(env) is None:
            missing(f"{name} is not installed: {casts.find(name).install}")
    if reason := enclosure.why_not():
        missing(reason)
    argv = [sys.executable, str(TESTS / "script.py"), str(SCRIPT), str(tmp_path / "play")]
    done = subprocess.run(
        enclosure.command(argv), env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    tasks = {task["name"]: task for task in told["tasks"]}
    assert {task["state"] for task in tasks.values()} == {"done"}, told
    assert all(task["is_whole"] for task in tasks.values())
    assert tasks["limited-1"]["agent"] == tasks["limited-2"]["agent"] == "claude"
    plain = [task for name, task in tasks.items() if name.startswith("plain")]
    assert "codex" in {task["agent"] for task in plain}
    # What codex did was done before claude's limit was over.
    reset = min(told["limits"]) + 30
    assert any(task["agent"] == "codex" and task["ended_at"] < reset for task in plain)
