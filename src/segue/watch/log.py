"""The watch log: what the daemon saw of sessions and did about them, one note after the other.

Notes are numbered, never change, and are deleted only by age. Notes that a handoff or a resume
needs after a crash are on disk before `append` returns; all others survive a killed process, and
can lose only the last moments if the machine itself goes down.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct

from segue.errors import StateError
from segue.runs.store.coding import cell, pack, text, unpack
from segue.system.files.sqlite import Damaged, Database, Place, move_aside, raise_if_ours

LOG_NAME = "watch.db"
ARRIVAL = "arrival"  # the kind of notes on what a session that took over did again
SCHEMA_VERSION = 1
LASTING = ("handoff", "wake", "takeup")
"""Kinds whose notes must never be lost."""

_TRIES = 3
_TABLES = (
    """CREATE TABLE note (
      seq INTEGER PRIMARY KEY AUTOINCREMENT,
      at REAL NOT NULL,
      kind TEXT NOT NULL,
      agent TEXT NOT NULL,
      session_id TEXT NOT NULL,
      project TEXT NOT NULL,
      data TEXT NOT NULL
    )""",
    "CREATE INDEX note_of_session ON note (session_id, agent, seq) WHERE session_id <> ''",
    "CREATE INDEX note_by_kind ON note (kind, at)",
    "CREATE INDEX note_kind_seq ON note (kind, seq)",
)
_COLUMNS = "seq, at, kind, agent, session_id, project, data"


class Note(Struct, frozen=True, kw_only=True):
    """One line of the log. `seq` only grows; the content of `data` depends on the kind."""

    seq: int
    at: float
    kind: str
    agent: str = ""
    session_id: str = ""
    project: str = ""
    data: dict[str, Any] = {}


class _File(Database):
    """One thread's connection."""

    def prepare(self) -> None:
        version = self._version()
        if version == SCHEMA_VERSION:
            return
        self._refuse(version)
        self.use_wal()
        with self.write():
            version = self._version()  # another process may have been faster
            self._refuse(version)
            if version == 0:
                for statement in _TABLES:
                    self.db.execute(statement)
                self.db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _version(self) -> int:
        (version,) = self.db.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _refuse(self, version: int) -> None:
        if version > SCHEMA_VERSION:
            raise StateError(
                f"{self.path}: written by a newer segue (schema {version}, this one knows"
                f" {SCHEMA_VERSION}); update segue, or use another folder (SEGUE_HOME);"
                " the file was not changed"
            )
        (tables,) = self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        # Checked again: another segue may just have created them.
        if version < 0 or (tables and self._version() == 0):
            raise Damaged("another program's database")


class Log:
    """An open log. Any thread may use it, and other processes may read and write at the same
    time. Raises StateError with one line if the machine prevents that. Use `open_log`, which
    also replaces a damaged log."""

    def __init__(self, place: Place) -> None:
        self.path = os.fspath(place)
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._open: dict[int, _File] = {}
        self._file()

    def append(
        self,
        kind: str,
        *,
        at: float,
        agent: str = "",
        session_id: str = "",
        project: str = "",
        data: dict[str, Any] | None = None,
    ) -> Note:
        """Writes one note, and returns it as any reader will find it."""
        data = data or {}
        packed = pack(data)
        row = (at, *map(cell, (kind, agent, session_id, project)), packed)
        with self._guarded() as file:
            level = "FULL" if kind in LASTING else "NORMAL"
            file.db.execute(f"PRAGMA synchronous = {level}")
            seq = file.db.execute(
                "INSERT INTO note (at, kind, agent, session_id, project, data)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                row,
            ).lastrowid
        return Note(
            seq=seq or 0,
            at=at,
            kind=kind,
            agent=agent,
            session_id=session_id,
            project=project,
            data=unpack(packed, dict[str, Any]),
        )

    def since(self, seq: int, kinds: Sequence[str] = (), limit: int = 1000) -> list[Note]:
        """The first notes after that number, oldest first; of these kinds, or of all."""
        where, values = _of_kinds(kinds)
        return self._notes(f"seq > ?{where} ORDER BY seq LIMIT ?", (seq, *values, limit))

    def of(
        self, agent: str, session_id: str, kinds: Sequence[str] = (), limit: int = 1000
    ) -> list[Note]:
        """The last notes on a session, oldest first."""
        where, values = _of_kinds(kinds)
        named = (cell(session_id), cell(agent))
        clause = f"session_id = ? AND session_id <> '' AND agent = ?{where}"
        found = self._notes(f"{clause} ORDER BY seq DESC LIMIT ?", (*named, *values, limit))
        return found[::-1]

    def latest(
        self, kind: str, *, agent: str = "", session_id: str = "", project: str = ""
    ) -> Note | None:
        """The last note of a kind; of that session or project, if one is named."""
        clause, values = "kind = ?", [cell(kind)]
        for column, value in (("session_id", session_id), ("agent", agent), ("project", project)):
            if value:
                clause += f" AND {column} = ?"
                values.append(cell(value))
        if session_id:
            clause += " AND session_id <> ''"
        found = self._notes(f"{clause} ORDER BY seq DESC LIMIT 1", values)
        return found[0] if found else None

    def prune(self, kind: str, before: float) -> int:
        """Deletes older notes of a kind, and returns how many. Numbers are never reused."""
        with self._guarded() as file:
            done = file.db.execute(
                "DELETE FROM note WHERE kind = ? AND at < ?", (cell(kind), before)
            )
            return done.rowcount

    def forget(self, agent: str, sessions: Sequence[str]) -> None:
        """Deletes all notes on these sessions, and their traces in the file."""
        with self._guarded() as file:
            file.db.execute("PRAGMA secure_delete = ON")
            for session_id in sessions:
                file.db.execute(
                    "DELETE FROM note WHERE session_id = ? AND session_id <> '' AND agent = ?",
                    (cell(session_id), cell(agent)),
                )
            with suppress(sqlite3.OperationalError):  # somebody is reading: it is emptied later
                file.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def version(self) -> int:
        """The number of the last note, by any writer; 0 if there is none."""
        with self._guarded() as file:
            row = file.db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'note'").fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        """Closes the file for all threads that have used it; none may be using it now."""
        with self._lock:
            files, self._open = [*self._open.values()], {}
        for file in files:
            with suppress(sqlite3.Error):  # another thread's: it ends with that thread
                file.close()
        self._mine = threading.local()

    def _notes(self, clause: str, values: Sequence[Any]) -> list[Note]:
        with self._guarded() as file:
            rows = file.db.execute(
                f"SELECT {_COLUMNS} FROM note WHERE {clause}",  # noqa: S608 - our own words
                values,
            ).fetchall()
        return [_note(row) for row in rows]

    def _file(self) -> _File:
        """SQLite gives each thread a connection of its own."""
        found: _File | None = getattr(self._mine, "file", None)
        if found is None:
            found = self._mine.file = _File(self.path)
            alive = {thread.ident for thread in threading.enumerate()}
            with self._lock:
                self._open[threading.get_ident()] = found
                self._open = {i: f for i, f in self._open.items() if i in alive}
        return found

    @contextmanager
    def _guarded(self) -> Iterator[_File]:
        try:
            yield self._file()
        except Damaged as fault:
            raise self._damaged(str(fault)) from None
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # our own mistake, not a damaged file
        except sqlite3.DatabaseError as fault:
            raise_if_ours(fault, self.path)
            raise self._damaged(str(fault)) from None

    def _damaged(self, why: str) -> StateError:
        return StateError(
            f"{self.path}: damaged ({why}); start segue watch again: it sets the file aside"
        )


def open_log(place: Place) -> tuple[Log, str]:
    """The log, and one line to print if it was damaged: it is then kept under another name, and
    a new one is started. Raises StateError if the machine prevents that."""
    note = ""
    for _ in range(_TRIES):
        try:
            return Log(place), note
        except Damaged as fault:
            name = move_aside(place, fault.identity)
            if name:
                note = f"the watch log was damaged ({fault}); kept as {name}; a new one was started"
    raise StateError(f"{place}: the watch log is damaged repeatedly")


def _of_kinds(kinds: Sequence[str]) -> tuple[str, list[Any]]:
    if not kinds:
        return "", []
    return f" AND kind IN ({','.join('?' * len(kinds))})", [cell(kind) for kind in kinds]


def _note(row: Sequence[Any]) -> Note:
    seq, at, kind, agent, session_id, project, data = row
    try:
        read = unpack(data, dict[str, Any])
    except ValueError:  # written by a newer segue, or damaged: the note itself is still valid
        read = {}
    return Note(
        seq=seq,
        at=at,
        kind=text(kind),
        agent=text(agent),
        session_id=text(session_id),
        project=text(project),
        data=read,
    )
