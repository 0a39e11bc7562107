"""What it costs to watch many live sessions: `python -m bench.daemon [--json]`.

1,000 real processes by the name of claude, each with the file that claude keeps about itself, and
10,000 sessions on disk. First nothing happens, for longer than the pause between two sweeps. Then
records are appended to any of the live sessions, and a tenth of the processes is killed. Last come
three days in minutes, by a clock that runs faster: appends, new sessions with new processes, ends.
Memory is looked at four times a day; the last day counts, since the first fills what is kept for a
day.

All is measured from outside: CPU time and memory by /proc, and when something was noticed by the
time of its note in the watch log. So any command can be measured that keeps one: `--command`. What
is measured by default is the observer with the log, as the daemon uses them.

Goals: 1% of a CPU while nothing happens, 80 MB, 99 of 100 noticed within 1 s, and no growth.
"""

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from segue.core.sessions.reading import Reading
from segue.watch.log import LOG_NAME, Log, Note

LIVE, ON_DISK, PROJECTS = 1000, 10_000, 200
IDLE_S, BUSY_S, PER_S = 45.0, 30.0, 20.0
DAY_S, SPEED = 86_400.0, 1440.0
DAY_APPENDS, DAY_NEW = 4_000, 800  # of a simulated day
WINDOW, STEP = 200_000, 4_000  # each append is noted: it fills the window by 2%
GOALS = {"idle_percent": 1.0, "peak_mb": 80.0, "p99_ms": 1000.0, "exit_p99_ms": 1000.0}
GROWTH_PERCENT = 5.0
TEXT = "word " * 300


# --- what is measured -------------------------------------------------------------------------


def observe(speed: float) -> None:
    """The observer and the log, as the daemon uses them."""
    from segue.system.files import state
    from segue.watch.log import open_log
    from segue.watch.observe.observer import Observer

    began, began_steady = time.time(), time.monotonic()
    log, _ = open_log(os.path.join(state.state_folder(), LOG_NAME))
    observer = Observer(
        env=os.environ,
        clock=lambda: began + (time.time() - began) * speed,
        steady=lambda: began_steady + (time.monotonic() - began_steady) * speed,
    )
    noted: dict[str, float] = {}
    while True:
        for sighting in observer.step(30.0):
            session, reading = sighting.session, sighting.session.reading
            about = {
                "agent": session.agent,
                "session_id": session.session_id,
                "project": session.cwd,
            }
            fraction = reading.fraction if reading is not None else 0.0
            if reading and abs(fraction - noted.get(session.session_id, -1.0)) >= 0.01:
                noted[session.session_id] = fraction
                log.append("reading", at=time.time(), **about, data=msgspec.to_builtins(reading))
            if sighting.ended is not None:
                stop = observer.ending_of(sighting)
                log.append("stop", at=time.time(), **about, data={"reason": stop.reason})
        if len(noted) > 2 * len(kept := observer.sessions):
            noted = {n: f for n, f in noted.items() if ("claude", n) in kept}


# --- the world --------------------------------------------------------------------------------


class World:
    """A home full of sessions, and processes that work on some of them."""

    def __init__(self, root: Path, speed: float) -> None:
        self.home, self.state = root / "home", root / "state"
        self.claude = self.home / ".claude"
        (self.claude / "sessions").mkdir(parents=True)
        self.program = root / "claude"
        shutil.copy(os.path.realpath(shutil.which("sleep") or "/bin/sleep"), self.program)
        self.pick, self.speed, self.began = random.Random(1), speed, time.time()
        self.used: dict[str, int] = {}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.appended: dict[tuple[str, int], float] = {}
        self.killed: dict[str, float] = {}

    def now(self) -> float:
        """By the clock of the simulated day."""
        return self.began + (time.time() - self.began) * self.speed

    def file(self, name: str) -> Path:
        return self.claude / "projects" / f"-p-{int(name[:8], 16) % PROJECTS}" / f"{name}.jsonl"

    def new(self, *, at: float, records: int = 4) -> str:
        name = f"{self.pick.getrandbits(32):08x}-0000-4000-8000-{len(self.used):012d}"
        self.used[name] = 2 * STEP
        path = self.file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (self.record(name, STEP + n, at=at) for n in range(records))
        path.write_text("".join(lines))
        return name

    def record(self, name: str, used: int, *, at: float) -> str:
        stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
        usage = {"input_tokens": 10, "cache_read_input_tokens": used - 50, "output_tokens": 40}
        message = {
            "id": f"msg_{name}_{used}",
            "type": "message",
            "role": "assistant",
            "model": "claude-haiku-4-5",
            "content": [{"type": "text", "text": TEXT}],
            "stop_reason": "end_turn",
            "usage": usage,
        }
        record = {
            "type": "assistant",
            "isSidechain": False,
            "uuid": f"{name}-{used}",
            "requestId": f"req_{name}_{used}",
            "timestamp": stamp.replace("+00:00", "Z"),
            "cwd": f"/p/{int(name[:8], 16) % PROJECTS}",
            "sessionId": name,
            "message": message,
        }
        return json.dumps(record, separators=(",", ":")) + "\n"

    def start(self, name: str) -> None:
        child = subprocess.Popen(
            [self.program, "86400"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.running[name] = child
        ticks = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
        told = {"pid": child.pid, "sessionId": name, "procStart": ticks, "status": "idle"}
        (self.claude / "sessions" / f"{child.pid}.json").write_text(json.dumps(told))

    def append(self, name: str) -> None:
        used = self.used[name] + STEP
        used = self.used[name] = 2 * STEP if used > 0.9 * WINDOW else used
        line = self.record(name, used, at=self.now())
        self.appended[name, used] = time.time()
        with self.file(name).open("a") as file:
            file.write(line)

    def kill(self, name: str) -> None:
        child = self.running.pop(name)
        self.killed[name] = time.time()
        child.kill()
        child.wait()
        (self.claude / "sessions" / f"{child.pid}.json").unlink(missing_ok=True)

    def some(self) -> str:
        return self.pick.choice([*self.running])

    def close(self) -> None:
        for child in self.running.values():
            child.kill()
        for child in self.running.values():
            child.wait()


class Watched:
    """The measured process, from outside."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid, self.log = pid, log

    def cpu_s(self) -> float:
        total = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue
        return total / 1e9

    def mb(self, what: str = "VmRSS") -> float:
        text = Path(f"/proc/{self.pid}/status").read_text()
        line = next(x for x in text.splitlines() if x.startswith(what))
        return int(line.split()[1]) / 1024

    def until_calm(self, patience_s: float = 180.0) -> float:
        """Until it has seen everything and rests; how long that took."""
        began = time.monotonic()
        before = self.cpu_s()
        while time.monotonic() < began + patience_s:
            time.sleep(2.0)
            now = self.cpu_s()
            if now - before < 0.1 and self.log.exists():
                break
            before = now
        return time.monotonic() - began


@contextmanager
def watching(world: World, command: list[str]) -> Iterator[Watched]:
    env = {**os.environ, "HOME": str(world.home), "SEGUE_HOME": str(world.state)}
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "OPENCODE_DB"):
        env.pop(name, None)
    null = subprocess.DEVNULL
    with subprocess.Popen(command, env=env, stdout=null, stderr=null) as child:
        try:
            yield Watched(child.pid, world.state / LOG_NAME)
        finally:
            child.send_signal(signal.SIGTERM)


# --- together ---------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        world = World(Path(place), 1.0)
        try:
            for number in range(options.on_disk):
                name = world.new(at=world.began - 60)
                if number >= options.on_disk - options.live:
                    world.start(name)
                else:
                    old = world.began - 40 * DAY_S
                    os.utime(world.file(name), (old, old))
            found = _now(world, options)
            found |= _days(world, options)
        finally:
            world.close()
    return found


def _now(world: World, options: argparse.Namespace) -> dict[str, Any]:
    with watching(world, options.measured) as watched:
        start_s = watched.until_calm()
        before = watched.cpu_s()
        time.sleep(options.idle_s)
        idle_percent = 100 * (watched.cpu_s() - before) / options.idle_s
        idle_mb = watched.mb()
        before = watched.cpu_s()
        killed = max(1, options.live // 10)
        kills = {int(BUSY_S * PER_S * (n + 1) / (killed + 1)) for n in range(killed)}
        began = time.monotonic()
        for number in range(int(BUSY_S * PER_S)):
            time.sleep(max(0.0, began + number / PER_S - time.monotonic()))
            world.append(world.some())
            if number in kills:
                world.kill(world.some())
        busy_percent = 100 * (watched.cpu_s() - before) / BUSY_S
        time.sleep(3.0)
        log = Log(watched.log)
        noted = log.since(0, ("reading", "stop"), limit=1_000_000)
        log.close()
        peak_mb = watched.mb("VmHWM")
    stops = {note.session_id: note.at for note in noted if note.kind == "stop"}
    seen_at = _covered(world.appended, [note for note in noted if note.kind == "reading"])
    lags = _lags(world.appended, seen_at)
    ends = _lags(world.killed, stops)
    return {
        "start_s": round(start_s, 1),
        "idle_percent": round(idle_percent, 2),
        "idle_mb": round(idle_mb, 1),
        "peak_mb": round(peak_mb, 1),
        "busy_percent": round(busy_percent, 1),
        "appends": len(world.appended),
        "unseen": len(world.appended) - len(lags),
        "p50_ms": _part(lags, 0.50),
        "p99_ms": _part(lags, 0.99),
        "exits": len(world.killed),
        "exits_unseen": len(world.killed) - len(ends),
        "exit_p50_ms": _part(ends, 0.50),
        "exit_p99_ms": _part(ends, 0.99),
    }


def _covered(appended: dict[tuple[str, int], float], readings: list[Note]) -> dict[Any, float]:
    """When each append was noticed. Two that came together to one session are one change."""
    order = {key: place for place, key in enumerate(appended)}
    seen: dict[Any, float] = {}
    for key, at in appended.items():
        fitting = (
            note.at
            for note in readings
            if note.session_id == key[0]
            and note.at >= at
            and order.get((key[0], _used(note)), -1) >= order[key]
        )
        if (first := next(fitting, None)) is not None:
            seen[key] = first
    return seen


def _used(note: Note) -> int:
    return msgspec.convert(note.data, Reading).used_tokens


def _lags(done: dict[Any, float], seen: dict[Any, float]) -> list[float]:
    return sorted(1e3 * (seen[what] - at) for what, at in done.items() if what in seen)


def _part(lags: list[float], part: float) -> float:
    return round(lags[int(len(lags) * part)], 1) if lags else float("inf")


def _days(world: World, options: argparse.Namespace) -> dict[str, Any]:
    """Days in minutes; the memory at each quarter."""
    if options.days <= 0:
        return {}
    world.speed, world.began = options.speed, time.time()
    actions = ["append"] * DAY_APPENDS + ["new"] * DAY_NEW
    memory: list[float] = []
    with watching(world, [*options.measured, *options.faster]) as watched:
        watched.until_calm()
        for _ in range(options.days):
            world.pick.shuffle(actions)
            began, quarter = time.monotonic(), len(actions) // 4
            for number, action in enumerate(actions):
                due = began + number * DAY_S / options.speed / len(actions)
                time.sleep(max(0.0, due - time.monotonic()))
                if action == "append":
                    world.append(world.some())
                else:
                    world.kill(world.some())
                    world.start(world.new(at=world.now(), records=2))
                if (number + 1) % quarter == 0:
                    memory.append(round(watched.mb(), 1))
    last = memory[-4:]
    growth = 100 * (last[-1] - last[0]) / last[0]
    return {"day_mb": memory, "growth_percent": round(growth, 1)}


def show(found: dict[str, Any]) -> None:
    goals = {**GOALS, "growth_percent": GROWTH_PERCENT, "unseen": 0, "exits_unseen": 0}
    for key, value in found.items():
        goal = goals.get(key)
        word = "" if goal is None else f"goal {goal:g}: {'met' if value <= goal else 'NOT MET'}"
        print(f"{key:<16}{value!s:>32}   {word}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--live", type=int, default=LIVE)
    parser.add_argument("--on-disk", type=int, default=ON_DISK)
    parser.add_argument("--idle-s", type=float, default=IDLE_S)
    parser.add_argument("--days", type=int, default=3, help="simulated ones; 0: none")
    parser.add_argument("--command", help="what to measure; its clock is then the machine's")
    parser.add_argument("--observe", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--speed", type=float, default=SPEED, help="of the simulated days")
    options = parser.parse_args()
    if options.observe:
        observe(options.speed)
        return
    own = [sys.executable, "-m", "bench.daemon", "--observe", "--speed"]
    options.measured = shlex.split(options.command) if options.command else [*own, "1"]
    options.faster = [] if options.command else ["--speed", str(options.speed)]
    found = measure(options)
    print(json.dumps({"goals": GOALS, "found": found})) if options.json else show(found)


if __name__ == "__main__":
    main()
