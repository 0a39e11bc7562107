"""Opens the file that holds the runs: private, migrated to this version's schema, or refused.

It holds the truth, so it is never thrown away and never repaired behind the user's back.
"""

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar

from msgspec import convert

from segue.errors import StateError
from segue.runs.store.coding import text, unpack
from segue.system.files.sqlite import Damaged, Database, Place, raise_if_ours

T = TypeVar("T")

MIGRATIONS = os.path.join(os.path.dirname(__file__), "migrations")
_JSON = ("data", "decisions", "reading", "stop")
_BOOLEAN = ("progressed",)
_NAME = re.compile(r"([0-9]{4})_\w+\.sql")


class RunsFile(Database):
    """An open file. Raises StateError if it cannot be used."""

    migrations: Place = MIGRATIONS

    def __init__(self, place: Place) -> None:
        self._steps = _steps(self.migrations)
        self.newest = max(self._steps)
        path = os.fspath(place)
        self._refuse_newer(path, _version_of(path))
        try:
            super().__init__(path)
        except Damaged as fault:
            with suppress(AttributeError):
                self.db.close()
            raise damaged(path, str(fault)) from None
        except BaseException:
            with suppress(AttributeError):
                self.db.close()
            raise

    def prepare(self) -> None:
        # After a power cut, a decision must be known before it is carried out.
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute("PRAGMA secure_delete = ON")  # deleted data must be gone from the file
        version = self._version()
        self._refuse_newer(self.path, version)
        if version < self.newest:
            self._refuse_strangers()
            self.use_wal()
            self._migrate()
            if version:
                self.drop_traces()
        self.db.execute("PRAGMA foreign_keys = ON")

    def _migrate(self) -> None:
        """Migrates in one transaction: if the process is killed in it, the old version stays
        whole."""
        with self.write():
            version = self._version()  # another process may have been faster
            self._refuse_newer(self.path, version)
            self._refuse_strangers()
            from segue.runs.store import redacting

            redacting.register(self.db)
            for number in range(version + 1, self.newest + 1):
                with open(self._steps[number], encoding="utf-8") as script:
                    for statement in statements(script):
                        self.db.execute(statement)
                self.db.execute(f"PRAGMA user_version = {number}")

    def drop_traces(self) -> None:
        """Empties SQLite's write-ahead log, which contains earlier versions of rows. Another
        process that is reading prevents this; the log is then emptied when the last process
        closes the file."""
        with suppress(sqlite3.OperationalError):
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _version(self) -> int:
        (version,) = self.db.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _refuse_strangers(self) -> None:
        (tables,) = self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        version = self._version()  # after the tables: another segue may just have created them
        if version < 0 or (version == 0 and tables):
            raise Damaged("another program's database")

    def _refuse_newer(self, path: str, version: int) -> None:
        if version > self.newest:
            raise StateError(
                f"{path}: written by a newer segue (schema {version}, this one supports"
                f" {self.newest});"
                " update segue, or use another folder (SEGUE_HOME); the file was not changed"
            )

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turns SQLite's errors into one line that says what to do."""
        try:
            yield
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # our own mistake, not a damaged file
        except sqlite3.DatabaseError as fault:
            raise_if_ours(fault, self.path)
            raise damaged(self.path, str(fault)) from None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Runs one exclusive transaction."""
        with self.guarded(), self.write():
            yield

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """All rows of a query."""
        with self.guarded():
            return self.db.execute(sql, values).fetchall()

    def decode_row(self, row: Sequence[Any], names: Sequence[str], kind: type[T]) -> T:
        """Decodes a row into its type."""
        try:
            return convert({n: _value(n, v) for n, v in zip(names, row, strict=True)}, kind)
        except ValueError as fault:
            raise self.unreadable(f"a row of {text(row[0])}", fault) from None

    def read(self, data: str | bytes, kind: type[T], what: str) -> T:
        """Decodes a cell into its type."""
        try:
            return unpack(data, kind)
        except ValueError as fault:
            raise self.unreadable(what, fault) from None

    def unreadable(self, what: str, fault: Exception) -> StateError:
        """The error for something that cannot be read."""
        return StateError(
            f"{self.path}: {what} cannot be read ({fault}): a newer segue wrote it, or it is"
            " damaged; update segue"
        )


def damaged(path: str, why: str) -> StateError:
    """The error message for a damaged file."""
    from shlex import quote

    # With its logs: a new file must not find them.
    aside = quote(os.path.join(os.path.dirname(path), "damaged"))
    return StateError(
        f"{path}: damaged ({why}); it holds your runs, so segue leaves it as it is: put back a"
        f" copy, or move it aside and start afresh: `mkdir {aside} && mv {quote(path)}* {aside}`"
    )


def statements(script: Iterable[str]) -> Iterator[str]:
    """Splits a script into statements: SQLite's own way of running a script ends the transaction
    first."""
    statement = ""
    for line in script:
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def _steps(folder: Place) -> dict[int, str]:
    matches = (_NAME.fullmatch(name) for name in os.listdir(folder))
    steps = {int(match[1]): os.path.join(folder, match[0]) for match in matches if match}
    if not steps or sorted(steps) != list(range(1, len(steps) + 1)):
        raise StateError(f"{folder}: migrations are missing; reinstall segue")
    return steps


def _version_of(path: str) -> int:
    """A file's schema version, read without changing a byte of the file or its log; 0 if it has
    none. Opening it for writing would eventually move its log into it."""
    # Only through SQLite: closing a file releases all locks that this process has on it.
    name = os.path.abspath(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    how = "mode=ro" if os.path.exists(path + "-wal") else "mode=ro&immutable=1"
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file://{name}?{how}", uri=True)) as db:
        (version,) = db.execute("PRAGMA user_version").fetchone()
        return int(version)
    return 0


def _value(name: str, value: Any) -> Any:
    if name in _BOOLEAN:
        return bool(value)
    return unpack(value, Any) if name in _JSON else text(value)
