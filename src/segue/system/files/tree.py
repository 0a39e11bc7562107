"""The state of a folder: whether it has changed, and which files exist. For work outside git,
and for files that an agent says it wrote."""

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator

from segue.core.handoffs.checkpoint import FileChanged

MAX_FILES = 100_000
MAX_S = 5.0
_HASH_BYTES = 256 << 20  # larger files are not read
_CHUNK_BYTES = 1 << 20
_WAIT_EVERY = 1_000
_POINTER_BYTES = 64 << 10

IGNORED = frozenset(
    {".git", ".hg", ".svn", ".jj", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".cache", ".gradle"}
    | {".next", ".nuxt", ".turbo", ".parcel-cache", ".idea", ".DS_Store", "bower_components"}
)
"""Created by tools, not by the work."""


def digest(folder: str, *, max_files: int = MAX_FILES, max_s: float = MAX_S) -> str:
    """A digest that changes if any file below the folder appears, disappears, or gets another size
    or time. Only the first `max_files` count, by name. "" if it takes too long or is not a folder.
    Links are not followed."""
    until = time.monotonic() + max_s
    found = hashlib.blake2b(digest_size=16)
    try:
        os.scandir(folder).close()
    except (OSError, ValueError):
        return ""
    for number, (name, size, changed) in enumerate(_files(folder)):
        if number >= max_files:
            break
        found.update(b"%b\0%d\0%d\0" % (name, size, changed))
        if number % _WAIT_EVERY == 0 and time.monotonic() > until:
            return ""
    return found.hexdigest()


def _files(folder: str) -> Iterator[tuple[bytes, int, int]]:
    """Path, size and time, always in the same order."""
    base = os.fsencode(folder)
    open_ = [b""]
    while open_:
        below = open_.pop()
        try:
            with os.scandir(os.path.join(base, below)) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        folders = []
        for entry in listed:
            if os.fsdecode(entry.name) in IGNORED:
                continue
            path = os.path.join(below, entry.name)
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                    yield path + b"/", 0, 0  # its time changes with what is ignored in it
                    continue
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone meanwhile
            yield path, info.st_size, info.st_mtime_ns
        open_ += reversed(folders)


def changed_since(
    folder: str, at: float, *, max_files: int = MAX_FILES, max_s: float = MAX_S
) -> list[str]:
    """The files below it that were written after a time, sorted by name; as many as were found
    before the deadline."""
    until, found = time.monotonic() + max_s, []
    for number, (path, _, changed_ns) in enumerate(_files(folder)):
        if number >= max_files or (number % _WAIT_EVERY == 0 and time.monotonic() > until):
            break
        if changed_ns > at * 1e9:
            found.append(os.fsdecode(path))
    return found


def lost_repository(cwd: str) -> str | None:
    """Where the `.git` file of the folder's worktree points, if nothing exists there; None for any
    other folder."""
    here = os.path.realpath(cwd)
    while not os.path.lexists(place := os.path.join(here, ".git")):
        if here == (here := os.path.dirname(here)):
            return None
    if not is_plain(place, _POINTER_BYTES):
        return None
    try:
        with open(place, encoding="utf-8", errors="surrogateescape") as file:
            first = file.readline().strip()
    except OSError:
        return None
    leads = first.removeprefix("gitdir:").strip()
    if leads == first or not leads or "\0" in leads:
        return None
    return None if os.path.isdir(os.path.join(here, leads)) else leads


def files_now(paths: Iterable[str], cwd: str) -> tuple[FileChanged, ...]:
    """The current state of these files. Anything that is not a plain file, is too large or may not
    be read has no hash."""
    return tuple(_file(path, os.path.join(cwd, path)) for path in paths)


def is_there(path: str, cwd: str) -> bool:
    """Whether a path from a text exists, relative to the folder or to the home."""
    try:
        return os.path.lexists(os.path.join(cwd, os.path.expanduser(path)))
    except (OSError, ValueError):
        return False


def is_plain(path: str, max_bytes: int) -> bool:
    """Whether it is a plain file of at most this size, following links."""
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(info.st_mode) and info.st_size <= max_bytes


def _file(name: str, path: str) -> FileChanged:
    try:
        exists = os.path.lexists(path)
    except (OSError, ValueError):  # the path contains a NUL
        exists = False
    return FileChanged(name, sha256(path) if exists else None, exists)


def sha256(path: str) -> str | None:
    """The hash of a plain file; None if it cannot be computed. Never blocks."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError):
        return None
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_size > _HASH_BYTES:
            return None
        found = hashlib.sha256()
        left = _HASH_BYTES  # it may be growing
        while left > 0 and (data := os.read(handle, _CHUNK_BYTES)):
            found.update(data)
            left -= len(data)
        return found.hexdigest()
    except OSError:
        return None
    finally:
        os.close(handle)
