"""Reads the end of a session file: as much as needed, whatever the size of the file."""

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from segue.agents.contracts.profile import Record
from segue.agents.shared.lines import read_line

BLOCK_BYTES = 64 << 10
CAP_BYTES = 32 << 20
"""How far back it reads at most. A last reply further back is behind tens of megabytes of one
tool's output."""

_GROWTH = 4

T = TypeVar("T")


def read_back(
    handle: int,
    size: int,
    view: Callable[[list[Record]], T],
    is_enough: Callable[[T], bool],
    *,
    block_bytes: int = BLOCK_BYTES,
    cap_bytes: int = CAP_BYTES,
) -> tuple[T, bool]:
    """Passes longer and longer tails to `view` until one is enough, or the file's start or the cap
    is reached; the flag says that it was the cap."""
    length = block_bytes
    while True:
        start = max(0, size - length)
        data = os.pread(handle, size - start, start)
        found = view(list(records(data, whole=start == 0)))
        if start == 0 or is_enough(found):
            return found, False
        if length >= cap_bytes:
            return found, True
        length = min(length * _GROWTH, cap_bytes)


def records(data: bytes, *, whole: bool = True) -> Iterator[Record]:
    """The records of a piece of a file. Its first line is dropped unless the piece is `whole`;
    lines that are not records are skipped as damage."""
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        if number == 0 and not whole:
            continue
        value = read_line(line)
        if isinstance(value, dict):
            yield Record(value)


def document(handle: int, size: int) -> list[Record]:
    """The records of a session file that is one JSON object over many lines, as older versions
    wrote it."""
    value = read_line(os.pread(handle, min(size, CAP_BYTES), 0))
    return [Record(value)] if isinstance(value, dict) else []


def first_records(handle: int, length: int = BLOCK_BYTES) -> Iterator[Record]:
    """The first records, each read on demand."""
    data = os.pread(handle, length, 0)
    return records(data[: data.rfind(b"\n") + 1])


def head(handle: int, length: int = BLOCK_BYTES) -> list[Record]:
    """The first records: some agents state only there whose session it is."""
    data = os.pread(handle, length, 0)
    return list(records(data[: data.rfind(b"\n") + 1]))
