"""What was read, and up to where: an SQLite file, so that the next look costs only what is new.

Two kinds of knowledge, each with the file's stamp (device, inode, size, time) it was taken at:
`look` is the end of a file, `file` + `spend` the whole of it up to an offset. A row is replaced as
a whole in one transaction, so several segue processes may write at once and any of them may be
killed: a row is what one of them saw, never a mixture.

The same reply may stand in several files (forks, resumed sessions). `key` knows who has which,
`twin` holds the rows of those that are in more than one file, and totals count one of them.

Blobs are not looked into here, and what only a changed file needs is imported when there is one:
a scan that finds nothing new must cost next to nothing.
"""

import json
import os
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from segue.errors import StateError
from segue.transcripts.find import Found, Stamp

if TYPE_CHECKING:
    from segue.core.ledger import Ledger

SCHEMA_VERSION = 1
_BUSY_S = 30.0
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
"""Faults of the machine. All else is damage: also a table that is missing, text that is none."""

_TABLES = """
CREATE TABLE IF NOT EXISTS file (
  number INTEGER PRIMARY KEY,
  path TEXT NOT NULL UNIQUE,
  home TEXT NOT NULL,
  agent TEXT NOT NULL,
  session_id TEXT NOT NULL,
  forked_from TEXT NOT NULL,
  adopted INTEGER NOT NULL, parent_rows INTEGER NOT NULL,
  device INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  offset INTEGER NOT NULL,
  print BLOB NOT NULL,
  tally BLOB NOT NULL,
  ledger BLOB NOT NULL,
  models TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS forks ON file (forked_from) WHERE forked_from <> '';
CREATE TABLE IF NOT EXISTS spend (
  file INTEGER NOT NULL,
  model TEXT NOT NULL,
  input INTEGER NOT NULL, output INTEGER NOT NULL,
  cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
  PRIMARY KEY (file, model)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS key (
  hash INTEGER NOT NULL, file INTEGER NOT NULL,
  PRIMARY KEY (hash, file)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS twin (
  hash INTEGER NOT NULL, file INTEGER NOT NULL,
  model TEXT NOT NULL, side INTEGER NOT NULL,
  input INTEGER NOT NULL, output INTEGER NOT NULL,
  cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
  PRIMARY KEY (hash, file)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS look (
  path TEXT PRIMARY KEY,
  device INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  look BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS total (homes TEXT PRIMARY KEY, totals TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS window (model TEXT PRIMARY KEY, tokens INTEGER) WITHOUT ROWID
"""
_TABLE_NAMES = ("file", "spend", "key", "twin", "look", "total", "window")

# One row of each reply counts: the main thread's, the larger, the first.
_TOTALS = """
WITH mine AS (SELECT number, path, agent FROM file WHERE home IN ({homes})),
ranked AS (
  SELECT agent, model, input, output, cache_read, cache_write,
         row_number() OVER (
           PARTITION BY hash
           ORDER BY side, input + output + cache_read + cache_write DESC, path
         ) AS place
  FROM twin JOIN mine ON mine.number = twin.file
)
SELECT agent, model, sum(input), sum(output), sum(cache_read), sum(cache_write) FROM (
  SELECT agent, model, input, output, cache_read, cache_write
  FROM spend JOIN mine ON mine.number = spend.file
  UNION ALL
  SELECT agent, model, -input, -output, -cache_read, -cache_write FROM ranked WHERE place > 1
) GROUP BY agent, model ORDER BY agent, model
"""


class Total(NamedTuple):
    """What one model was asked to do by one agent, in tokens."""

    agent: str
    model: str
    input: int
    output: int
    cache_read: int
    cache_write: int


class Counted(NamedTuple):
    """A file as far as it was counted, as the index keeps it."""

    stamp: Stamp
    offset: int
    print: bytes
    tally: bytes
    ledger: bytes
    models: list[str]
    session_id: str
    forked_from: str
    adopted: int = 0  # rows at its start that are its parent's
    parent_rows: int = 0  # how many the parent had then
    is_new: bool = True  # counted from its start: what was known before does not hold


class DamagedIndex(Exception):  # noqa: N818 - told to the user as a note, and mended
    """The file is no index, or a broken one."""


class Index:
    """An open index. Use `open_index`, which also mends."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as fault:
            raise _no_state(path.parent, fault.strerror or str(fault)) from None
        self.path = path
        if path.is_dir():
            raise DamagedIndex("a folder")
        try:
            self.db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
            _make_private(path)
            self.db.execute("PRAGMA synchronous = NORMAL")
            self._prepare()
        except sqlite3.DatabaseError as fault:
            raise_if_ours(fault, path)
            raise DamagedIndex(str(fault)) from None

    def _prepare(self) -> None:
        (version,) = self.db.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA_VERSION:
            return
        self._use_wal()
        with self.write():
            (version,) = self.db.execute("PRAGMA user_version").fetchone()
            (tables,) = self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if version == 0 and tables:
                raise DamagedIndex("another program's database")
            if version not in (0, SCHEMA_VERSION):
                # Made by another version of segue: all in it can be read again.
                for name in _TABLE_NAMES:
                    self.db.execute(f"DROP TABLE IF EXISTS {name}")
            for statement in _TABLES.split(";\n"):
                self.db.execute(statement)
            self.db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _use_wal(self) -> None:
        """SQLite does not wait here by itself when another process is just doing the same."""
        until = time.monotonic() + _BUSY_S
        while True:
            try:
                self.db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as fault:
                if _code(fault) not in _BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def close(self) -> None:
        """Gives the file back."""
        self.db.close()

    @contextmanager
    def write(self) -> Iterator[None]:
        """One transaction, alone among all processes."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            if self.db.in_transaction:  # a full disk has ended it already
                self.db.execute("ROLLBACK")
            raise

    # The ends of files

    def looks(self) -> dict[str, tuple[Stamp, bytes]]:
        """The last look at each file, and the stamp it was taken at."""
        rows = self.db.execute("SELECT path, device, inode, size, mtime_ns, look FROM look")
        return {path: ((d, i, s, m), data) for path, d, i, s, m, data in rows}

    def keep_looks(self, looks: Sequence[tuple[str, Stamp, bytes]]) -> None:
        """Writes looks down."""
        if looks:
            rows = [(path, *stamp, data) for path, stamp, data in looks]
            with self.write():
                self.db.executemany("INSERT OR REPLACE INTO look VALUES (?, ?, ?, ?, ?, ?)", rows)

    # Whole files

    def stamps(self, homes: Sequence[str]) -> dict[str, Stamp]:
        """The stamp of each file that was counted below these homes."""
        marks = ",".join("?" * len(homes))
        rows = self.db.execute(
            f"SELECT path, device, inode, size, mtime_ns FROM file WHERE home IN ({marks})",  # noqa: S608
            list(homes),
        )
        return {path: (d, i, s, m) for path, d, i, s, m in rows}

    def counted(self, path: str) -> Counted | None:
        """What is known of a file."""
        row = self.db.execute(
            "SELECT device, inode, size, mtime_ns, offset, print, tally, ledger, models,"
            " session_id, forked_from, adopted, parent_rows FROM file WHERE path = ?",
            (path,),
        ).fetchone()
        if row is None:
            return None
        d, i, s, m, offset, mark, tally, ledger, models, *fork = row
        named = _names(models)
        if named is None:
            return None  # damaged: counted again from the start
        return Counted((d, i, s, m), offset, mark, tally, ledger, named, *fork)

    def of_session(self, agent: str, session_id: str) -> list[str]:
        """The files of a session."""
        rows = self.db.execute(
            "SELECT path FROM file WHERE agent = ? AND session_id = ? ORDER BY path",
            (agent, session_id),
        )
        return [path for (path,) in rows]

    def forks_of(self, session_ids: Iterable[str]) -> list[str]:
        """Files that may hold a copy of these sessions' history, and copies of copies."""
        found: dict[str, None] = {}
        names, asked = set(session_ids), set[str]()
        while names:
            name = names.pop()
            asked.add(name)
            for path, session_id in self.db.execute(
                "SELECT path, session_id FROM file WHERE forked_from = ?", (name,)
            ).fetchall():
                found[path] = None
                names |= {session_id} - asked
        return list(found)

    def ancestors(self, new: Mapping[str, Counted] | None = None) -> dict[str, set[str]]:
        """The parents of each fork, and theirs; `new` goes before what is written down of a file.
        A session that is its own ancestor has no parent: no history is the first in a circle."""
        parents: dict[str, set[str]] = {}
        for path, name, parent in self.db.execute(
            "SELECT path, session_id, forked_from FROM file WHERE forked_from <> ''"
        ):
            if not new or path not in new:
                parents.setdefault(name, set()).add(parent)
        for row in (new or {}).values():
            parents.setdefault(row.session_id, set()).add(row.forked_from)
        found = {}
        for name in parents:
            above, todo = set[str](), set(parents[name])
            while todo:
                above |= todo
                todo = set[str]().union(*(parents.get(each, ()) for each in todo)) - above
            found[name] = above
        return found

    def _outdate_forks(self, session_id: str, *, is_new: bool) -> None:
        """Its history has changed, so that of its forks is to be matched again: at the end of this
        scan, or by the next one if this one does not come to its end. If it only grew, that
        concerns those that are like it up to where it ended. Those in a circle that adopted
        nothing are as they will be."""
        if not session_id:
            return
        forks = self.db.execute(
            "SELECT path, session_id FROM file"
            " WHERE forked_from = ? AND (? OR adopted >= parent_rows)",
            (session_id, is_new),
        ).fetchall()
        if not forks:
            return
        paths = {path for path, _ in forks} | {*self.forks_of({name for _, name in forks})}
        above = self.ancestors()
        for path in paths:
            name, adopted = self.db.execute(
                "SELECT session_id, adopted FROM file WHERE path = ?", (path,)
            ).fetchone()
            if adopted or name not in above[name]:
                self.db.execute(
                    "UPDATE file SET mtime_ns = -1, print = x'' WHERE path = ?", (path,)
                )

    def outdated(self) -> list[str]:
        """Forks that are to be matched again."""
        return [path for (path,) in self.db.execute("SELECT path FROM file WHERE mtime_ns = -1")]

    def keep(self, batch: Sequence[tuple[Found, Counted, "Ledger"]]) -> None:
        """Writes down what was counted, each file as a whole."""
        if not batch:
            return
        with self.write():
            self.db.execute("DELETE FROM total")
            added: list[tuple[int, int]] = []
            for found, new, ledger in batch:
                added += self._keep_one(found, new, ledger)
            for _, new, _ in batch:  # then, because a fork may be among them
                self._outdate_forks(new.session_id, is_new=new.is_new)
            added.sort()  # so that they are put in side by side
            self.db.executemany("INSERT OR IGNORE INTO key VALUES (?, ?)", added)
            self._match_twins(added, {f.path: ledger for f, _, ledger in batch})

    def _keep_one(self, found: Found, new: Counted, ledger: "Ledger") -> list[tuple[int, int]]:
        old = self.db.execute(
            "SELECT number, ledger FROM file WHERE path = ?", (found.path,)
        ).fetchone()
        number = old[0] if old else None
        cursor = self.db.execute(
            "INSERT OR REPLACE INTO file VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                number,
                found.path,
                found.home,
                found.agent,
                new.session_id,
                new.forked_from,
                new.adopted,
                new.parent_rows,
                *new.stamp,
                new.offset,
                new.print,
                new.tally,
                new.ledger,
                json.dumps(new.models),
            ),
        )
        number = number or cursor.lastrowid or 0
        keys = set(ledger.keys())
        if old:
            before = _keys(old[1])
            self.db.executemany(
                "DELETE FROM key WHERE hash = ? AND file = ?",
                [(key, number) for key in before - keys],
            )
            self.db.execute("DELETE FROM twin WHERE file = ?", (number,))
        self.db.execute("DELETE FROM spend WHERE file = ?", (number,))
        self.db.executemany(
            "INSERT INTO spend VALUES (?, ?, ?, ?, ?, ?)",
            [(number, model, *spend.four) for model, spend in ledger.totals().items()],
        )
        keys.discard(0)
        return [(key, number) for key in keys]

    def _match_twins(self, added: list[tuple[int, int]], ledgers: dict[str, "Ledger"]) -> None:
        """Replies that stand in a file of this batch and in another one."""
        if not added:
            return
        # A hash seen twice: by one pass over the keys if many are new, else by looking them up.
        (known,) = self.db.execute("SELECT count(*) FROM key").fetchone()
        shared: list[tuple[int, int]] = []
        if len(added) * 8 > known:
            shared = self.db.execute(
                "SELECT hash, file FROM key WHERE hash IN"
                " (SELECT hash FROM key GROUP BY hash HAVING count(*) > 1)"
            ).fetchall()
        else:
            for key in {key for key, _ in added}:
                rows = self.db.execute(
                    "SELECT hash, file FROM key WHERE hash = ?", (key,)
                ).fetchall()
                shared += rows if len(rows) > 1 else []
        by_file: dict[int, list[int]] = {}
        for key, file in shared:
            by_file.setdefault(file, []).append(key)
        for file, keys in by_file.items():
            self._keep_twins(file, keys, ledgers)

    def _keep_twins(self, file: int, keys: list[int], ledgers: dict[str, "Ledger"]) -> None:
        from segue.core.ledger import SIDE, Ledger

        path, data, models = self.db.execute(
            "SELECT path, ledger, models FROM file WHERE number = ?", (file,)
        ).fetchone()
        ledger = ledgers.get(path) or Ledger(data, _names(models))
        entries = [entry for key in keys if (entry := ledger.find(key)) is not None]
        self.db.executemany(
            "INSERT OR REPLACE INTO twin VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(e.key, file, e.model, e.flags & SIDE, *e.spend.four) for e in entries],
        )

    def forget(self, paths: Iterable[str]) -> None:
        """Files that are no longer there."""
        gone = list(paths)
        if not gone:
            return
        with self.write():
            self.db.execute("DELETE FROM total")
            for path in gone:
                row = self.db.execute(
                    "SELECT number, ledger, session_id FROM file WHERE path = ?", (path,)
                ).fetchone()
                if row is not None:
                    number, ledger, session_id = row
                    self.db.executemany(
                        "DELETE FROM key WHERE hash = ? AND file = ?",
                        [(key, number) for key in _keys(ledger)],
                    )
                    self.db.execute("DELETE FROM twin WHERE file = ?", (number,))
                    self.db.execute("DELETE FROM spend WHERE file = ?", (number,))
                    self.db.execute("DELETE FROM file WHERE number = ?", (number,))
                    self._outdate_forks(session_id, is_new=True)
                self.db.execute("DELETE FROM look WHERE path = ?", (path,))

    def totals(self, homes: Sequence[str]) -> list[Total]:
        """Tokens by agent and model over all files below these homes, each reply once."""
        name = "\n".join(homes)
        row = self.db.execute("SELECT totals FROM total WHERE homes = ?", (name,)).fetchone()
        if row is not None:
            return [Total(*total) for total in json.loads(row[0])]
        marks = ",".join("?" * len(homes))
        with self.write():
            rows = self.db.execute(_TOTALS.format(homes=marks), list(homes)).fetchall()
            totals = [Total(*row) for row in rows if any(row[2:])]
            self.db.execute(
                "INSERT OR REPLACE INTO total VALUES (?, ?)", (name, json.dumps(totals))
            )
        return totals

    # Windows by the price list, which is slow to load

    def window(self, model: str) -> tuple[bool, int | None]:
        """Whether the price list was asked about this model, and what it said."""
        row = self.db.execute("SELECT tokens FROM window WHERE model = ?", (model,)).fetchone()
        return row is not None, row[0] if row else None

    def keep_window(self, model: str, tokens: int | None) -> None:
        """What the price list said."""
        with self.write():
            self.db.execute("INSERT OR REPLACE INTO window VALUES (?, ?)", (model, tokens))


def _names(models: str) -> list[str] | None:
    try:
        found = json.loads(models)
    except ValueError:
        return None
    return found if isinstance(found, list) else None


def _keys(ledger: bytes) -> set[int]:
    from segue.core.ledger import Ledger

    return set(Ledger(ledger).keys()) - {0}


def _no_state(place: Path, why: str) -> StateError:
    return StateError(f"{place}: segue cannot keep its state here: {why}; SEGUE_HOME moves it")


def _make_private(path: Path) -> None:
    """Nobody else's to read, also if it was there before; SQLite makes its logs like it."""
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):  # not there, or another user's
            if stat.S_IMODE(file.stat().st_mode) & 0o077:
                file.chmod(0o600)


def is_damage(fault: sqlite3.Error) -> bool:
    """Whether the index itself is broken. It is as good as it was after another writer's lock,
    without permission, and on a full or failing disk."""
    return _code(fault) not in (*_BUSY, *_NO_DAMAGE)


def raise_if_ours(fault: sqlite3.Error, path: Path) -> None:
    """Raises StateError for what is no damage."""
    if _code(fault) in _BUSY:
        raise StateError(f"{path}: another segue is writing; try again") from None
    if not is_damage(fault):
        raise _no_state(path, str(fault)) from None


def _code(fault: sqlite3.Error) -> int:
    """SQLite's own, without what extended codes add; 0 if Python could not read a value."""
    return getattr(fault, "sqlite_errorcode", 0) & 0xFF


def open_index(path: Path) -> tuple[Index, str]:
    """The index, and one line to say if it was damaged: it is set aside then, and made anew."""
    try:
        return Index(path), ""
    except DamagedIndex as fault:
        return set_aside(path, str(fault))


def set_aside(path: Path, why: str) -> tuple[Index, str]:
    """A new index in place of one that is broken, and the line to say."""
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}")
    os.replace(path, aside)
    for ending in ("-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    note = f"the index was damaged ({why}); it is kept as {aside.name}, and a new one is made"
    return Index(path), note
