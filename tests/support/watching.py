"""A real daemon beside real agents: `segue watch` as a process, its log, and what it is asked.

Run as a program it is that daemon, and kills itself at one point of a handoff, which the
environment names: before, line (it stands in the input line) or after a text, or noted a step.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from segue.drill.plays import job as jobs
from segue.drill.scenarios.types import Job
from segue.system.files import state
from segue.watch.log import LOG_NAME, Log, Note, open_log
from segue.watch.server.remote import Remote
from support.paths import SCRIPT
from support.terminals.tui import Tui
from support.waiting import pause_s

SEGUE = (sys.executable, "-c", "from segue.start import main; main()")
LIMIT_S = 150.0
KILL = "SEGUE_TEST_KILL"


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
        with mock.patch.dict(os.environ, self.env):  # a long path has it elsewhere
            return Remote(state.socket_path())

    def start(self, kill_at: str = "") -> None:
        """Returns once it answers, or has killed itself already."""
        program = (sys.executable, SCRIPT, __file__) if kill_at else SEGUE
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(
                [*program, "watch", *self.args],
                env={**self.env, KILL: kill_at},
                stdout=said,
                stderr=said,
            )
        process = self.process
        self.until(lambda: self.remote.is_there() or process.poll() == -9, "the daemon", 90)

    def killed(self) -> None:
        """Until it has killed itself where it was told to."""
        assert self.process is not None
        assert self.process.wait(LIMIT_S) == -signal.SIGKILL, self.said.read_text()

    def segue(self, *args: str) -> str:
        """What a command of the user's prints."""
        done = subprocess.run(
            [*SEGUE, *args], env=self.env, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

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
        began = time.monotonic()
        while not (found := is_so()):
            ended = self.process is not None and self.process.poll() not in (None, -9)
            waited_s = time.monotonic() - began
            if ended or waited_s >= limit_s:
                said = self.said.read_text() if self.said.exists() else ""
                raise AssertionError(f"{what}\n{said}")
            time.sleep(pause_s(waited_s))
        return found


@contextmanager
def watching(
    home: Path, env: Mapping[str, str], *args: str, config: str = "", kill_at: str = ""
) -> Iterator[Watching]:
    """A daemon that runs, on a state of its own."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if config:
        (home / "config.toml").write_text(config)
    found = Watching(home, env, args)
    found.start(kill_at)
    try:
        yield found
    finally:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            if found.process is not None and found.process.poll() is None:
                found.stop()
        if found.process is not None and found.process.poll() is None:
            found.kill()


def begin_work(tui: Tui) -> None:
    """Gives an agent at its prompt the job."""
    tui.wait_for(lambda s: s.state == "idle", LIMIT_S)
    say(tui, tui.prompt)


def say(tui: Tui, text: str) -> None:
    """As a user does it: long texts are pasted, and may stand on several lines."""
    tui.paste(text)
    tui.wait_for(lambda s: s.draft != "", what="its draft")
    tui._still()
    tui.keys(tui.terminal.submit)


def done(tui: Tui, job: Job) -> int:
    """How many steps of the job are done."""
    return len(jobs.check(tui.project, job, finished=False).done)


def _kill_at(point: str) -> None:
    """Makes this process kill itself there."""
    from segue.system.tmux.input_line import InputLine
    from segue.system.tmux.typist import Typist
    from segue.watch.handoffs.worker import HandoffWorker

    when, _, where = point.partition(" ")
    told = {"request": "Create handoff document now", "clear": "/clear", "resume": "and resume"}
    typing, keep = Typist.type, HandoffWorker._keep
    submit = InputLine.submit
    now = {"text": ""}

    def die_if(is_there: bool) -> None:
        if is_there:
            os.kill(os.getpid(), signal.SIGKILL)

    def type_(self: Typist, seat: Any, terminal: Any, text: str, **more: Any) -> Any:
        now["text"] = text
        die_if(when == "before" and told[where] in text)
        found = typing(self, seat, terminal, text, **more)
        die_if(when == "after" and told[where] in text and found is None)
        return found

    def submit_(self: InputLine, cursor: tuple[int, int]) -> bool:
        die_if(when == "line" and told[where] in now["text"])
        return submit(self, cursor)

    def keep_(self: HandoffWorker, cycle: Any, fact: Any) -> None:
        keep(self, cycle, fact)
        die_if(when == "noted" and cycle.step.value == where)

    Typist.type, InputLine.submit, HandoffWorker._keep = type_, submit_, keep_  # type: ignore[method-assign]


if __name__ == "__main__":
    from segue.start import main

    _kill_at(os.environ[KILL])
    main()
