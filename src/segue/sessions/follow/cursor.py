"""How far files have been read, what happened to them since, and which names they have. Pure: the
caller does the reading.

A file is identified by device and inode, not by its name. A cursor keeps no file open and stores
no bytes except those of a last line without a newline, so ten thousand of them are small.
Checksums of the first and the last bytes that were read show whether they are still the ones in
the file: a file that was truncated and rewritten may have any size.
"""

import os
from typing import Literal
from zlib import crc32

from msgspec import Struct

HEAD_BYTES = 256
"""How much of a file's beginning is compared before more of it is read."""
TAIL_BYTES = 64
"""How much before the current offset is compared."""
LINE_BYTES = 64 << 20
"""A longer line is skipped and counted: no record is that large."""

Identity = tuple[int, int]
Why = Literal["truncated", "replaced", "rewritten"]


class FileStamp(Struct, frozen=True, gc=False):
    """The part of a stat that following a file needs."""

    identity: Identity
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, stat: os.stat_result) -> "FileStamp":
        """The same in segue's terms."""
        return cls((stat.st_dev, stat.st_ino), stat.st_size, stat.st_mtime_ns)


class Grown(Struct, frozen=True):
    """More of the same file: its new whole lines, without their newlines.

    `offset` is where the last whole line ends; `skipped` counts lines that were too long.
    """

    lines: list[bytes]
    offset: int
    skipped: int = 0


class Restarted(Struct, frozen=True):
    """What was read so far is void; the cursor is back at the beginning."""

    why: Why


class Cursor(Struct, gc=False):
    """The state of one file. Only the functions of this module change it."""

    identity: Identity
    offset: int = 0
    """The number of bytes read, including those of an unfinished line."""
    mtime_ns: int = -1
    head_crc: int = 0
    tail_crc: int = 0
    partial: bytearray | None = None
    """The unfinished last line."""
    skipping: bool = False
    """The unfinished last line is too long: it is dropped up to its newline."""

    @property
    def read_from(self) -> int:
        """The offset at which the bytes for `advance` must begin."""
        return self.offset - self._tail_bytes

    @property
    def _tail_bytes(self) -> int:
        return min(self.offset, TAIL_BYTES)

    def is_quiet(self, stamp: FileStamp) -> bool:
        """Whether a stat alone tells that there is nothing to read."""
        return (
            stamp.size == self.offset
            and stamp.mtime_ns == self.mtime_ns
            and stamp.identity == self.identity
        )


def placed(
    stamp: FileStamp, offset: int, head: bytes, tail: bytes, *, skipping: bool = False
) -> Cursor:
    """A cursor for a file whose first `offset` bytes do not matter.

    `head` are the file's first bytes, `tail` those that end at `offset`; each at least as many as
    are compared, or all that there are. `skipping` drops everything up to the next newline.
    """
    return Cursor(
        identity=stamp.identity,
        offset=offset,
        mtime_ns=stamp.mtime_ns if stamp.size == offset else -1,
        head_crc=crc32(head[: min(offset, HEAD_BYTES)]),
        tail_crc=crc32(tail[-min(offset, TAIL_BYTES) :] if offset else b""),
        skipping=skipping,
    )


def difference(cursor: Cursor, stamp: FileStamp, head: bytes, data: bytes) -> Why | None:
    """Why this is not the file that the cursor read, or None if it is. `head` are the file's first
    HEAD_BYTES, `data` its bytes from `read_from` on.
    """
    if stamp.identity != cursor.identity:
        return "replaced"
    if stamp.size < cursor.offset or len(data) < cursor.offset - cursor.read_from:
        return "truncated"
    known = min(cursor.offset, HEAD_BYTES)
    if crc32(head[:known]) != cursor.head_crc:
        return "rewritten"
    if crc32(data[: cursor.offset - cursor.read_from]) != cursor.tail_crc:
        return "rewritten"
    return None


def advance(
    cursor: Cursor, stamp: FileStamp, head: bytes, data: bytes, *, line_bytes: int = LINE_BYTES
) -> Grown | Restarted:
    """Takes in what was read: a stat, the file's first HEAD_BYTES, its bytes from `read_from` on.

    `data` may be any part of what is there; call again with the next part. After `Restarted`
    nothing of `data` was taken in: read again, from the beginning.
    """
    why = difference(cursor, stamp, head, data)
    if why:
        _reset(cursor, stamp.identity)
        return Restarted(why)
    fresh = data[cursor.offset - cursor.read_from :]
    if cursor.offset < HEAD_BYTES:
        cursor.head_crc = crc32(fresh[: HEAD_BYTES - cursor.offset], cursor.head_crc)
    cursor.offset += len(fresh)
    cursor.tail_crc = crc32(data[-TAIL_BYTES:])
    cursor.mtime_ns = stamp.mtime_ns
    lines, skipped = _cut(cursor, fresh, line_bytes)
    return Grown(lines, cursor.offset - len(cursor.partial or b""), skipped)


def _reset(cursor: Cursor, identity: Identity) -> None:
    cursor.identity, cursor.offset, cursor.mtime_ns = identity, 0, -1
    cursor.head_crc = cursor.tail_crc = 0
    cursor.partial, cursor.skipping = None, False


def _cut(cursor: Cursor, fresh: bytes, line_bytes: int) -> tuple[list[bytes], int]:
    """The lines that are complete now, and how many were too long; the rest stays in the cursor."""
    first, *later = fresh.split(b"\n")
    skipped = 0
    lines: list[bytes] = []
    if later:
        if not cursor.skipping:
            if cursor.partial:  # may be large: avoid copies
                cursor.partial += first
                first = bytes(cursor.partial)
            lines.append(first)
        lines += later
        first = lines.pop()
        cursor.partial, cursor.skipping = None, False
        fitting = [line for line in lines if len(line) <= line_bytes]
        skipped = len(lines) - len(fitting)
        lines = fitting
    if first and not cursor.skipping:
        if cursor.partial is None:
            cursor.partial = bytearray()
        cursor.partial += first
        if len(cursor.partial) > line_bytes:
            cursor.partial, cursor.skipping = None, True
            skipped += 1
    return lines, skipped


class File(Struct, gc=False):
    """A followed file, and what its follower must remember about it."""

    path: str
    """Its main name; it may have more."""
    cursor: Cursor
    names: int = 0
    start: int = 0
    """Its size when it was found, if its earlier content does not matter."""
    missing_at: float | None = None
    warm_until: float = 0.0


class Names:
    """Which files are known, and under which names: several names may lead to one file."""

    def __init__(self) -> None:
        self.files: dict[Identity, File] = {}
        self.folders: dict[str, dict[str, File]] = {}

    def get(self, path: str) -> File | None:
        """The file that was last seen under this name."""
        folder, name = os.path.split(path)
        return self.folders.get(folder, {}).get(name)

    def add(self, path: str, file: File) -> None:
        """A name without a file now leads to this one; repeating the call is harmless."""
        folder, name = os.path.split(path)
        known = self.folders.setdefault(folder, {})
        if name not in known:
            known[name] = file
            file.names += 1
        self.files[file.cursor.identity] = file

    def drop(self, path: str) -> None:
        """A name no longer leads to a file; the file stays known."""
        folder, name = os.path.split(path)
        self.folders[folder].pop(name).names -= 1

    def forget(self, file: File) -> None:
        """The file and its names no longer exist."""
        self.files.pop(file.cursor.identity, None)
        for path in self.all_of(file):
            self.drop(path)

    def all_of(self, file: File) -> list[str]:
        """All names of a file, its main name first."""
        if file.names == 1 and self.get(file.path) is file:  # nearly always; the rest is slow
            return [file.path]
        other_paths = [
            os.path.join(folder, name)
            for folder, known in self.folders.items()
            for name, other in known.items()
            if other is file
        ]
        return sorted(other_paths, key=lambda path: path != file.path)

    def below(self, folder: str) -> list[str]:
        """All names in a folder and its subfolders."""
        inside = folder.rstrip(os.sep) + os.sep
        return [
            os.path.join(place, name)
            for place, known in self.folders.items()
            if place == folder or place.startswith(inside)
            for name in known
        ]
