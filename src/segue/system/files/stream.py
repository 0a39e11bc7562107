"""Follows a file that is being written: whole lines, as they arrive, in constant memory.

For files that are only appended to, such as a leg's output. Session files, which agents replace
and rewrite, are followed by `segue.sessions.follow.follow`.
"""

import os
from types import TracebackType
from typing import Self

CHUNK_BYTES = 256 << 10
"""The read size: small enough to stay in the processor's cache until it is parsed. Four times as
much takes 10% more time."""
LINE_BYTES = 64 << 20
"""A longer line is skipped: no record is that large."""


class Tail:
    """The lines of a file from `offset` on. The file need not exist yet."""

    def __init__(
        self, path: str | os.PathLike[str], offset: int = 0, *, line_bytes: int = LINE_BYTES
    ) -> None:
        self.offset = offset
        """The end of the last returned line: a new Tail from there continues with the next one."""
        self.skipped = 0
        """The number of lines that were too long. Each was returned as an empty line, so that lines
        can be counted."""
        self.has_more = False
        """Whether the last `read` stopped because of `max_bytes`, not at the file's end."""
        self._path, self._line_bytes = path, line_bytes
        self._chunk_bytes = min(CHUNK_BYTES, line_bytes)
        self._handle: int | None = None
        self._half = bytearray()  # of the last line, which has no end yet
        self._is_skipping = False  # the partial line is too long and is dropped
        self._read_to = offset

    def read(self, max_bytes: int = CHUNK_BYTES) -> list[bytes]:
        """The lines that were completed since the last call, without their newlines.

        Reads about this many bytes (whole chunks): call it again while `has_more`. A partial line
        is stored until its end arrives. A missing file has no lines.
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
        """Skips everything except the last bytes, and the line in which they begin."""
        handle = self._open()
        if handle is None:
            return
        place = os.fstat(handle).st_size - keep_bytes
        if place > self._read_to:
            self._read_to, self._half, self._is_skipping = place, bytearray(), True

    def rest(self) -> bytes:
        """The partial line at the end, once the writer is gone: then it counts as a line."""
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
        first, *later = data.split(b"\n")
        if later:
            half = later.pop()
            lines.append(self._whole(first))
            lines += later  # no line in a chunk this short can be too long
            self.offset = self._read_to - len(half)
            first = half
        if not self._is_skipping:
            self._half += first
            if len(self._half) > self._line_bytes:
                self._half, self._is_skipping = bytearray(), True

    def _whole(self, end: bytes) -> bytes:
        """Completes the line whose beginning was read before."""
        if self._half:
            self._half += end
            end = bytes(self._half)
            self._half = bytearray()
        if self._is_skipping or len(end) > self._line_bytes:
            self.skipped += 1
            self._is_skipping = False
            return b""
        return end
