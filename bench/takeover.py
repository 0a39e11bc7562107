"""A fleet that fails: many tasks on three machines with networks, boots and homes of their own, in
one closed network, on a real PostgreSQL. Workers, machines and the database are killed, one machine
is cut off for longer than its lease, the database is slow, one clock is ten minutes wrong.

Every task must end, no two agents of one task may ever live at once (by the agents' own logs), and
the work of a machine that is lost must begin elsewhere within its lease and 5 s.

    python -m bench.takeover --tasks 60 --jobs 10 --lease 10

Needs root, unshare, nsenter and ip.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = ROOT / "tests"
FAULTS = ("worker", "power", "partition", "database", "slow", "worker", "power", "partition")
SLACK_S = 5.0


def main() -> None:
    """Prints what came of it; exits with 1 if a promise was broken."""
    from segue.drill.plays import enclosure

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--lease", type=float, default=10.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="segue-takeover-") as folder:
        script = TESTS / "support/fleet/fleet_play.py"
        argv = [sys.executable, str(TESTS / "script.py"), str(script), f"{folder}/field"]
        argv += [str(given.tasks), str(given.jobs), str(given.lease), *FAULTS]
        done = subprocess.run(enclosure.command(argv), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    told = json.loads(done.stdout)
    print(
        f"{told['tasks']} tasks, {told['begun']} agents, {told['seconds']} s; {', '.join(FAULTS)}"
    )
    print(f"not done: {told['not_done'] or 'none'}")
    print(
        f"{told['beats']} lines of the agents' own logs; two at once: {told['overlaps'] or 'never'}"
    )
    print(f"taken over after {told['takeovers_s']} s with a lease of {given.lease:g} s")
    is_late = any(each > given.lease + SLACK_S for each in told["takeovers_s"])
    sys.exit(1 if told["not_done"] or told["overlaps"] or is_late else 0)


if __name__ == "__main__":
    main()
