"""The user's own check of the work: a shell command that says with its exit code whether the task
is done."""

import os
import signal
import subprocess
import time
from pathlib import Path

_TIMED_OUT = 124
_GRACE_S = 3.0


class Check:
    """Runs in a session of its own, so that Ctrl+C is for segue alone. Its output, both streams
    together, is in `output`."""

    def __init__(self, command: str, cwd: str, env: dict[str, str], output: Path, most_s: float):
        self.output = output
        self._until = time.monotonic() + most_s
        with output.open("wb") as file:
            os.chmod(output, 0o600)
            self._process = subprocess.Popen(  # noqa: S602 - the user's own command
                command,
                shell=True,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def poll(self) -> int | None:
        """Its exit code; None while it runs. One that takes too long is ended, and has failed."""
        code = self._process.poll()
        if code is None and time.monotonic() > self._until:
            self.end()
            return _TIMED_OUT
        return code

    def end(self) -> None:
        """Ends it, and what it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                # Not yet waited for: the number is still its own.
                os.killpg(self._process.pid, number)
                try:
                    self._process.wait(_GRACE_S)
                except subprocess.TimeoutExpired:
                    continue
            return
