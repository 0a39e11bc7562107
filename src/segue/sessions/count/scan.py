"""Counts every session file; of files that were counted before, only what is new."""

import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from segue.sessions.count.index import Index
from segue.sessions.find import FileOnDisk, Stamp

if TYPE_CHECKING:
    from segue.agents.contracts.counter import Counter

MAX_LINE_BYTES = 64 << 20
"""A longer line is not a record: it is skipped."""

CHUNK_BYTES = 256 << 10  # fits into the processor's cache: measured


class Scan(NamedTuple):
    """The result of a scan."""

    files: int
    bytes: int  # in all files
    read_bytes: int  # in the files that had changed
    unreadable: tuple[str, ...]


def scan(
    found: Sequence[FileOnDisk],
    index: Index,
    known: dict[str, Stamp],
    *,
    progress: Callable[[int], None] | None = None,
) -> Scan:
    """Brings the index up to date with the files. `known` are its stamps from before the files were
    listed: a known file that was not found is gone. `progress` receives the number of bytes as they
    are read."""
    changed = [file for file in found if known.get(file.path) != file.stamp]
    here = {file.path for file in found}
    removed = [path for path in known if path not in here]
    read_bytes, unreadable = 0, []
    if changed or removed:
        from segue.sessions.count.count import Batch

        batch = Batch(index, found, known, progress)
        batch.forget(removed)
        for file in changed:
            batch.add(file)
        batch.finish()
        read_bytes, unreadable = batch.read_bytes, batch.unreadable
    size = sum(file.size for file in found)
    return Scan(len(found), size, read_bytes, tuple(unreadable))


def unread_bytes(found: Sequence[FileOnDisk], known: dict[str, Stamp]) -> int:
    """How many bytes a scan must read, if files only grew."""
    return sum(
        max(0, f.size - (known[f.path][2] if f.path in known else 0))
        for f in found
        if known.get(f.path) != f.stamp
    )


def _next_line(handle: int, offset: int, size: int) -> int:
    """The end of a line that is too long. Holes, of which a file may have gigabytes, are not
    read."""
    while offset < size:
        try:
            offset = max(offset, os.lseek(handle, offset, os.SEEK_DATA))
        except OSError as fault:
            if fault.errno == errno.ENXIO:
                return size  # only a hole
        data = os.pread(handle, min(CHUNK_BYTES, size - offset), offset)
        if not data:
            break
        if end := data.find(b"\n") + 1:
            return offset + end
        offset += len(data)
    return min(offset, size)


def feed(handle: int, offset: int, size: int, counter: "Counter") -> int:
    """Feeds whole lines up to `size`; returns the end. A last line without a newline counts if it
    is already a record: nothing that could follow would make it another one."""
    length = CHUNK_BYTES
    while offset < size:
        data = os.pread(handle, min(length, size - offset), offset)
        if not data:
            break
        end = data.rfind(b"\n") + 1
        if end:
            counter.feed(data, end)
            offset += end
            length = CHUNK_BYTES
        elif offset + len(data) >= size:
            break
        elif length < MAX_LINE_BYTES:
            length *= 2  # one line is longer than that
        else:
            counter.tally.unread += 1
            offset = _next_line(handle, offset + len(data), size)
            length = CHUNK_BYTES
    if offset < size:
        from segue.agents.shared.lines import decode

        rest = os.pread(handle, size - offset, offset)
        if rest.rstrip().endswith(b"}") and decode(rest.decode("utf-8", "replace")) is not None:
            counter.feed(rest, len(rest))
            offset += len(rest)
    counter.close()
    return offset
