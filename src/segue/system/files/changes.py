"""Signals that one of a few files grew or was created, through a file descriptor for select.

Linux uses inotify. Where inotify is not available, `fileno` is None, and the caller polls every
POLL_S instead. Nothing depends on an event; it only makes it fast.
"""

import ctypes
import errno
import os
import struct
import sys
from typing import Any

POLL_S = 0.05
"""How often to check files without events."""

_MODIFY, _ATTRIB, _CLOSE_WRITE = 0x2, 0x4, 0x8
_MOVED_TO, _CREATE, _DELETE_SELF, _MOVE_SELF = 0x80, 0x100, 0x400, 0x800
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_FILE = _MODIFY | _ATTRIB | _CLOSE_WRITE | _DELETE_SELF | _MOVE_SELF
_FOLDER = _CREATE | _MOVED_TO
_HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_BUFFER_BYTES = 64 << 10
_ABSENT = {errno.ENOENT, errno.ENOTDIR}


class Notifier:
    """Watches files by name, including files that do not exist yet."""

    def __init__(self) -> None:
        self._files: dict[int, str] = {}  # by watch descriptor
        self._folders: dict[int, str] = {}
        self._watched: set[str] = set()
        self._handle: int | None = None
        self._libc: Any = None
        if sys.platform == "linux":
            self._open()

    def fileno(self) -> int | None:
        """For select: ready once there is something to drain. None: check every POLL_S."""
        return self._handle

    def watch(self, path: str | os.PathLike[str]) -> None:
        """Reports this file from now on. Earlier changes are not reported, so check once
        afterwards."""
        name = os.path.abspath(path)
        self._watched.add(name)
        if self._handle is not None:
            # The folder first: a file created in between is then seen by one watch or the other.
            self._add(os.path.dirname(name), _FOLDER, self._folders)
            self._add(name, _FILE, self._files)

    def drain(self) -> set[str]:
        """The files reported since the last call; never blocks."""
        changed: set[str] = set()
        while self._handle is not None:
            try:
                data = os.read(self._handle, _BUFFER_BYTES)
            except BlockingIOError:
                break
            except OSError:
                self.close()
                return set(self._watched)
            self._take(data, changed)
            if len(data) < _BUFFER_BYTES // 2:
                break  # that was everything; another call would only confirm it
        return changed

    def close(self) -> None:
        """Releases the descriptor; `fileno` is None from then on."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _open(self) -> None:
        try:
            self._libc = ctypes.CDLL(None, use_errno=True)
            handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, AttributeError):
            return
        self._handle = handle if handle >= 0 else None

    def _add(self, path: str, mask: int, known: dict[int, str]) -> None:
        if self._handle is None:
            return
        number = self._libc.inotify_add_watch(self._handle, os.fsencode(path), mask)
        if number >= 0:
            known[number] = path
        elif known is self._folders or ctypes.get_errno() not in _ABSENT:
            # too many watches, or no such folder: polling is better than half of the events
            self.close()

    def _take(self, data: bytes, changed: set[str]) -> None:
        at = 0
        while at + _HEAD.size <= len(data):
            number, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            if mask & _OVERFLOW:
                changed |= self._watched
            elif number in self._folders:
                name = os.fsdecode(data[at - length : at].rstrip(b"\0"))
                path = os.path.join(self._folders[number], name)
                if path in self._watched:
                    changed.add(path)
                    self._add(path, _FILE, self._files)
            elif number in self._files:
                changed.add(self._files[number])
            if mask & _IGNORED:
                self._files.pop(number, None)
                self._folders.pop(number, None)
