"""Keys in a live view: `q` leaves it, as Ctrl+C does."""

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_LEAVE = (b"q", b"Q")
_ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def q_quits() -> Iterator[None]:
    """While this lasts, `q` acts like Ctrl+C; afterwards, and when the process is ended, the
    terminal is restored. Without a terminal, or in the background, nothing is done."""
    if not _is_ours():
        yield
        return
    import termios
    import tty

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def end(number: int, frame: FrameType | None) -> None:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    handled = {number: signal.signal(number, end) for number in _ENDS}
    over, stop = os.pipe()
    reader = threading.Thread(target=_read, args=(fd, over), name="segue-keys", daemon=True)
    tty.setcbreak(fd)
    try:
        reader.start()
        yield
    finally:
        os.close(stop)
        reader.join(timeout=2)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        for number, handler in handled.items():
            signal.signal(number, handler)
        os.close(over)


def _is_ours() -> bool:
    """Whether stdin and stdout are a terminal, and this process is in its foreground."""
    try:
        fd = sys.stdin.fileno()
        return os.isatty(fd) and sys.stdout.isatty() and os.tcgetpgrp(fd) == os.getpgrp()
    except (AttributeError, OSError, ValueError):
        return False


def _read(fd: int, over: int) -> None:
    with suppress(OSError, ValueError):
        while True:
            ready, _, _ = select.select([fd, over], [], [])
            if over in ready:
                return
            keys = os.read(fd, 64)
            if not keys:
                return
            if any(key in keys for key in _LEAVE):
                os.kill(os.getpid(), signal.SIGINT)
                return
