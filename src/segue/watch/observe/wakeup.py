"""Wakes a thread that waits with a selector."""

import os
import threading
from contextlib import suppress


class Wakeup:
    """Any thread may ring it, and so may signal handlers. After `close`, ringing has no effect."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        for handle in (self._reader, self._writer):
            os.set_blocking(handle, False)
        self._lock = threading.RLock()  # a signal may arrive while its own thread rings

    def fileno(self) -> int:
        """For a selector: readable once it was rung."""
        return self._reader

    def ring(self) -> None:
        """Never blocks."""
        with self._lock, suppress(OSError):  # it is already set, or nobody listens any more
            os.write(self._writer, b"!")

    def hush(self) -> None:
        """Resets it, so that it can be rung again."""
        with suppress(OSError):
            os.read(self._reader, 4096)

    def close(self) -> None:
        """Closes it; a later ring must not write to another file that has its number then."""
        with self._lock:
            for handle in (self._reader, self._writer):
                with suppress(OSError):
                    os.close(handle)
            self._reader = self._writer = -1
