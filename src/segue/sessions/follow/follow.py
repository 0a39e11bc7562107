"""Follows many live files of lines at once, as they are appended to, truncated, replaced, moved or
removed.

File system events say where to look, and a slow sweep over all files finds what they missed. Only a
stat and the bytes themselves count, so an event may come late, twice or never. Files are identified
by device and inode, so two names of one file are read once, and a renamed file is still the same
file. Only regular files are opened, and none stays open.

All in one file: one state machine.
"""

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from segue.sessions.follow import cursor as cursors
from segue.sessions.follow.cursor import Cursor, File, FileStamp, Identity, Names
from segue.sessions.follow.file_events import TREES, FolderWatch
from segue.sessions.follow.portion import cursor_at, is_at, is_same, opened, read_portion

BATCH_BYTES = 4 << 20
"""How much one step reads at most, so that a file of any size needs little memory."""

GRACE_S = 0.25
"""How long a missing file may still turn up under another name, or another one under its name."""
LOOK_S = 0.25
"""How often to look for missing roots, and to check the few files that send no events."""
WARM_S, WARM_FILES = 600.0, 256
"""A file that grew without an event counts as one of these few, for this long and up to this
many."""
SLICE_S = 0.005
"""How long a sweep may keep events waiting."""
HURRY_S, SWEEP_SHARE = 0.5, 25
"""Without events: the pause between sweeps, and how many times longer than a sweep it must be."""

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


Kind = Literal["found", "grown", "restarted", "moved", "gone", "unreadable"]


class FileChange(Struct, frozen=True):
    """One thing that happened to one file (or, if `unreadable`, to a folder).

    found       it is followed from now on; its lines come as `grown`
    grown       `lines` were added (without their newlines), the last one ends at `offset`;
                `skipped` more were too long to be kept
    restarted   it was "truncated", "replaced" or "rewritten" (`why`): its former lines are void,
                and those that it has now follow from the beginning
    moved       its name is now `path` and no longer `was`; its lines continue where they were
    gone        it no longer exists
    unreadable  it cannot be read, and `why`; said once, and it continues by itself when it can
    """

    path: str
    kind: Kind
    lines: list[bytes] = []
    offset: int = 0
    skipped: int = 0
    why: str = ""
    was: str = ""


class FileFollower:
    """Follows all files under `roots` for which `wants` returns True, including those that do not
    exist yet. A root is a folder, a file (which is followed whatever `wants` says), or does not
    exist yet.

    Files that exist at the first step are read from their end, or from the beginning if
    `from_start`; later ones always from the beginning. Every complete line is returned once. A file
    that moves is still followed under its new name, wanted or not, and what was not read yet is
    returned under that name.

    `poll_s` is the pause between two sweeps while events work. Without events (or if `events` is
    False) it is half a second, or as much longer as it takes to keep sweeps below 4% of a CPU.

    Iterating yields batches of changes until `close` is called; `step` returns one batch. Only one
    thread at a time may step, and any thread may close.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        wants: Callable[[str], bool],
        *,
        poll_s: float = 30.0,
        from_start: bool = False,
        events: bool = True,
        clock: Callable[[], float] = time.monotonic,
        line_bytes: int = cursors.LINE_BYTES,
    ) -> None:
        # FSEvents reports real paths only.
        absolute = os.path.realpath if TREES else os.path.abspath
        self._roots = tuple(dict.fromkeys(absolute(root) for root in roots))
        self._wants, self._clock, self._poll_s = wants, clock, poll_s
        self._from_start, self._line_bytes = from_start, line_bytes
        self._stop, self._lock = threading.Event(), threading.RLock()
        self._watch = FolderWatch(self._stop, clock, wanted=events)
        self._names = Names()
        self._places: dict[Identity, str] = {}
        self._inodes: dict[str, dict[int, str]] = {}
        self._settling: set[str] = set()
        self._denied: set[str] = set()
        self._due: dict[str, float] = {}
        self._to_read: dict[Identity, bool] = {}
        self._sweep: Iterator[None] | None = None
        self._sweep_from = self._swept_from = self._swept_at = float("-inf")
        self._sweep_s = 0.0
        self._started = False
        self._batch: list[FileChange] = []

    @property
    def degraded(self) -> str:
        """Why there are no events although they were requested, in one line; empty if all is
        well."""
        return self._watch.degraded

    def __enter__(self) -> "FileFollower":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[list[FileChange]]:
        while not self._stop.is_set():
            if batch := self.step(1.0):
                yield batch

    def close(self) -> None:
        """Ends iteration and watching; from another thread, within some hundredths of a second."""
        self._stop.set()
        with self._lock:
            self._watch.close()

    def step(self, timeout_s: float = 0.0) -> list[FileChange]:
        """The next changes. Waits at most this long, and may return an empty list earlier."""
        with self._lock:
            if self._stop.is_set():
                return []
            changed = self._watch.wait(min(timeout_s, self._idle_s())) if self._started else set()
            self._inodes.clear()
            # Unknown names first: a renamed file is found there before it is missed here.
            for path in sorted(changed, key=lambda path: (self._names.get(path) is not None, path)):
                self._visit(path, is_told=True)
            self._look_at_due()
            self._go_on_sweeping()
            met: dict[Identity, str] = {}
            for path in self._watch.renew():
                self._visit(path, met, is_told=True)
            self._read()
            batch, self._batch = self._batch, []
            return batch

    # --- When to look -------------------------------------------------------------------------

    def _idle_s(self) -> float:
        if self._to_read or self._sweep:
            return 0.0
        next_at = min((self._swept_at + self._pause_s(), *self._due.values()))
        return max(0.0, next_at - self._clock())

    def _pause_s(self) -> float:
        if self._watch.is_on:
            return self._poll_s
        return min(self._poll_s, max(HURRY_S, SWEEP_SHARE * self._sweep_s))

    def _look_at_due(self) -> None:
        now = self._clock()
        for path in [path for path, due in self._due.items() if due <= now]:
            self._due.pop(path, None)
            file = self._names.get(path)
            self._visit(path, is_told=path in self._roots and file is None)
            if file and now < file.warm_until:
                self._due.setdefault(path, now + LOOK_S)

    def _go_on_sweeping(self) -> None:
        began = self._clock()
        if self._sweep is None:
            if began < self._swept_at + self._pause_s():
                return
            self._sweep, self._sweep_from, self._sweep_s = self._everything(), began, 0.0
        for _ in self._sweep:
            if self._started and self._clock() >= began + SLICE_S:
                break
        else:
            self._sweep, self._started = None, True
            self._swept_from, self._swept_at = self._sweep_from, self._clock()
        self._sweep_s += self._clock() - began

    def _everything(self) -> Iterator[None]:
        met: dict[Identity, str] = {}
        for root in self._roots:
            if os.path.isdir(root):
                yield from self._walk(root, met)
            else:
                self._visit(root)
        self._places = dict(met)
        for folder in self._names.folders.keys() - met.values():
            if any((folder + os.sep).startswith(closed + os.sep) for closed in self._denied):
                # this was reported for the folder, and need not be repeated for everything in it
                continue
            if not os.path.isdir(folder):
                self._absent(folder)
            for name in [*self._names.folders[folder]]:
                self._visit(os.path.join(folder, name))
            if not self._names.folders[folder]:
                del self._names.folders[folder]
            yield

    def _walk(self, top: str, met: dict[Identity, str], *, is_told: bool = False) -> Iterator[None]:
        """Visits all files in a folder and below; each folder is one step, and visited once."""
        folders = [top]
        while folders:
            folder = folders.pop()
            try:
                identity = FileStamp.of(os.stat(folder)).identity
                place = self._places.setdefault(identity, folder)
                if identity in met or (place != folder and _is_folder_at(place, identity)):
                    continue  # already reached by another path: a link, perhaps a circular one
                self._places[identity] = folder
                met[identity] = folder
                with os.scandir(folder) as listing:
                    entries = [*listing]
            except OSError as fault:
                self._failed(folder, fault)
                continue
            self._denied.discard(folder)
            if not TREES or folder in self._roots:
                self._watch.add(folder, identity)
            names = self._names.folders.setdefault(folder, {})
            missing = {*names}
            for entry in entries:
                file = names.get(entry.name)
                if file and _is_quiet(entry, file):
                    missing.remove(entry.name)  # like nearly all files, nearly always
                elif _is_folder(entry):
                    folders.append(entry.path)
                elif file or self._is_wanted(entry.path):
                    missing.discard(entry.name)
                    self._visit(entry.path, is_told=is_told)
            for name in missing:
                self._visit(os.path.join(folder, name), is_told=is_told)
            yield

    def _visit(
        self, path: str, met: dict[Identity, str] | None = None, *, is_told: bool = False
    ) -> None:
        """Checks what exists under a name; `is_told` if an event reported it."""
        file = self._names.get(path)
        if is_told and file:
            file.warm_until = 0.0
            self._due.pop(path, None)
        try:
            found = os.stat(path)
        except OSError as fault:
            if fault.errno in _ABSENT or file or self._is_wanted(path):
                self._failed(path, fault)
            return
        if stat.S_ISREG(found.st_mode):
            self._look(path, FileStamp.of(found), is_told=is_told)
        elif stat.S_ISDIR(found.st_mode):
            self._missing(path)
            for _ in self._walk(path, {} if met is None else met, is_told=is_told):
                pass
        else:
            self._absent(path)

    # --- What exists --------------------------------------------------------------------------

    def _look(self, path: str, stamp: FileStamp, *, is_told: bool) -> None:
        file = self._names.get(path)
        if file is None or file.cursor.identity != stamp.identity:
            self._settling.add(path)
            file = self._identify(path, stamp)
            self._settling.discard(path)
            if file is None:
                return
        if path == file.path:
            file.missing_at = None
        if is_told or not file.cursor.is_quiet(stamp):
            self._to_read[stamp.identity] = is_told or not self._started

    def _identify(self, path: str, stamp: FileStamp) -> File | None:
        """The file to which this name belongs from now on; None if it is not wanted."""
        former = self._names.get(path)
        is_lost = former is not None and self._displaced(path, former)
        file = self._names.files.get(stamp.identity)
        has_left = file is not None and not is_at(file.path, stamp.identity)
        is_mine = file is not None and (not has_left or is_same(path, file.cursor))
        is_wanted = self._is_wanted(path)
        if is_lost and (is_mine or not is_wanted):
            self._say(path, "gone")
        if file and is_mine:
            if has_left:
                self._move(file, path)
            elif is_wanted:
                self._names.add(path, file)
            return file
        if file:
            self._names.forget(file)
            self._to_read.pop(stamp.identity, None)
            self._say(file.path, "gone")
        if not is_wanted:
            return None
        start = 0 if self._started or self._from_start else stamp.size
        new = File(path, Cursor(stamp.identity), start=start)
        self._names.add(path, new)
        if path in self._roots or os.path.islink(path):
            self._watch.add(path, stamp.identity)  # its folder's events may not cover it
        if is_lost:
            self._say(path, "restarted", why="replaced")
        else:
            self._say(path, "found")
        return new

    def _displaced(self, path: str, file: File) -> bool:
        """Handles a file that lost a name. If that was its last name, the file is either found
        under another one, or gone."""
        if path != file.path:
            self._names.drop(path)
            return False
        elsewhere = self._elsewhere(file)
        other = self._names.get(elsewhere) if elsewhere else None
        if elsewhere and other and other is not file:
            # The name belonged to another file: its current owner is settled first, unless we come
            # from there.
            if elsewhere not in self._settling:
                self._visit(elsewhere, is_told=True)
            if file.path == elsewhere:
                return False
        elif elsewhere:
            self._move(file, elsewhere)
            return False
        self._names.forget(file)
        self._to_read.pop(file.cursor.identity, None)
        return True

    def _elsewhere(self, file: File) -> str | None:
        """Looks for a file that lost its name: under the names that are known, and in the same
        folder."""
        folder = os.path.dirname(file.path)
        if folder not in self._inodes:
            try:
                with os.scandir(folder) as listing:
                    self._inodes[folder] = {entry.inode(): entry.path for entry in listing}
            except OSError:
                self._inodes[folder] = {}
        nearby = self._inodes[folder].get(file.cursor.identity[1], file.path)
        for path in (*self._names.all_of(file), nearby):
            if path != file.path and is_same(path, file.cursor):
                return path
        return None

    def _move(self, file: File, path: str) -> None:
        was = file.path
        self._names.drop(was)
        self._names.add(path, file)
        file.path, file.missing_at = path, None
        self._to_read[file.cursor.identity] = True
        self._say(path, "moved", was=was)

    def _missing(self, path: str) -> None:
        """No file has this name. If a file had it, that file is gone unless it turns up in time."""
        file, now = self._names.get(path), self._clock()
        if file is None:
            return
        if path == file.path:
            if file.missing_at is None:
                file.missing_at = now
            # If it moved, events will soon say where; otherwise a sweep finds it in the end.
            has_events = self._watch.is_on and file.warm_until <= now
            is_final = has_events or self._swept_from > file.missing_at
            if now < file.missing_at + GRACE_S or not is_final:
                self._due[path] = now + GRACE_S
                return
        if self._displaced(path, file):
            self._say(path, "gone")

    def _absent(self, path: str) -> None:
        """A path leads to nothing that can be followed."""
        self._denied.discard(path)
        self._missing(path)
        if path in self._names.folders:
            self._watch.drop(path)
            for name in self._names.below(path):
                self._missing(name)
        if path in self._roots:
            self._due[path] = self._clock() + LOOK_S

    def _failed(self, path: str, fault: OSError) -> None:
        """A path leads nowhere, or is not accessible."""
        if fault.errno in _ABSENT:
            self._absent(path)
            return
        if path not in self._denied:
            self._denied.add(path)
            self._say(path, "unreadable", why=fault.strerror or str(fault))
        if path in self._roots:
            self._due[path] = self._clock() + LOOK_S

    def _read(self) -> None:
        left = BATCH_BYTES
        while self._to_read and left > 0:
            identity = next(iter(self._to_read))
            was_reported = self._to_read.pop(identity)
            left -= self._read_file(self._names.files[identity], is_told=was_reported) + 1

    def _read_file(self, file: File, *, is_told: bool) -> int:
        identity = file.cursor.identity
        try:
            with opened(file.path) as (handle, stamp):
                if stamp.identity != identity:
                    self._due[file.path] = self._clock()  # it changed just now: check again
                    return 0
                if file.start:
                    file.cursor = cursor_at(handle, stamp, file.start, self._line_bytes)
                    file.start = 0
                before = file.cursor.offset
                portion = read_portion(handle, stamp, file.cursor, self._line_bytes)
        except OSError as fault:
            self._failed(file.path, fault)
            return 0
        self._denied.discard(file.path)
        if portion.lines or portion.skipped:
            grown = FileChange(file.path, "grown", portion.lines, portion.offset, portion.skipped)
            self._batch.append(grown)
        if portion.why:
            self._say(file.path, "restarted", why=portion.why)
        if portion.why or portion.is_full:
            self._to_read[identity] = is_told
        if not is_told and self._started and file.cursor.offset != before:
            self._warm(file)
        return portion.taken

    def _warm(self, file: File) -> None:
        """No event reported it, and perhaps none ever will, so it is checked often for a while."""
        if len(self._due) < WARM_FILES:
            now = self._clock()
            file.warm_until = now + WARM_S
            self._due.setdefault(file.path, now + LOOK_S)

    def _is_wanted(self, path: str) -> bool:
        return path in self._roots or self._wants(path)

    def _say(self, path: str, kind: Kind, *, why: str = "", was: str = "") -> None:
        self._batch.append(FileChange(path, kind, why=why, was=was))


def _is_folder_at(path: str, identity: Identity) -> bool:
    try:
        return FileStamp.of(os.stat(path)).identity == identity
    except OSError:
        return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_quiet(entry: os.DirEntry[str], file: File) -> bool:
    try:
        return file.cursor.is_quiet(FileStamp.of(entry.stat()))
    except OSError:
        return False
