"""The queue under kill -9: many tasks of the rehearsal agent with limits, full windows and crashes,
while the worker is killed at random moments. Every step of every task must be done once and in
order, no tree shared, nothing left running.

    python -m bench.queue --tasks 200 --kills 50 --jobs 4 --seed 1
"""

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))

from support.fleet.queue_stress import stress  # noqa: E402 - the tests' own


def main() -> None:
    """Prints what came of it; exits with 1 if anything was lost, repeated or left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="segue-queue-") as folder:
        report = stress(given.tasks, given.kills, given.jobs, given.seed, Path(folder))
    print(f"{report.tasks} tasks, {report.legs} legs, {report.handoffs} handoffs,"
          f" {report.limits} limits; at most {report.most_at_once} at once")  # fmt: skip
    print(f"killed: {report.worker_kills} workers, {report.agent_kills} agents or carriers")
    print(f"{report.seconds:.0f} s, {report.seconds / report.tasks:.2f} s a task")
    print(f"faults: {len(report.faults)}")
    for fault in report.faults:
        print(f"  {fault}")
    sys.exit(1 if report.faults else 0)


if __name__ == "__main__":
    main()
