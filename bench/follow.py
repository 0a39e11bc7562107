"""What it costs to follow many live files: `python bench/follow.py [--json]`.

10,000 files in 500 folders. First nothing happens (for longer than the pause between two sweeps, so
that one is in it), then another process appends 1,000 lines a second. Each line carries its number
and the time just before it was written, by a clock that all processes share. Goals: every line
exactly once, 99 of 100 within 100 ms, 0.5% of a CPU while nothing happens, 60 MB at the most.

The peer is the plain way: a stat of every file each 0.5 s. The same follower without events is
there too, since that is what it falls back on. Each runs in a process of its own.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from segue.sessions.follow.follow import FileFollower

FOLDERS, FILES_EACH = 500, 20
PER_S, WRITE_S = 1000, 10
POLL_S, PEER_S = 30.0, 0.5
LINGER_S = 2.0  # a line that comes twice comes within that
PATIENCE_S = 40.0  # more than a sweep's pause: a line that was not seen by then is lost
OURS, BLIND, PEER = "follower", "follower, no events", "stat poll 0.5 s"
GOALS = {"wrong": 0, "p99_ms": 100.0, "idle_percent": 0.5, "peak_mb": 60.0}
OLD = b'{"type":"user","text":"' + b"x" * 200 + b'"}\n'


# --- the three processes ----------------------------------------------------------------------


def write(root: Path) -> None:
    """Appends lines at an even pace, to any file, each with its number and the time."""
    pick = random.Random(1)
    start = time.monotonic()
    for number in range(PER_S * WRITE_S):
        wait_s = start + number / PER_S - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        path = root / str(pick.randrange(FOLDERS)) / f"{pick.randrange(FILES_EACH)}.jsonl"
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(handle, b'{"n":%d,"at":%d}\n' % (number, time.monotonic_ns()))
        os.close(handle)


class StatPoll:
    """The plain way: all files, each time."""

    def __init__(self, root: Path) -> None:
        self.offsets = {str(path): path.stat().st_size for path in root.rglob("*.jsonl")}
        self.next_at = time.monotonic()

    def lines(self, timeout_s: float) -> list[bytes]:
        time.sleep(max(0.0, min(timeout_s, self.next_at - time.monotonic())))
        if time.monotonic() < self.next_at:
            return []
        found: list[bytes] = []
        for path, offset in self.offsets.items():
            if os.stat(path).st_size > offset:
                with open(path, "rb") as file:
                    file.seek(offset)
                    data = file.read()
                whole = data.rfind(b"\n") + 1
                self.offsets[path] += whole
                found += data[:whole].splitlines()
        self.next_at += PEER_S
        return found


def watch(root: Path, name: str, idle_s: float) -> None:
    """Sees what is written to the files, as told; prints what that took."""
    began = time.monotonic()
    if name == PEER:
        lines = StatPoll(root).lines
    else:
        follower = FileFollower([root], _is_session, poll_s=POLL_S, events=name == OURS)
        lines = lambda timeout_s: [x for c in follower.step(timeout_s) for x in c.lines]  # noqa: E731
    lines(0.0)
    start_s = time.monotonic() - began
    _for(LINGER_S, lines)  # what starting left over
    idle_percent = 100 * _for(idle_s, lines) / idle_s
    print("ready", flush=True)
    taken_ms: list[float] = []
    seen: list[int] = []
    before = time.process_time()
    deadline, end = time.monotonic() + WRITE_S + PATIENCE_S, float("inf")
    while time.monotonic() < min(deadline, end):
        batch = lines(0.25)
        now = time.monotonic_ns()
        for line in batch:
            record = json.loads(line)
            seen.append(record["n"])
            taken_ms.append((now - record["at"]) / 1e6)
        if len(seen) >= PER_S * WRITE_S and end == float("inf"):
            end = time.monotonic() + LINGER_S
    busy_s = time.process_time() - before
    taken_ms.sort()
    print(
        json.dumps(
            {
                "name": name,
                "wrong": len({*range(PER_S * WRITE_S)} ^ {*seen}) + len(seen) - len({*seen}),
                "p50_ms": round(taken_ms[len(taken_ms) // 2], 1),
                "p99_ms": round(taken_ms[len(taken_ms) * 99 // 100], 1),
                "max_ms": round(taken_ms[-1], 1),
                "busy_percent": round(100 * busy_s / WRITE_S, 1),
                "idle_percent": round(idle_percent, 2),
                "peak_mb": round(_peak_mb(), 1),
                "start_ms": round(1e3 * start_s),
            }
        )
    )


def _is_session(path: str) -> bool:
    return path.endswith(".jsonl")


def _for(duration_s: float, lines: Callable[[float], list[bytes]]) -> float:
    """The CPU time of so many seconds of waiting."""
    before, end = time.process_time(), time.monotonic() + duration_s
    while (left_s := end - time.monotonic()) > 0:
        lines(min(1.0, left_s))
    return time.process_time() - before


def _peak_mb() -> float:
    status = Path("/proc/self/status")
    if status.exists():  # getrusage counts what the parent had, too
        peak = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(peak.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


# --- together ---------------------------------------------------------------------------------


def measure(name: str, idle_s: float) -> dict[str, Any]:
    me = [sys.executable, __file__]
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for folder in range(FOLDERS):
            (root / str(folder)).mkdir()
            for file in range(FILES_EACH):
                (root / str(folder) / f"{file}.jsonl").write_bytes(OLD * 5)
        watcher = [*me, "--watch", name, "--root", place, "--idle-s", str(idle_s)]
        with subprocess.Popen(watcher, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout
            if watching.stdout.readline() != "ready\n":
                sys.exit(f"{name}: did not start")
            subprocess.run([*me, "--write", "--root", place], check=True)
            found: dict[str, Any] = json.loads(watching.stdout.read())
    return found


def show(rows: list[dict[str, Any]]) -> None:
    keys = [key for key in rows[0] if key != "name"]
    print(f"{FOLDERS * FILES_EACH:,} files in {FOLDERS} folders, {PER_S:,} lines/s for {WRITE_S} s")
    print(f"{'':<22}" + "".join(f"{key:>14}" for key in keys))
    for row in rows:
        print(f"{row['name']:<22}" + "".join(f"{row[key]:>14,}" for key in keys))
    print(f"{'goal':<22}" + "".join(f"{GOALS.get(key, ''):>14}" for key in keys))
    ours, peer = rows[0], rows[-1]
    met = {key: ours[key] <= goal for key, goal in GOALS.items()}
    print(f"{'met':<22}" + "".join(f"{_word(met.get(key)):>14}" for key in keys))
    ratios = {key: peer[key] / ours[key] for key in ("p50_ms", "p99_ms", "idle_percent")}
    print("peer / ours: " + ", ".join(f"{key} {ratio:.1f}x" for key, ratio in ratios.items()))


def _word(is_met: bool | None) -> str:
    return "" if is_met is None else "yes" if is_met else "NO"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--idle-s", type=float, default=POLL_S + 2)
    for option in ("--watch", "--root"):
        parser.add_argument(option, help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(Path(options.root))
    elif options.watch:
        watch(Path(options.root), options.watch, options.idle_s)
    else:
        rows = [measure(name, options.idle_s) for name in (OURS, BLIND, PEER)]
        if options.json:
            print(json.dumps({"goals": GOALS, "rows": rows}))
        else:
            show(rows)


if __name__ == "__main__":
    main()
