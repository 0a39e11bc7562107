"""segue's own SQLite files: private, shared by several processes, and set aside when broken."""

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from segue.errors import StateError

BUSY_S = 30.0
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NO_DAMAGE = (
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
)
"""Failures of the machine. Everything else is damage, including a missing table or invalid text."""

Place = str | os.PathLike[str]
Identity = tuple[int, int]
"""Device and inode."""


class Damaged(Exception):  # noqa: N818 - told to the user as a note, and mended
    """The file is not segue's database, or it is broken."""

    identity: Identity | None = None  # which file: another process may have made a new one since


class Database:
    """An open database file; `prepare` creates its tables. Raises StateError with one line if the
    machine prevents it, `Damaged` if the file is broken."""

    def __init__(self, place: Place) -> None:
        self.path = os.fspath(place)
        folder = os.path.dirname(self.path)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
        except OSError as fault:
            raise _no_state(folder, fault.strerror or str(fault)) from None
        self.identity = _identity(self.path)
        try:
            self._open()
        except Damaged as fault:
            fault.identity = self.identity or _identity(self.path)
            raise
        self.identity = self.identity or _identity(self.path)

    def _open(self) -> None:
        if os.path.isdir(self.path):
            raise Damaged("a folder")
        try:
            self.db = sqlite3.connect(self.path, timeout=BUSY_S, isolation_level=None)
            _make_private(self.path)
            self.db.execute("PRAGMA synchronous = NORMAL")
            self.prepare()
        except sqlite3.DatabaseError as fault:
            raise_if_ours(fault, self.path)
            raise Damaged(str(fault)) from None
        except UnicodeDecodeError:  # SQLite quotes the broken bytes, and Python cannot decode them
            raise Damaged("malformed database schema") from None

    def prepare(self) -> None:
        """Creates the tables if they do not exist."""
        raise NotImplementedError

    def use_wal(self) -> None:
        """Switches to SQLite's write-ahead log. Waits, because SQLite itself does not if another
        process is doing the same."""
        until = time.monotonic() + BUSY_S
        while True:
            try:
                self.db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as fault:
                if _code(fault) not in _BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def close(self) -> None:
        """Closes the file."""
        self.db.close()

    @contextmanager
    def write(self) -> Iterator[None]:
        """A transaction that excludes all other processes."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:  # a full disk has ended it already
                self.db.execute("ROLLBACK")
            raise


def is_damage(fault: sqlite3.Error) -> bool:
    """Whether the file itself is broken. A lock of another writer, missing permission and a full or
    failing disk leave it intact."""
    return _code(fault) not in (*_BUSY, *_NO_DAMAGE)


def raise_if_ours(fault: sqlite3.Error, place: Place) -> None:
    """Raises StateError unless the file is damaged."""
    if _code(fault) in _BUSY:
        raise StateError(f"{place}: another segue is writing; try again") from None
    if not is_damage(fault):
        raise _no_state(place, str(fault)) from None


def move_aside(place: Place, identity: Identity | None) -> str:
    """Moves a broken file aside, returns its new name, and makes room for a new file. Does nothing
    and returns "" if the file is no longer the same: another process was faster. Raises StateError
    if the file cannot be moved."""
    path = os.fspath(place)
    aside = f"{path}.damaged-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
    try:
        with _alone(os.path.dirname(path)):
            if _identity(path) != identity or identity is None:
                return ""
            # The log first: a new database must not find the log of an old one.
            for ending in ("-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.unlink(path + ending)
            os.replace(path, aside)
    except FileNotFoundError:
        return ""
    except OSError as fault:
        raise _no_state(path, fault.strerror or str(fault)) from None
    return os.path.basename(aside)


@contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Runs in one process at a time, if the file system supports locks."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _identity(path: str) -> Identity | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def _make_private(path: str) -> None:
    """Makes a file readable only for its user, even if it existed before; SQLite creates its logs
    the same way."""
    for file in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(OSError):  # missing, or another user's
            if stat.S_IMODE(os.stat(file).st_mode) & 0o077:
                os.chmod(file, 0o600)


def _no_state(place: Place, why: str) -> StateError:
    return StateError(
        f"{place}: segue cannot keep its state here: {why}; to keep it elsewhere, set SEGUE_HOME"
    )


def _code(fault: sqlite3.Error) -> int:
    """SQLite's own code, without the extended part; 0 if Python could not read a value."""
    return getattr(fault, "sqlite_errorcode", 0) & 0xFF
