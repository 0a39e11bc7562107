"""Ctrl+C in a command that waits.

Python raises an exception in whatever line is running, and a library's C code may swallow it
(msgspec does so while it inspects a class for the first time). So the keypress is remembered,
and a waiting command sees it before it waits again.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_pressed = False


@contextmanager
def caught() -> Iterator[None]:
    """Remembers Ctrl+C for `check` and `wait`. If the process ignores Ctrl+C, it still does."""
    global _pressed
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    _pressed = False
    signal.signal(signal.SIGINT, _press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def check() -> None:
    """Raises KeyboardInterrupt if Ctrl+C was pressed since `caught` began."""
    if _pressed:
        raise KeyboardInterrupt


def wait(seconds: float) -> None:
    """Sleeps. Raises KeyboardInterrupt if Ctrl+C was pressed before, or is pressed meanwhile."""
    check()
    time.sleep(seconds)


def _press(number: int, frame: FrameType | None) -> None:
    global _pressed
    _pressed = True
    raise KeyboardInterrupt
