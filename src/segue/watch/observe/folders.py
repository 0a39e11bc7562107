"""File events for a few single folders, without those below: which names were written, created,
renamed or removed. A selector can wait for them, so waiting costs nothing.

Linux only. Elsewhere `fileno` is None, and if the system has no more watches, `add` says so: the
caller must then look into the folders from time to time.
"""

import ctypes
import os
import struct
import sys
from typing import Any

_MASK = 0x2 | 0x8 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400  # modify, close_write, move, create, delete
_ONLY_FOLDERS = 0x01000000
_OVERFLOW, _IGNORED, _MOVED_SELF = 0x4000, 0x8000, 0x800
_HEAD = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_BUFFER_BYTES = 256 << 10


class Folders:
    """Watches folders; one that does not exist yet must be added again."""

    def __init__(self) -> None:
        self._handle: int | None = None
        self._libc: Any = None
        self._paths: dict[int, str] = {}
        if sys.platform == "linux":
            try:
                self._libc = ctypes.CDLL(None, use_errno=True)
                handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
            except (OSError, AttributeError):
                return
            self._handle = handle if handle >= 0 else None

    def fileno(self) -> int | None:
        """For a selector: ready once there is something to drain."""
        return self._handle

    def has(self, folder: str) -> bool:
        """Whether it is watched."""
        return folder in self._paths.values()

    def add(self, folder: str) -> bool:
        """Watches it from now on; adding it twice is harmless. Returns whether that works."""
        if self._handle is None:
            return False
        mask = _MASK | _MOVED_SELF | _ONLY_FOLDERS
        number = self._libc.inotify_add_watch(self._handle, os.fsencode(folder), mask)
        if number >= 0:
            self._paths[number] = folder
        return bool(number >= 0)

    def drain(self) -> tuple[set[str], bool]:
        """The paths with events since the last call, and whether some events are missing: then
        look at everything. Never waits."""
        paths: set[str] = set()
        lost = False
        while self._handle is not None:
            try:
                data = os.read(self._handle, _BUFFER_BYTES)
            except OSError:  # nothing more
                break
            lost = self._take(data, paths) or lost
            if len(data) < _BUFFER_BYTES // 2:
                break  # that was everything; another call would only confirm it
        return paths, lost

    def close(self) -> None:
        """Closes the descriptor."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._paths.clear()

    def _take(self, data: bytes, changed: set[str]) -> bool:
        at, lost = 0, False
        while at + _HEAD.size <= len(data):
            number, mask, _, length = _HEAD.unpack_from(data, at)
            at += _HEAD.size + length
            lost = lost or bool(mask & _OVERFLOW)
            folder = self._paths.get(number)
            if folder is not None and length:
                name = os.fsdecode(data[at - length : at].rstrip(b"\0"))
                changed.add(os.path.join(folder, name))
            if mask & _MOVED_SELF:  # another folder may have its name now
                self._libc.inotify_rm_watch(self._handle, number)
            if mask & (_IGNORED | _MOVED_SELF):
                self._paths.pop(number, None)
        return lost
