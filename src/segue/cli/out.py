"""Stdout for what must come through as it is, without ever holding up a run.

A reader that is slow (`| less`) is waited for at the end, and not before: what it has not read yet
is in files and in the log. One that went away (`| head`) is written to no more.
"""

import os
import select
import sys
from collections import deque

_PIECE_BYTES = 4_096
"""A pipe that can be written to takes so much without waiting (PIPE_BUF)."""


class Out:
    """Stdout, byte for byte."""

    def __init__(self) -> None:
        self.is_gone = False
        self._held: deque[bytes] = deque()
        self._files: deque[tuple[str, int]] = deque()  # to be copied, and how far that is

    def write(self, data: bytes) -> None:
        """As soon as it can be."""
        if not self.is_gone:
            self._held.append(data)
            self.pump()

    def follow(self, path: str | os.PathLike[str]) -> None:
        """Copies a file that grows, after those that were named before."""
        self._files.append((os.fspath(path), 0))

    def pump(self) -> None:
        """Writes what is there, as far as nobody has to wait for it."""
        while not self.is_gone and _is_ready(0) and (piece := self._next()):
            self._put(piece)

    def finish(self) -> None:
        """Writes all that is left, however long the reader takes."""
        while not self.is_gone and (piece := self._next()):
            if _is_ready(None):
                self._put(piece)

    def _next(self) -> bytes:
        if self._held:
            return self._held[0][:_PIECE_BYTES]
        while self._files:
            path, offset = self._files[0]
            try:
                with open(path, "rb", buffering=0) as file:
                    piece = os.pread(file.fileno(), _PIECE_BYTES, offset)
            except OSError:
                piece = b""
            if piece or len(self._files) == 1:
                return piece
            self._files.popleft()  # the next leg's has begun: this one is over
        return b""

    def _put(self, piece: bytes) -> None:
        try:
            done = os.write(sys.stdout.fileno(), piece)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            self.is_gone = True
            return
        if self._held:
            rest = self._held.popleft()[done:]
            if rest:
                self._held.appendleft(rest)
        else:
            path, offset = self._files[0]
            self._files[0] = (path, offset + done)


def _is_ready(limit_ms: int | None) -> bool:
    """Whether stdout takes a piece now; None waits until it does."""
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return bool(poll.poll(limit_ms))
    except (OSError, ValueError):
        return True  # writing will tell
