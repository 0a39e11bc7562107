"""A real daemon beside real agents: `segue watch` as a process, its log, and what it is asked."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from segue.watch.log import LOG_NAME, Log, Note, open_log
from segue.watch.remote import Remote

SEGUE = (sys.executable, "-c", "from segue.start import main; main()")
LIMIT_S = 60.0


class Watching:
    """One daemon after the other, on the same state."""

    def __init__(self, home: Path, env: Mapping[str, str], args: tuple[str, ...]) -> None:
        self.home, self.args = home, args
        self.env = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            **env,
            "SEGUE_HOME": str(home),
        }
        self.said = home / "said.txt"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Log:
        return open_log(self.home / LOG_NAME)[0]

    @property
    def remote(self) -> Remote:
        return Remote(str(self.home / "watch" / "segue.sock"))

    def start(self) -> None:
        """Returns once it answers."""
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                [*SEGUE, "watch", *self.args], env=self.env, stdout=said, stderr=said
            )
        self.until(lambda: self.remote.is_there(), "the daemon")

    def kill(self) -> None:
        """As a power cut does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Asks it to end; its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def notes(self, *kinds: str) -> list[Note]:
        """All that it noted, of these kinds."""
        log = self.log
        try:
            return log.since(0, kinds, 100_000)
        finally:
            log.close()

    def steps(self) -> list[str]:
        """The steps of handoffs, in order."""
        found: list[str] = []
        for note in self.notes("handoff"):
            step = note.data["cycle"]["step"]
            if found[-1:] != [step]:
                found.append(step)
        return found

    def until(self, is_so: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
        """Waits for something; what it is then."""
        until = time.monotonic() + limit_s
        while not (found := is_so()):
            ended = self.process is not None and self.process.poll() is not None
            if ended or time.monotonic() >= until:
                said = self.said.read_text() if self.said.exists() else ""
                raise AssertionError(f"{what}\n{said}")
            time.sleep(0.05)
        return found


@contextmanager
def watching(
    home: Path, env: Mapping[str, str], *args: str, config: str = ""
) -> Iterator[Watching]:
    """A daemon that runs, on a state of its own."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if config:
        (home / "config.toml").write_text(config)
    found = Watching(home, env, args)
    found.start()
    try:
        yield found
    finally:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            if found.process is not None and found.process.poll() is None:
                found.stop()
        if found.process is not None and found.process.poll() is None:
            found.kill()
