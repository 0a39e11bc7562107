"""Stdout for what must come through as it is."""

import os
import select
import sys


class Out:
    """Stdout, byte for byte and at once. A reader that went away (`| head`) does not end a run: it
    is written to no more."""

    def __init__(self) -> None:
        self.is_gone = False

    def write(self, data: bytes) -> None:
        """All of it."""
        rest = memoryview(data)
        while rest and not self.is_gone:
            try:
                rest = rest[os.write(sys.stdout.fileno(), rest) :]
            except BlockingIOError:  # somebody else made it so
                select.select([], [sys.stdout.fileno()], [], 1.0)
            except (OSError, ValueError):
                self.is_gone = True
