"""Lends this terminal to another program, and restores it however that program ends.

A full-screen program that is killed leaves the alternate screen, mouse reporting, bracketed
paste and raw mode switched on. This module switches them off. If this process is killed too, so
that the shell has the terminal again while the program still draws, a small helper process ends
the program and then restores the terminal.
"""

import contextlib
import os
import signal
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from typing import Any

SIGNALS = (signal.SIGHUP, signal.SIGTERM)
_KEEPS_TITLE, _HAS_TITLE = b"\x1b[22;0t", b"\x1b[23;0t"


def _codes(*codes: bytes) -> bytes:
    return b"".join(b"\x1b" + code for code in codes)


_INPUT_OFF = _codes(
    *(b"[?1000l", b"[?1002l", b"[?1003l", b"[?1005l", b"[?1006l", b"[?1015l"),  # the mouse
    *(b"[?1004l", b"[?2004l", b"[>4;0m", b"[?1l", b">"),  # focus, paste, keys
)
_OFF = _INPUT_OFF + _codes(
    *(b"[?2026l", b"[?69l", b"[r", b"(B", b"[m", b"[?7h"),  # drawing
    *(b"[0 q", b"]112\x07", b"[?25h"),  # the cursor
)
_LEAVES = b"\x1b[?1049l"
_END_S = 5.0


class Lent:
    """How it ended: its exit code (negative: the signal), and the signal that ended us, or 0."""

    def __init__(self, code: int, signal_number: int) -> None:
        self.code, self.signal_number = code, signal_number


def lend(argv: Sequence[str], env: Mapping[str, str]) -> Lent:
    """Runs a full-screen program in this terminal until it ends. SIGTERM and SIGHUP to this process
    are passed on to it. Ctrl+C before it has the terminal, or after it has ended, does nothing: it
    was meant for the program. Raises OSError."""
    before = termios.tcgetattr(0)
    codes: list[int] = []
    program: subprocess.Popen[bytes] | None = None

    def tell(number: int, frame: Any) -> None:
        codes.append(number)
        if program is not None:
            program.send_signal(signal.SIGTERM)

    # Handlers instead of "ignored", which the program would inherit.
    handlers = {number: signal.signal(number, tell) for number in SIGNALS}
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
    try:
        _write(_KEEPS_TITLE)
        program = subprocess.Popen([*argv], env={**env})  # noqa: S603
        beside = _Beside(program.pid, before)
        if codes:
            program.terminate()
        code = program.wait()
        take_back(before, was_killed=code != 0)
        beside.dismiss()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Lent(code, codes[0] if codes else 0)


def take_back(before: list[Any], *, was_killed: bool) -> None:
    """Restores the terminal. A program that ended by itself has left its screen already: leaving it
    again would move the cursor. But tmux 3.3 leaves bracketed paste switched on if it is left while
    it redraws."""
    _write(_OFF + _LEAVES if was_killed else _INPUT_OFF)
    _write(_HAS_TITLE)
    with contextlib.suppress(termios.error, OSError):
        termios.tcsetattr(0, termios.TCSANOW, before)


def _write(data: bytes) -> None:
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(1, data) :]


class _Beside:
    """The helper process. If this process is killed, it restores the terminal."""

    def __init__(self, program: int, before: list[Any]) -> None:
        read, self._write = os.pipe()
        self._child = os.fork()
        if self._child:
            os.close(read)
            return
        try:
            os.close(self._write)
            for number in (*SIGNALS, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTOU):
                signal.signal(number, signal.SIG_IGN)
            if not os.read(read, 1):
                _end(program)
                take_back(before, was_killed=True)
        finally:
            os._exit(0)

    def dismiss(self) -> None:
        """It is no longer needed."""
        with contextlib.suppress(OSError):
            os.write(self._write, b"x")
            os.close(self._write)
            os.waitpid(self._child, 0)


def _end(pid: int) -> None:
    """The program is no longer our child, so only the system knows when it has ended."""
    until = time.monotonic() + _END_S
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        while time.monotonic() < until:
            os.kill(pid, 0)
            time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
