"""Reads one followed file, a portion at a time: a huge file delays no other."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from segue.sessions.follow import cursor as cursors
from segue.sessions.follow.cursor import Cursor, FileStamp, Identity, Restarted

CHUNK_BYTES = 256 << 10
PORTION_BYTES = 1 << 20
"""How much is read from one file before the next one: a huge file delays no other."""

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Portion(Struct):
    """What was read from one file at once."""

    lines: list[bytes] = []
    skipped: int = 0
    offset: int = 0
    taken: int = 0
    """Bytes that were read."""
    why: str = ""
    """Why it must be read from the beginning."""
    is_full: bool = False
    """There may be more."""


@contextmanager
def opened(path: str) -> Iterator[tuple[int, FileStamp]]:
    """A handle that never blocks, and its stat; closed afterwards."""
    handle = os.open(path, _FLAGS)
    try:
        yield handle, FileStamp.of(os.fstat(handle))
    finally:
        os.close(handle)


def read_portion(handle: int, stamp: FileStamp, cursor: Cursor, line_bytes: int) -> Portion:
    """Continues at the cursor, up to PORTION_BYTES."""
    portion = Portion(offset=cursor.offset)
    head = os.pread(handle, cursors.HEAD_BYTES, 0)
    while not portion.is_full:
        data = os.pread(handle, CHUNK_BYTES, cursor.read_from)
        got = cursors.advance(cursor, stamp, head, data, line_bytes=line_bytes)
        if isinstance(got, Restarted):
            portion.why = got.why
            break
        portion.lines += got.lines
        portion.skipped += got.skipped
        portion.offset, portion.taken = got.offset, portion.taken + len(data)
        if len(data) < CHUNK_BYTES:
            break
        portion.is_full = portion.taken >= PORTION_BYTES
    return portion


def cursor_at(handle: int, stamp: FileStamp, start: int, line_bytes: int) -> Cursor:
    """A cursor after the last whole line before `start`: a line that is being written counts as
    new."""
    start = low = min(start, stamp.size)
    block = cursors.TAIL_BYTES
    while low and start - low <= line_bytes:
        block = min(block, low)
        low -= block
        newline = os.pread(handle, block, low).rfind(b"\n")
        if newline >= 0:
            low += newline + 1
            break
        block = min(block * 8, CHUNK_BYTES)
    head = os.pread(handle, cursors.HEAD_BYTES, 0)
    tail = os.pread(handle, min(low, cursors.TAIL_BYTES), max(0, low - cursors.TAIL_BYTES))
    return cursors.placed(stamp, low, head, tail, skipping=start - low > line_bytes)


def is_same(path: str, cursor: Cursor) -> bool:
    """Whether a path leads to exactly the file that was read: inode numbers of removed files are
    reused."""
    if not is_at(path, cursor.identity):
        return False
    try:
        with opened(path) as (handle, stamp):
            head = os.pread(handle, cursors.HEAD_BYTES, 0)
            data = os.pread(handle, cursors.TAIL_BYTES, cursor.read_from)
    except OSError:
        return False
    return cursors.difference(cursor, stamp, head, data) is None


def is_at(path: str, identity: Identity) -> bool:
    """Whether a path leads to the regular file with these numbers."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and FileStamp.of(found).identity == identity
