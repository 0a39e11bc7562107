"""Many runs at once: `python -m bench.many [--json] [--number 50]`. Linux only.

So many `segue run` with the rehearsal agent, a project and a scripted model each, one SEGUE_HOME.
Each run meets a limit of the plan and hands over once, so it has three legs. All must finish, each
step done once, the common state whole, nothing left running; else the bench fails. The peer is as
many bare agents at once, with the same steps and neither limit nor handoff: one leg each.

CPU time is the kernel's own count, by who spent it: segue with its git, its keepers, the agents
with their tools; and the scripted models, which share the machine. Memory is the peak of a process,
looked at four times a second. Per run: the mean, and the most.
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))

from support.running import Staged  # noqa: E402
from support.runs.crowd import STEPS, crowd  # noqa: E402 - the tests' own

Row = dict[str, Any]
LOOK_S = 0.25
PATIENCE_S = 900.0
_TICKS_S = 1 / os.sysconf("SC_CLK_TCK")
_SUBREAPER = 36


class Used(NamedTuple):
    """CPU time of a process that ended, and of those that it waited for."""

    own_s: float
    others_s: float


class Watch:
    """Waits for processes, and for the keepers that come to this process when segue has let them
    go; what each used."""

    def __init__(self) -> None:
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
        self.used: dict[int, Used] = {}
        self.codes: dict[int, int] = {}
        self.peak_mb: dict[int, float] = {}

    def until_ended(self, processes: "list[subprocess.Popen[str]]") -> None:
        """And all that was left to us."""
        until = time.monotonic() + PATIENCE_S
        waited = {process.pid for process in processes}
        while not (waited <= self.used.keys() and not _children()):
            if time.monotonic() > until:
                sys.exit(f"{len(waited - self.used.keys())} do not end")
            self._look()
            self._reap()
            time.sleep(LOOK_S)
        for process in processes:
            process.returncode = self.codes[process.pid]

    def _look(self) -> None:
        for pid in _children():
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            for line in status.splitlines():
                if line.startswith("VmHWM"):
                    self.peak_mb[pid] = int(line.split()[1]) / 1024

    def _reap(self) -> None:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while _children() and (found := os.waitid(os.P_ALL, 0, flags)) is not None:
            pid = found.si_pid
            # Of one that has ended and is not yet waited for, this can still be read.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            user, system, users, systems = (int(field) * _TICKS_S for field in fields[11:15])
            self.used[pid] = Used(user + system, users + systems)
            self.codes[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _children() -> list[int]:
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    mine = task.read_text().split()
    # Of other threads: orphans may be given to any of them.
    for other in task.parent.parent.glob("*/children"):
        mine += other.read_text().split() if other != task else ()
    return [int(pid) for pid in mine]


def bare(staged: Staged) -> "subprocess.Popen[str]":
    """The agent as a user would start it."""
    command = tomllib.loads(staged.conf)["agents"][staged.agent]["command"]
    words = [*command, "-p", "--output-format", "stream-json", "--verbose"]
    process = subprocess.Popen(
        words,
        env=staged.env,
        cwd=staged.project,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    staged.started.append(process)
    if process.stdin is not None:
        process.stdin.write(staged.task)
        process.stdin.close()
    return process


def alone(number: int, within: Path) -> Row:
    """Agents without segue."""
    with crowd(number, within, STEPS) as c:
        watch, begun, models_s = Watch(), time.monotonic(), time.process_time()
        processes = [bare(staged) for staged in c.staged]
        watch.until_ended(processes)
        wall_s, models_s = time.monotonic() - begun, time.process_time() - models_s
        for staged, process in zip(c.staged, processes, strict=True):
            if process.returncode or not staged.continuity().is_whole:
                sys.exit(f"an agent failed: {process.returncode}, {staged.continuity()}")
        agents = [sum(watch.used[process.pid]) for process in processes]
        peaks = [watch.peak_mb.get(process.pid, 0.0) for process in processes]
        return {
            "wall_s": round(wall_s, 1),
            "agent_cpu_s": spread(agents),
            "agent_mb": spread(peaks),
            "models_cpu_s": round(models_s, 1),
        }


def together(number: int, within: Path) -> Row:
    """Runs of segue."""
    with crowd(number, within) as c:
        watch, begun, models_s = Watch(), time.monotonic(), time.process_time()
        processes = [staged.start_run() for staged in c.staged]
        watch.until_ended(processes)
        wall_s, models_s = time.monotonic() - begun, time.process_time() - models_s
        for process in processes:
            if process.returncode:
                sys.exit(process.stderr.read() if process.stderr else "a run failed")
        if faults := c.faults():
            sys.exit("\n".join(faults))
        mine = {process.pid for process in processes}
        keepers = [pid for pid in watch.used if pid not in mine]
        runs = [sum(watch.used[pid]) for pid in mine]
        return {
            "wall_s": round(wall_s, 1),
            "legs": len(keepers) / number,
            "segue_cpu_s": spread(runs),
            "keeper_cpu_s": round(sum(watch.used[pid].own_s for pid in keepers) / number, 3),
            "agent_cpu_s": round(sum(watch.used[pid].others_s for pid in keepers) / number, 2),
            "segue_mb": spread([watch.peak_mb[pid] for pid in mine]),
            "keeper_mb": spread([watch.peak_mb[pid] for pid in keepers if pid in watch.peak_mb]),
            "models_cpu_s": round(models_s, 1),
            "state_kb": sum(path.stat().st_size for path in c.home.glob("runs.db*")) // 1024,
        }


def spread(found: list[float]) -> Row:
    return {"mean": round(mean(found), 2), "most": round(max(found), 2)}


def show(row: Row) -> None:
    ours, peer = row["segue"], row["bare"]
    print(f"{row['number']} at once, on {row['cores']} cores; all finished, the state is whole:")
    print(f"  segue run, {ours['legs']:.1f} legs each: {ours['wall_s']} s; per run:")
    print(
        f"    CPU s: segue {_told(ours['segue_cpu_s'])}, keepers {ours['keeper_cpu_s']},", end=" "
    )
    print(f"agents {ours['agent_cpu_s']}")
    print(f"    peak MB: segue {_told(ours['segue_mb'])}, a keeper {_told(ours['keeper_mb'])}")
    print(f"  bare agents, 1 leg each: {peer['wall_s']} s; per agent:")
    print(f"    CPU s: {_told(peer['agent_cpu_s'])}; peak MB: {_told(peer['agent_mb'])}")
    models = (ours["models_cpu_s"], peer["models_cpu_s"])
    print(f"  the scripted models took {models[0]} s of CPU for segue, {models[1]} for the bare")
    print(f"  ratios: wall {row['wall_ratio']}; CPU of segue and its keepers to a bare", end=" ")
    print(f"agent's {row['cpu_ratio']}; memory {row['memory_ratio']}")


def _told(row: Row) -> str:
    return f"{row['mean']} (most {row['most']})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--number", type=int, default=50)
    options = parser.parse_args()
    if sys.platform != "linux":
        sys.exit("only Linux tells what a process used")
    found: Row = {"number": options.number, "cores": os.cpu_count()}
    for name, play in (("bare", alone), ("segue", together)):
        with tempfile.TemporaryDirectory(prefix="segue-bench-") as folder:
            found[name] = play(options.number, Path(folder))
    ours, peer = found["segue"], found["bare"]
    cpu_s = ours["segue_cpu_s"]["mean"] + ours["keeper_cpu_s"]
    mb = ours["segue_mb"]["mean"] + ours["keeper_mb"]["mean"]
    found["wall_ratio"] = round(ours["wall_s"] / peer["wall_s"], 2)
    found["cpu_ratio"] = round(cpu_s / peer["agent_cpu_s"]["mean"], 2)
    found["memory_ratio"] = round(mb / peer["agent_mb"]["mean"], 2)
    if options.json:
        print(json.dumps(found))
    else:
        show(found)


if __name__ == "__main__":
    main()
