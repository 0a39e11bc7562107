"""Many tasks on three machines that fail, one after the other. Runs enclosed, as a process of its
own: `python tests/script.py fleet_play.py FOLDER TASKS JOBS LEASE_S FAULT...`; prints what came of
it as JSON.

Every agent writes its own log: when it began, and every half second that it lives. So the log says
whether two of one task ever lived at once.
"""

import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from segue.fleet.queue import PostgresQueue
from support.fleet.field import Field, FieldMachine, fielded
from support.waiting import until

COMMAND = json.dumps(["sh", "-c", 'eval "$0"', "{prompt}"])
CONFIG = f'[run]\nagent = "mine"\n[agents.mine]\ncommand = {COMMAND}\n'
WRONG_S = 600.0
_ENOUGH = 60
"""So many tasks keep the machines busy for the time that all the faults take."""
AGENT = """#!/bin/sh
me="$(cat /etc/machine-id) $(cat /proc/sys/kernel/random/boot_id) $$"
echo "$(date +%s.%N) $me begin" >> "$1"
i=0
while [ "$i" -lt "$2" ] || [ -e "$3" ]; do
  sleep 0.5
  i=$((i + 1))
  echo "$(date +%s.%N) $me $i" >> "$1"
done
echo "$me" > done.txt
"""


def _age_s(line: str) -> float:
    return time.time() - float(line.split()[0])


class Play:
    """The tasks, and what is done to the machines meanwhile."""

    def __init__(self, there: Field, lease_s: float, jobs: int) -> None:
        self.there, self.lease_s, self.jobs = there, lease_s, jobs
        self.logs, self.hold = there.folder / "logs", there.folder / "hold"
        self.takeovers: list[float] = []
        self.said: list[str] = []

    def submit(self, tasks: int, beats: tuple[int, int]) -> None:
        repo = self.there.folder / "repo"
        repo.mkdir()
        (repo / "a.txt").write_text("one\n")
        who = ("-c", "user.name=me", "-c", "user.email=me@example.invalid")
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "first")):
            subprocess.run(["git", *who, *words], cwd=repo, check=True)
        self.logs.mkdir()
        (self.there.folder / "agent.sh").write_text(AGENT)
        few, many = beats
        lines = [
            f"sh {self.there.folder}/agent.sh {self.logs}/{number:03}"
            f" {few + number % (many - few + 1)} {self.hold}; exit"
            for number in range(tasks)
        ]
        (self.there.folder / "tasks").write_text("\n".join(lines))
        listed = ("submit", "--repo", f"file://{repo}", "--from", str(self.there.folder / "tasks"))
        self.there.machines[0].run(*listed)

    def begin(self) -> None:
        for machine in self.there.machines:
            machine.start("worker", "--jobs", str(self.jobs))

    # Faults, by name

    def worker(self, machine: FieldMachine) -> None:
        machine.kill_worker()
        time.sleep(1.0)
        machine.start("worker", "--jobs", str(self.jobs))

    def power(self, machine: FieldMachine) -> None:
        lost = self._at_work(machine)
        at = machine.power_cut()
        self._wait_for_takeover(machine, lost, at)
        machine.switch_on()
        machine.start("worker", "--jobs", str(self.jobs))

    def partition(self, machine: FieldMachine) -> None:
        lost = self._at_work(machine)
        at = time.time()
        machine.cut_off(is_cut=True)
        self._wait_for_takeover(machine, lost, at)
        time.sleep(self.lease_s / 2)
        machine.cut_off(is_cut=False)

    def database(self, machine: FieldMachine) -> None:
        self.there.crash_database(away_s=1.0)

    def slow(self, machine: FieldMachine) -> None:
        self.there.link.delay_s = 0.2
        time.sleep(2 * self.lease_s)
        self.there.link.delay_s = 0.0

    def victim(self, number: int) -> FieldMachine:
        """The next machine in turn that has an agent at work."""
        turn = [self.there.machines[(number + more) % 3] for more in range(3)]
        found = until(lambda: [m for m in turn if self._at_work(m)], "an agent is at work")
        assert isinstance(found[0], FieldMachine)
        return found[0]

    def _at_work(self, machine: FieldMachine) -> dict[str, int]:
        """The tasks whose agent is on it just now, and how long their log is."""
        now = {path.name: path.read_text().splitlines() for path in self.logs.iterdir()}
        return {
            name: len(lines)
            for name, lines in now.items()
            if lines and machine.id in lines[-1] and _age_s(lines[-1]) < 1.5
        }

    def _wait_for_takeover(self, machine: FieldMachine, lost: dict[str, int], at: float) -> None:
        """Until one of its tasks has begun elsewhere."""

        def begun() -> list[float]:
            return [
                float(line.split()[0])
                for name, before in lost.items()
                for line in (self.logs / name).read_text().splitlines()[before:]
                if line.endswith("begin") and machine.id not in line
            ]

        took_s = min(until(begun, "its tasks are taken over")) - at
        self.takeovers.append(took_s)
        sys.stderr.write(f"taken over after {took_s:.1f} s\n")

    # What came of it

    def overlaps(self) -> list[str]:
        """Agents of one task that lived at once, by their own words."""
        found = []
        for path in sorted(self.logs.iterdir()):
            lives: dict[str, list[float]] = {}
            for line in path.read_text().splitlines():
                at, machine, boot, pid, _ = line.split()
                lives.setdefault(f"{machine} {boot} {pid}", []).append(float(at))
            spans = sorted((min(times), max(times), who) for who, times in lives.items())
            for (_, ended, one), (begun, _, two) in pairwise(spans):
                if begun < ended:
                    found.append(f"{path.name}: {one} until {ended}, {two} from {begun}")
        return found

    def told(self, states: dict[str, str], seconds: float) -> dict[str, Any]:
        texts = [path.read_text() for path in self.logs.iterdir()]
        return {
            "tasks": len(states),
            "not_done": {name: state for name, state in states.items() if state != "done"},
            "begun": sum(text.count("begin") for text in texts),
            "beats": sum(text.count("\n") for text in texts),
            "overlaps": self.overlaps(),
            "takeovers_s": [round(each, 1) for each in self.takeovers],
            "seconds": round(seconds, 1),
        }


def main(folder: Path, tasks: int, jobs: int, lease_s: float, faults: list[str]) -> None:
    # Half of all places stay free, so that a takeover does not wait for one.
    config = f"{CONFIG}[queue]\nmax_per_project = {3 * jobs // 2}\n"
    with fielded(folder, 3, lease_s=lease_s, config=config, wrong_clock_s=WRONG_S) as there:
        play = Play(there, lease_s, jobs)
        try:
            play.submit(tasks, (20, 40) if tasks >= _ENOUGH else (2, 4))
            begun_at = time.monotonic()
            play.begin()
            if tasks < _ENOUGH:
                play.hold.touch()
            for number, fault in enumerate(faults):
                getattr(play, fault)(play.victim(number))
                sys.stderr.write(f"{time.monotonic() - begun_at:.1f} s: {fault} is over\n")
            play.hold.unlink(missing_ok=True)
            with PostgresQueue(there.server.url()) as queue:

                def left() -> list[str]:
                    return [
                        f"{task.id} is {task.state.value}: {task.why or 'for no reason given'}"
                        for task in queue.tasks()
                        if not task.state.is_final
                    ]

                limit_s = 60.0 + 10.0 * tasks
                until(lambda: not left(), lambda: f"every task ends; left: {left()}", limit_s)
                states = {task.id: task.state.value for task in queue.tasks()}
            print(json.dumps(play.told(states, time.monotonic() - begun_at)))
        finally:
            for machine in there.machines:
                sys.stderr.write(f"--- {machine.number}\n{machine.said()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])
