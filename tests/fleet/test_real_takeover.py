"""Real agents that lose their machine, isolated, against a scripted model: the task continues on
the machine that takes it over."""

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

TESTS = Path(__file__).parents[1]
SCRIPT = TESTS / "support/fleet/fleet_real.py"


def play(agent: str, folder: Path) -> dict[str, Any]:
    env = {**os.environ, "SEGUE_AGENTS": AGENTS_FOLDER}
    drive = drives.find(agent)
    if drive is None or drive.find(env) is None:
        missing(f"{agent} is not installed: {casts.find(agent).install}")
    if reason := enclosure.why_not():
        missing(reason)
    argv = [sys.executable, str(TESTS / "script.py"), str(SCRIPT), str(folder / "play"), agent]
    done = subprocess.run(
        enclosure.command(argv), env=env, capture_output=True, text=True, timeout=360, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_the_same_session_continues_on_another_machine(agent: str, tmp_path: Path) -> None:
    told = play(agent, tmp_path)
    assert (told["state"], told["is_same"]) == ("done", True), told
    assert told["session"] == told["before"] != ""
    assert told["is_whole"], told["done"]
    assert "what was done after that is lost" in told["prompt"]
