"""A relay between real agents: the first one's provider refuses for two hours from step 5 on, the
second one finishes; every step once, and in order. Other pairs: docs/accounts.md."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.playing import AGENTS_FOLDER, missing

from segue.drill import casts
from segue.drill.plays import enclosure

PLAY = Path(__file__).parents[1] / "support/agents/real_relay.py"
PAIRS = (("claude", "codex"), ("codex", "claude"))


@pytest.mark.parametrize("pair", PAIRS, ids="-to-".join)
def test_while_the_first_agents_provider_refuses_the_second_finishes(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    env = {**os.environ, "SEGUE_AGENTS": AGENTS_FOLDER}
    for name in pair:
        cast = casts.find(name)
        if cast.find(env) is None:
            missing(f"{name} is not installed: {cast.install}")
    if reason := enclosure.why_not():
        missing(reason)
    done = subprocess.run(
        enclosure.command([sys.executable, str(PLAY), *pair, str(tmp_path / "play")]),
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["code"] == 0, found
    assert found["is_whole"], found
    assert found["legs"] == [[pair[0], "rate_limit"], [pair[1], "completed"]]
    assert f"another agent ({pair[0]}); you are {pair[1]}" in found["prompt"]
