"""Follows a file that is being written: whole lines, as they arrive, in constant memory.

For files that are only appended to, such as a leg's output. Session files, which agents replace
and rewrite, are followed by `segue.sessions.follow.follow`.
"""

import os
from types import TracebackType
from typing import Self

CHUNK_BYTES = 256 << 10
"""What is read at once: small enough to stay in the processor's cache until it is parsed. Four
times as much takes a tenth more time."""
LINE_BYTES = 64 << 20
"""A line that is longer is passed over: no record is that large."""


class Tail:
    """The lines of a file from `offset` on. The file need not exist yet."""

    def __init__(
        self, path: str | os.PathLike[str], offset: int = 0, *, line_bytes: int = LINE_BYTES
    ) -> None:
        self.offset = offset
        """Where the last line ends that was given out: a new Tail from there continues the next."""
        self.skipped = 0
        """Lines that were too long. Each was given out as an empty one, so that lines can be
        counted."""
        self.has_more = False
        """Whether the last `read` stopped because of `max_bytes`, not at the file's end."""
        self._path, self._line_bytes = path, line_bytes
        self._chunk_bytes = min(CHUNK_BYTES, line_bytes)
        self._handle: int | None = None
        self._half = bytearray()  # of the last line, which has no end yet
        self._is_skipping = False  # the half line is too long: it is not kept
        self._read_to = offset

    def read(self, max_bytes: int = CHUNK_BYTES) -> list[bytes]:
        """The lines that were finished since the last time, without their newlines.

        Reads about this many bytes (whole chunks): call it again while `has_more`. Half a line is
        kept until its end arrives. A missing file has no lines.
        """
        lines: list[bytes] = []
        self.has_more = False
        handle = self._open()
        if handle is None:
            return lines
        taken = 0
        while taken < max_bytes:
            data = os.pread(handle, self._chunk_bytes, self._read_to)
            self._read_to += len(data)
            taken += len(data)
            self._cut(data, lines)
            if len(data) < self._chunk_bytes:
                return lines
        self.has_more = True
        return lines

    def skip(self, keep_bytes: int) -> None:
        """Passes over all but the last so many bytes that are there, and the line that they begin
        in."""
        handle = self._open()
        if handle is None:
            return
        place = os.fstat(handle).st_size - keep_bytes
        if place > self._read_to:
            self._read_to, self._half, self._is_skipping = place, bytearray(), True

    def rest(self) -> bytes:
        """The half line at the end, once the writer is gone: then it is a line too."""
        line = bytes(self._half)
        self.skipped += self._is_skipping
        self._half, self._is_skipping, self.offset = bytearray(), False, self._read_to
        return line

    def close(self) -> None:
        """Closes the file; the next `read` opens it again and continues."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _open(self) -> int | None:
        if self._handle is None:
            try:
                self._handle = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
        return self._handle

    def _cut(self, data: bytes, lines: list[bytes]) -> None:
        first, *others = data.split(b"\n")
        if others:
            half = others.pop()
            lines.append(self._whole(first))
            lines += others  # longer than a chunk is none, so none is too long
            self.offset = self._read_to - len(half)
            first = half
        if not self._is_skipping:
            self._half += first
            if len(self._half) > self._line_bytes:
                self._half, self._is_skipping = bytearray(), True

    def _whole(self, end: bytes) -> bytes:
        """The line of which a part was there already."""
        if self._half:
            self._half += end
            end = bytes(self._half)
            self._half = bytearray()
        if self._is_skipping or len(end) > self._line_bytes:
            self.skipped += 1
            self._is_skipping = False
            return b""
        return end
