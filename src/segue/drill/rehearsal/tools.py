"""Runs the shell commands that the model names: real processes in the working folder."""

import os
import signal
import subprocess
import threading
from contextlib import suppress

from segue.drill.rehearsal.inbox import Inbox

_MAX_CHARS = 1_000_000
_SHELL = "/bin/sh"
_KILL_S = 5.0
_LINGER_S = 0.5  # for background processes of a command that may still print
_OWN = ("PYTHONPATH",)  # variables for the agent's own start, not for its children


class Ran:
    """The result of a command. The exit code is negative if a signal ended it."""

    def __init__(self, output: str, exit_code: int) -> None:
        self.output, self.exit_code = output, exit_code


class Tool:
    """One command, in its own session: a signal to the agent's group does not reach it, and it
    survives the agent's death. The real agents behave the same way."""

    def __init__(self, inbox: Inbox, command: str) -> None:
        self.inbox, self.command = inbox, command

    def run(self) -> Ran:
        """Runs the command to its end. If the wait is interrupted, the command keeps running."""
        env = {name: value for name, value in os.environ.items() if name not in _OWN}
        try:
            self.process = subprocess.Popen(  # noqa: S603 - the scripted model's command
                [_SHELL, "-c", self.command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=env,
            )
        except OSError as fault:
            return Ran(str(fault), 127)
        threading.Thread(target=self._follow, daemon=True).start()
        ran: Ran = self.inbox.wait(self)
        return ran

    def kill(self) -> None:
        """Ends the command and everything that it started, except what moved to another session."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            return
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_KILL_S)

    def _follow(self) -> None:
        pieces: list[bytes] = []
        reading = threading.Thread(target=self._read, args=(pieces,), daemon=True)
        reading.start()
        code = self.process.wait()
        reading.join(_LINGER_S)
        output = b"".join(pieces).decode("utf-8", "replace")
        self.inbox.put(self, Ran(_shortened(output), code))

    def _read(self, pieces: list[bytes]) -> None:
        if self.process.stdout is not None:
            while piece := os.read(self.process.stdout.fileno(), 1 << 16):
                pieces.append(piece)


def _shortened(output: str) -> str:
    """Cuts the middle out of very long output, because the result of a command is at its end."""
    if len(output) <= _MAX_CHARS:
        return output
    half = _MAX_CHARS // 2
    return (
        f"{output[:half]}\n... [{len(output) - 2 * half} characters left out] ...\n{output[-half:]}"
    )
