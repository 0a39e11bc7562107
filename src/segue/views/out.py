"""Stdout and stderr of a run, written by a separate thread so that a slow or missing reader never
delays the run.

Output that must arrive (the answer, `--json`, `--raw`) is kept for a slow reader (`| less`):
what it has not read yet is in files and in the log. Progress output is dropped once too much of
it is waiting. Nothing more is written to a reader that went away (`| head`). On a terminal, an
agent's bytes are made harmless first, like everything segue prints; only a pipe or a file gets
them unchanged.
"""

import codecs
import errno
import os
import select
import sys
import threading
import time
from collections import deque
from typing import TextIO

from segue.core.terminals.visible import visible

STALL_S = 5.0
"""At the end, a reader that accepts nothing for this long loses what is optional, and on a terminal
everything."""
_PIECE_BYTES = 4_096
_LOOSE_BYTES = 200_000  # of optional output: some thousand lines
_LOOK_S = 1.0


class Out:
    """A stream that never makes its caller wait."""

    def __init__(self, stream: TextIO | None = None) -> None:
        stream = stream or sys.stdout
        self.is_gone = False  # its reader is gone
        self.fault = ""  # why writing failed, unless its reader has closed it
        self.is_terminal = stream.isatty()
        self.encoding = stream.encoding
        self._number = stream.fileno()
        self._text = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._changed = threading.Condition()
        self._held: deque[tuple[bytes, bool]] = deque()  # output, and whether it is required
        self._loose_bytes = 0
        self._written = 0  # bytes of the first item that are already written
        self._is_busy = False  # the thread is writing part of the first item
        # files to copy, and how far each has been copied
        self._files: deque[tuple[str, int]] = deque()
        self._asked = self._answered = 0  # calls of `pump`, and how many were handled
        self._moved_at = time.monotonic()
        self._thread: threading.Thread | None = None

    @property
    def has_loose(self) -> bool:
        """Whether optional output is waiting to be written."""
        return self._loose_bytes > 0

    def write(self, data: bytes) -> None:
        """Writes an agent's output; nothing of it is dropped."""
        self._hold(self._visible_bytes(data), must=True)

    def write_text(self, text: str, *, must: bool = True) -> None:
        """Writes text that `printing` has made harmless. Optional text (`must` False) is dropped,
        the oldest first, if too much of it is waiting."""
        self._hold(text.encode(self.encoding, "replace"), must=must)

    def _hold(self, data: bytes, *, must: bool) -> None:
        with self._changed:
            if self.is_gone or not data:
                return
            self._held.append((data, must))
            if not must:
                self._loose_bytes += len(data)
                self._drop()
        self.pump()

    def follow(self, path: str | os.PathLike[str]) -> None:
        """Copies a growing file, after those of earlier calls; nothing of it is dropped. A file
        counts as complete once the next one is named."""
        with self._changed:
            self._files.append((os.fspath(path), 0))
        self.pump()

    def pump(self) -> None:
        """Notes that there may be new data in the copied files."""
        with self._changed:
            self._asked += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="segue-out", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self, stall_s: float | None = None) -> None:
        """Waits until everything is written, as long as there is a reader. With `stall_s`, a
        reader that accepts nothing for that long loses optional output, and a terminal loses
        everything that is left."""
        self.pump()
        with self._changed:
            self._moved_at = time.monotonic()
            while self._asked != self._answered and not self.is_gone:
                left_s = self._moved_at + (stall_s or 0.0) - time.monotonic()
                if stall_s is not None and left_s <= 0 and self._may_drop():
                    self.is_gone = True
                    return
                self._changed.wait(left_s if left_s > 0 else _LOOK_S)

    def _may_drop(self) -> bool:
        return self.is_terminal or not (self._files or any(must for _, must in self._held))

    def _visible_bytes(self, data: bytes) -> bytes:
        return visible(self._text.decode(data)).encode() if self.is_terminal else data

    def _drop(self) -> None:
        """Drops the oldest optional output if too much is waiting; never an item that is partly
        written."""
        place = 1 if self._is_busy or self._written else 0
        while self._loose_bytes > _LOOSE_BYTES and place < len(self._held) - 1:
            data, must = self._held[place]
            if must:
                place += 1
            else:
                del self._held[place]
                self._loose_bytes -= len(data)

    # The writing thread

    def _work(self) -> None:
        while not self.is_gone:
            asked = self._asked
            if self._put_buffered() or self._put_file():
                continue
            with self._changed:
                self._answered = asked
                self._changed.notify_all()
                while self._asked == asked:
                    self._changed.wait()

    def _put_buffered(self) -> bool:
        """Writes a piece of the buffered output; returns whether there was any."""
        with self._changed:
            self._is_busy = bool(self._held)
            if not self._is_busy:
                return False
            data = self._held[0][0][self._written : self._written + _PIECE_BYTES]
        done = self._put(data)
        with self._changed:
            self._is_busy = False
            self._take(done)
        return True

    def _put_file(self) -> bool:
        """Writes a piece of the copied files; returns whether there was any."""
        while self._files:
            path, offset = self._files[0]
            try:
                with open(path, "rb", buffering=0) as file:
                    piece = os.pread(file.fileno(), _PIECE_BYTES, offset)
            except OSError:
                piece = b""
            if piece and self.is_terminal:
                self._files[0] = (path, offset + len(piece))
                self._hold(self._visible_bytes(piece), must=True)
                return True
            if piece:
                self._files[0] = (path, offset + self._put(piece))
                return True
            if len(self._files) == 1:
                return False
            self._files.popleft()  # the output of the next leg has begun, so this one has ended
        return False

    def _put(self, data: bytes) -> int:
        """Writes, and returns how much was accepted. It may block, because nobody waits for this
        thread."""
        try:
            done = os.write(self._number, data)
        except BlockingIOError:  # another process made the stream non-blocking
            poll = select.poll()
            poll.register(self._number, select.POLLOUT)
            poll.poll(_LOOK_S * 1000)
            return 0
        except OSError as fault:
            if fault.errno not in (errno.EPIPE, errno.EBADF):
                self.fault = os.strerror(fault.errno or errno.EIO)
            done, self.is_gone = 0, True
        with self._changed:
            self._moved_at = time.monotonic()
            self._changed.notify_all()
        return done

    def _take(self, done: int) -> None:
        data, must = self._held[0]
        self._written += done
        if self._written >= len(data):
            self._held.popleft()
            self._written = 0
            self._loose_bytes -= 0 if must else len(data)


class Loose:
    """An optional stream for views: writing to it never blocks."""

    def __init__(self, out: Out) -> None:
        self._out = out
        self.isatty = lambda: out.is_terminal
        self.fileno = lambda: out._number

    @property
    def is_behind(self) -> bool:
        """Whether output is waiting. A view then skips what it would redraw anyway."""
        return self._out.has_loose

    def write(self, text: str) -> int:
        self._out.write_text(text, must=False)
        return len(text)

    def flush(self) -> None:
        """Does nothing: the thread writes by itself."""


def both() -> tuple[Out, Out]:
    """The writers for stdout and stderr: the same one if both lead to the same place, so that the
    order of writes is preserved."""
    out = Out(sys.stdout)
    if os.path.sameopenfile(sys.stdout.fileno(), sys.stderr.fileno()):
        return out, out
    return out, Out(sys.stderr)
