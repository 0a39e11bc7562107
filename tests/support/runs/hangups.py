"""What test_run_hangups and other tests share."""

import os
import pty
import sys

from support.running import Staged

SEGUE = (sys.executable, "-c", "from segue.start import main; main()")


def terminal_with(s: Staged, *command: str, **env: str) -> tuple[int, int]:
    """A program in a terminal of its own; its pid, and the terminal's other end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(s.project)
        os.execve(command[0], command, {**s.env, "TERM": "xterm", **env})
    return pid, terminal


def close(terminal: int, pid: int) -> int:
    """Closes the window; the exit code of what ran in it."""
    os.close(terminal)  # the kernel sends SIGHUP
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
