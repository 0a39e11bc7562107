"""Reads what agents left behind, without loading all of it."""

import errno
import os
import stat
import sys
from collections import deque
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from segue.errors import InputError

TAIL_BYTES = 8 << 20
"""No verdict needs more: the closing records of the last turn are written last."""


_CHUNK = 1 << 20


class FileText(Struct, frozen=True):
    """A file's text, from which line on, and what the user should know about it."""

    text: str
    first_line: int = 1
    notes: tuple[str, ...] = ()


_MAX_PATH = 4_096  # PATH_MAX, in bytes
_COUNTED_BYTES = 8 << 30  # bytes of a file's beginning whose lines are counted
_DEVICE_BYTES = 256 << 20  # limit for input without a size


def read_plain(path: str | Path, max_bytes: int) -> bytes:
    """The content of a file, which must be a plain one (links are followed) and no larger than
    this. Never blocks. Raises OSError, which says what it is otherwise: a pipe, a device, a
    folder."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT)) from None
    with os.fdopen(handle, "rb") as file:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"not a file, but {_kind(mode)}")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes")
    return data


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def real(path: str) -> str:
    """`realpath`, which returns a text that cannot be a path unchanged."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


def is_path(text: str) -> bool:
    """Whether this can be a file's name."""
    try:
        return 0 < len(os.fsencode(text)) < _MAX_PATH and "\0" not in text
    except UnicodeError:
        return False


def read(path: str | Path, *, tail_bytes: int = TAIL_BYTES) -> FileText:
    """The end of a file ("-" is standard input). Raises InputError with one line."""
    if str(path) == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed; name a file")
        data, cut = _rolling(sys.stdin.buffer, tail_bytes)
        return decode(data, "standard input", cut=cut)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError) as fault:
        raise InputError(f"{path}: cannot be read: {_why(fault)}") from None
    mode = os.fstat(handle).st_mode
    if stat.S_ISDIR(mode) or stat.S_ISFIFO(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise InputError(f"{path} is a folder; name the file in it that the agent wrote")
        raise InputError(f"{path} is a pipe; send it to standard input and write -")
    with os.fdopen(handle, "rb") as file:
        try:
            return _tail(file, str(path), mode, tail_bytes)
        except OSError as fault:
            raise InputError(f"{path}: cannot be read: {_why(fault)}") from None


def _tail(file: BinaryIO, path: str, mode: int, tail_bytes: int) -> FileText:
    if not stat.S_ISREG(mode):
        data, cut = _rolling(file, tail_bytes, _DEVICE_BYTES)
        return decode(data, path, cut=cut)
    size = os.fstat(file.fileno()).st_size
    start = max(0, size - tail_bytes)
    first_line = 1
    if start > _COUNTED_BYTES:
        raise InputError(f"{path}: larger than {_COUNTED_BYTES >> 30} GB; pass its end: tail -c 8M")
    if start:
        for offset in range(0, start, _CHUNK):
            file.seek(offset)
            first_line += file.read(min(_CHUNK, start - offset)).count(b"\n")
    file.seek(start)
    return decode(file.read(tail_bytes), path, cut=start > 0, first_line=first_line)


def _rolling(file: BinaryIO, tail_bytes: int, max_bytes: int | None = None) -> tuple[bytes, bool]:
    """The end of input without a size, and whether there was more before it. Raises InputError if
    it exceeds `max_bytes`: a device may have no end."""
    chunks: deque[bytes] = deque()
    size = dropped = 0
    while chunk := file.read(_CHUNK):
        chunks.append(chunk)
        size += len(chunk)
        if max_bytes is not None and size + dropped > max_bytes:
            raise InputError(f"a device with more than {max_bytes >> 20} MB is not read")
        while size - len(chunks[0]) >= tail_bytes:
            first = chunks.popleft()
            size, dropped = size - len(first), dropped + len(first)
    data = b"".join(chunks)
    return data[-tail_bytes:], dropped > 0 or len(data) > tail_bytes


def decode(data: bytes, name: str, *, cut: bool = False, first_line: int = 1) -> FileText:
    """Bytes as text; nothing is refused, and anomalies are noted."""
    notes = []
    if cut:
        notes.append(f"{name}: only its last {len(data) >> 20} MB were read")
        newline = data.find(b"\n")
        if 0 <= newline < len(data) - 1:
            data, first_line = data[newline + 1 :], first_line + 1
        else:
            notes.append(f"{name}: one line is longer than that; its beginning was not read")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", "replace")
    else:
        text = data.decode("utf-8", "replace")
    if not data.strip():
        notes.append(f"{name} is empty, so nothing says why it stopped")
    elif b"\0" in data[:8192] and "\0" in text[:8192]:
        notes.append(f"{name} looks like binary data, not like an agent's output")
    elif "\ufffd" in text:
        notes.append(f"{name}: some bytes are not UTF-8; they were skipped")
    return FileText(text.replace("\r\n", "\n").replace("\r", "\n"), first_line, tuple(notes))


def _why(fault: Exception) -> str:
    return (fault.strerror or str(fault)) if isinstance(fault, OSError) else str(fault)
