"""Three machines with networks, boots and homes of their own: one is cut off for longer than its
lease, one loses its power, one's clock is ten minutes wrong. `bench/takeover` does more of it."""

import json
import subprocess
import sys
from pathlib import Path

from support.fleet import field
from support.playing import missing

from segue.drill.plays import enclosure

TESTS = Path(__file__).parents[1]
LEASE_S = 8


def test_every_task_ends_and_no_agent_of_one_task_ever_runs_on_two_machines_at_once(
    tmp_path: Path,
) -> None:
    if reason := field.why_not():
        missing(reason)
    script = TESTS / "support/fleet/fleet_play.py"
    argv = [sys.executable, str(TESTS / "script.py"), str(script), str(tmp_path / "field")]
    argv += ["3", "2", str(LEASE_S), "partition", "power"]
    done = subprocess.run(
        enclosure.command(argv), capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["tasks"], told["not_done"], told["overlaps"]) == (3, {}, []), done.stderr
    assert told["begun"] > 3  # what was lost began again elsewhere
    assert min(told["takeovers_s"]) >= LEASE_S - LEASE_S / 6 - 1  # and not before it may
