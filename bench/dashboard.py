"""What the dashboard costs with many live sessions, and how soon it shows what was written:
`python -m bench.dashboard [--live N] [--json]`.

1,000 real processes by the name of claude with a session each, `segue watch` and `segue dashboard`
beside each other, and one open page, as a client that reads its stream. First nothing happens; then
records are appended, and the time to the event with the new gauge is taken. CPU time and memory are
read from /proc.

Goals: 2% of a CPU while nothing happens, 90 MB, 95 of 100 appends shown within 500 ms.
"""

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.daemon import Watched, World, watching
from segue.watch.log import LOG_NAME

SEGUE = [sys.executable, "-c", "from segue.start import main; main()"]
GOALS = {"idle_percent": 2.0, "mb": 90.0, "p95_ms": 500.0}


class Viewer:
    """An open page: remembers when each gauge was told."""

    def __init__(self, url: str) -> None:
        self.port = urlsplit(url).port or 0
        path = url.partition(str(self.port))[2]
        answer = self._ask(path)
        self.cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
        self.events: list[tuple[float, str]] = []
        self.bytes = 0
        threading.Thread(target=self._follow, daemon=True).start()

    def _ask(self, path: str, cookie: str = "") -> http.client.HTTPResponse:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        client.request("GET", path, headers={"cookie": cookie} if cookie else {})
        return client.getresponse()

    def _follow(self) -> None:
        stream = self._ask("/live?page=/", self.cookie)
        while line := stream.readline():
            self.bytes += len(line)
            if line.startswith(b"data: "):
                self.events.append((time.time(), line.decode()))

    def shown_at(self, text: str, since: int) -> float | None:
        """When an event after that one had this text."""
        return next((at for at, said in self.events[since:] if text in said), None)


def measure(live: int, idle_s: float, appends: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        world = World(Path(place), 1.0)
        try:
            names = [world.new(at=world.began - 60) for _ in range(live)]
            for name in names:
                world.start(name)
            with watching(world, [*SEGUE, "watch"]) as daemon:
                daemon.until_calm()
                return _beside(world, daemon, idle_s, appends) | {"live": live}
        finally:
            world.close()


def _beside(world: World, daemon: Watched, idle_s: float, appends: int) -> dict[str, Any]:
    env = {**os.environ, "HOME": str(world.home), "SEGUE_HOME": str(world.state)}
    command = [*SEGUE, "dashboard", "--no-open"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            viewer = Viewer(child.stdout.readline().strip())
            seen = Watched(child.pid, world.state / LOG_NAME)
            seen.until_calm(60)
            before, daemon_before = seen.cpu_s(), daemon.cpu_s()
            time.sleep(idle_s)
            idle = 100 * (seen.cpu_s() - before) / idle_s
            daemon_idle = 100 * (daemon.cpu_s() - daemon_before) / idle_s
            took = sorted(_append(world, viewer) for _ in range(appends))
            return {
                "idle_percent": round(idle, 2),
                "daemon_percent": round(daemon_idle, 2),
                "mb": round(seen.mb(), 1),
                "p50_ms": round(took[len(took) // 2] * 1000),
                "p95_ms": round(took[int(len(took) * 0.95)] * 1000),
                "shown": len(viewer.events) > 0,
            }
        finally:
            child.send_signal(signal.SIGINT)


def _append(world: World, viewer: Viewer) -> float:
    """How long until the page was told."""
    name, since = world.some(), len(viewer.events)
    world.append(name)
    used = world.used[name]
    began = world.appended[name, used]
    text = f"{used / 200_000 * 100:.0f}%"
    while time.time() < began + 30:
        at = viewer.shown_at(text, since)
        if at is not None:
            return at - began
        time.sleep(0.005)
    return 30.0


def main() -> None:
    parser = argparse.ArgumentParser(description="What the dashboard costs.")
    parser.add_argument("--live", type=int, default=1_000)
    parser.add_argument("--idle-s", type=float, default=30.0)
    parser.add_argument("--appends", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.live, options.idle_s, options.appends)
    if options.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        goal = f"  (goal: {GOALS[name]:g})" if name in GOALS else ""
        print(f"{name:<16}{value}{goal}")


if __name__ == "__main__":
    main()
