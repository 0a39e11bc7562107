"""Small real processes that look like agents: a copy of `sleep` by an agent's name, with the file
that it keeps about itself."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from support.homes import SESSION
from support.waiting import LONG_S


def start_ticks(pid: int) -> str:
    """As the kernel counts it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


class Agent:
    """A process by an agent's name, at work on a session as far as its file says. `started_by` is a
    command that starts it and stays: it gets the program's path as its last argument."""

    def __init__(
        self,
        home: Path,
        session: str = SESSION,
        status: str = "busy",
        name: str = "claude",
        started_by: Sequence[str] = (),
    ) -> None:
        program = home.parent / "bin" / name
        if not program.exists():
            program.parent.mkdir(exist_ok=True)
            shutil.copy(os.path.realpath(shutil.which("sleep") or "/bin/sleep"), program)
        home.mkdir(parents=True, exist_ok=True)
        command = [*started_by, str(program)] if started_by else [str(program), "600"]
        self.child = subprocess.Popen(
            command, cwd=home, start_new_session=True, stdin=subprocess.DEVNULL
        )
        self.shell = self.child if started_by else None
        self.pid = self._started(name) if started_by else self.child.pid
        self.file = home / "sessions" / f"{self.pid}.json"
        if name == "claude":
            self.tells(session, status)

    def tells(self, session: str, status: str) -> None:
        """Writes the file anew."""
        self.file.parent.mkdir(exist_ok=True)
        told = {"pid": self.pid, "sessionId": session, "status": status}
        self.file.write_text(json.dumps(told | {"procStart": start_ticks(self.pid)}))

    def end(self, signal: int = 9) -> None:
        """Ends it, and waits until that is over."""
        if self.shell is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal)
        self.child.send_signal(signal)
        self.child.wait()

    def _started(self, name: str) -> int:
        deadline = time.monotonic() + LONG_S
        while time.monotonic() < deadline:
            children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text()
            for pid in map(int, children.split()):
                with suppress(OSError):
                    if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                        return pid
            time.sleep(0.01)
        raise AssertionError("it did not start")
