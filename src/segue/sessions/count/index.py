"""What was read, and up to where: an SQLite file, so that the next look costs only what is new.

Two kinds of knowledge, each with the file's stamp (device, inode, size, time) it was taken at:
`look` is the end of a file, `file` + `spend` the whole of it up to an offset. A row is replaced as
a whole in one transaction, so several segue processes may write at once and any of them may be
killed: a row is what one of them saw, never a mixture.

The same reply may be in several files (forks, resumed sessions). `key` knows who has which, `twin`
holds the rows of those that are in more than one file, and totals count one of them.

Blobs carry a check sum: SQLite does not notice a flipped byte in a row, and what it would mean is
anything. What fails it was never read, and is read again.

Blobs are not looked into here, and what only a changed file needs is imported when there is one: a
scan that finds nothing new must cost next to nothing.

All in one file: all of its SQL, in view of the tables.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from segue.errors import StateError
from segue.sessions.find import FileOnDisk, Stamp
from segue.system.files.sqlite import Damaged, Database, Identity, Place, move_aside

if TYPE_CHECKING:
    from array import array

    from segue.core.sessions.ledger import Ledger

SCHEMA_VERSION = 5
_FEW = 256
_SEAL_BYTES = 4
_COUNTED = (int, bytes, str, str, int, int)
"""The types of a file's offset, print, session, origin and two row counts."""
_TRIES = 3
# keys arrive in random order: this many can be inserted without re-reading pages
_CACHE_KB = 16 << 10

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
  cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL, hour_write INTEGER NOT NULL,
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
  cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL, hour_write INTEGER NOT NULL,
  PRIMARY KEY (hash, file)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS look (
  path TEXT PRIMARY KEY,
  device INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  look BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parent (
  path TEXT PRIMARY KEY,
  device INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL,
  parent TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS task (
  name TEXT PRIMARY KEY,
  device INTEGER NOT NULL, inode INTEGER NOT NULL,
  task TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS total (homes TEXT PRIMARY KEY, totals TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS window (model TEXT PRIMARY KEY, tokens INTEGER) WITHOUT ROWID
"""
_TABLE_NAMES = ("file", "spend", "key", "twin", "look", "parent", "task", "total", "window")

# One row of each reply counts: the main thread's, then the largest, then the first.
_TOTALS = """
WITH mine AS (SELECT number, path, agent FROM file WHERE home IN ({homes})),
ranked AS (
  SELECT agent, model, input, output, cache_read, cache_write, hour_write,
         row_number() OVER (
           PARTITION BY hash
           ORDER BY side, input + output + cache_read + cache_write DESC, path
         ) AS place
  FROM twin JOIN mine ON mine.number = twin.file
)
SELECT agent, model, sum(input), sum(output), sum(cache_read), sum(cache_write), sum(hour_write)
FROM (
  SELECT agent, model, input, output, cache_read, cache_write, hour_write
  FROM spend JOIN mine ON mine.number = spend.file
  UNION ALL
  SELECT agent, model, -input, -output, -cache_read, -cache_write, -hour_write
  FROM ranked WHERE place > 1
) GROUP BY agent, model ORDER BY agent, model
"""


class Total(NamedTuple):
    """The tokens that one agent used with one model."""

    agent: str
    model: str
    input: int
    output: int
    cache_read: int
    cache_write: int
    hour_write: int  # the part of `cache_write` that is cached for an hour


class CountedFile(NamedTuple):
    """A counted file, as the index stores it."""

    stamp: Stamp
    offset: int
    print: bytes
    tally: bytes
    ledger: bytes
    models: list[str]
    session_id: str
    forked_from: str
    adopted: int = 0  # rows at its start that belong to its parent
    parent_rows: int = 0  # how many the parent had at that time
    is_new: bool = True  # counted from its start: earlier counts are void


class Index(Database):
    """An open index. Use `open_index`, which also replaces a damaged one."""

    def prepare(self) -> None:
        (version,) = self.db.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA_VERSION:
            return
        self.use_wal()
        with self.write():
            (version,) = self.db.execute("PRAGMA user_version").fetchone()
            (tables,) = self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if version == 0 and tables:
                raise Damaged("another program's database")
            if version not in (0, SCHEMA_VERSION):
                # Created by another version of segue: everything in it can be read again.
                for name in _TABLE_NAMES:
                    self.db.execute(f"DROP TABLE IF EXISTS {name}")
            for statement in _TABLES.split(";\n"):
                self.db.execute(statement)
            self.db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def wait_at_most(self, busy_s: float) -> None:
        """Limits the wait for another writer, for callers that can do without the index. The error
        does not mean damage."""
        self.db.execute(f"PRAGMA busy_timeout = {round(busy_s * 1000)}")

    # The ends of files

    def looks(self) -> dict[str, tuple[Stamp, bytes]]:
        """The last look at each file, and the file's stamp at that time."""
        rows = self.db.execute("SELECT path, device, inode, size, mtime_ns, look FROM look")
        return {
            path: ((d, i, s, m), data)
            for path, d, i, s, m, sealed in rows
            if (data := _unsealed(sealed)) is not None and isinstance(path, str)
        }

    def look(self, path: str) -> tuple[Stamp, bytes] | None:
        """The last look at one file, and the file's stamp at that time."""
        row = self.db.execute(
            "SELECT device, inode, size, mtime_ns, look FROM look WHERE path = ?", (path,)
        ).fetchone()
        data = _unsealed(row[4]) if row is not None else None
        return ((row[0], row[1], row[2], row[3]), data) if data is not None else None

    def keep_looks(self, looks: Sequence[tuple[str, Stamp, bytes]]) -> None:
        """Stores looks."""
        if looks:
            rows = [(path, *stamp, _sealed(data)) for path, stamp, data in looks]
            with self.write():
                self.db.executemany("INSERT OR REPLACE INTO look VALUES (?, ?, ?, ?, ?, ?)", rows)

    # Sub-agents

    def parents(self) -> dict[str, tuple[tuple[int, int, int], str]]:
        """The parent named in each file's first records, with the file's device, inode and size."""
        rows = self.db.execute("SELECT path, device, inode, size, parent FROM parent")
        return {
            path: ((device, inode, size), parent)
            for path, device, inode, size, parent in rows
            if isinstance(path, str) and isinstance(parent, str)
        }

    def keep_parents(self, parents: Sequence[tuple[str, Stamp, str]]) -> None:
        """Stores parents."""
        if parents:
            rows = [(path, *stamp[:3], parent) for path, stamp, parent in parents]
            with self.write():
                self.db.executemany("INSERT OR REPLACE INTO parent VALUES (?, ?, ?, ?, ?)", rows)

    # First words

    def tasks(self) -> dict[str, tuple[tuple[int, int], str]]:
        """The first prompt of each session, on one line, with its file's device and inode."""
        rows = self.db.execute("SELECT name, device, inode, task FROM task")
        return {
            name: ((device, inode), task)
            for name, device, inode, task in rows
            if isinstance(name, str) and isinstance(task, str)
        }

    def keep_tasks(self, tasks: Sequence[tuple[str, tuple[int, int], str]]) -> None:
        """Stores first prompts."""
        if tasks:
            rows = [(name, *place, task) for name, place, task in tasks]
            with self.write():
                self.db.executemany("INSERT OR REPLACE INTO task VALUES (?, ?, ?, ?)", rows)

    # Whole files

    def stamps(self, homes: Sequence[str]) -> dict[str, Stamp]:
        """The stamp of each counted file below these homes."""
        marks = ",".join("?" * len(homes))
        rows = self.db.execute(
            f"SELECT path, device, inode, size, mtime_ns FROM file WHERE home IN ({marks})",  # noqa: S608
            list(homes),
        )
        return {path: (d, i, s, m) for path, d, i, s, m in rows if isinstance(path, str)}

    def counted(self, path: str) -> CountedFile | None:
        """What the index knows about a file."""
        row = self.db.execute(
            "SELECT device, inode, size, mtime_ns, offset, print, tally, ledger, models,"
            " session_id, forked_from, adopted, parent_rows FROM file WHERE path = ?",
            (path,),
        ).fetchone()
        if row is None:
            return None
        d, i, s, m, offset, mark, tally, ledger, models, *fork = row
        named, tallied, rows = _names(models), _unsealed(tally), _unsealed(ledger)
        types = tuple(map(type, (offset, mark, *fork)))
        if named is None or tallied is None or rows is None or types != _COUNTED:
            return None  # damaged: counted again from the start
        return CountedFile((d, i, s, m), offset, mark, tallied, rows, named, *fork)

    def of_session(self, agent: str, session_id: str) -> list[str]:
        """The files of a session."""
        rows = self.db.execute(
            "SELECT path FROM file WHERE agent = ? AND session_id = ? ORDER BY path",
            (agent, session_id),
        )
        return [path for (path,) in rows]

    def forks_of(self, session_ids: Iterable[str]) -> list[str]:
        """Files that may contain a copy of these sessions' history, and copies of copies."""
        found: dict[str, None] = {}
        names, asked = set(session_ids), set[str]()
        while names:
            name = names.pop()
            asked.add(name)
            for path, session_id in self.db.execute(
                "SELECT path, session_id FROM file WHERE forked_from = ? AND forked_from <> ''",
                (name,),
            ).fetchall():
                found[path] = None
                names |= {session_id} - asked
        return list(found)

    def ancestors(self, new: Mapping[str, CountedFile] | None = None) -> dict[str, set[str]]:
        """The parents of each fork, and theirs; `new` overrides what is stored about a file. A
        session that is its own ancestor has no parent: in a circle, no history comes first."""
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
        """Its history has changed, so its forks must be matched again: at the end of this scan, or
        by the next one if this one is interrupted. If it only grew, that concerns forks that are
        identical up to its former end. Forks in a circle that adopted nothing are already final."""
        if not session_id:
            return
        forks = self.db.execute(
            "SELECT path, session_id FROM file"
            " WHERE forked_from = ? AND forked_from <> '' AND (? OR adopted >= parent_rows)",
            (session_id, is_new),
        ).fetchall()
        if not forks:
            return
        paths = {path for path, _ in forks} | {*self.forks_of({name for _, name in forks})}
        above = self.ancestors()
        for path in paths:
            row = self.db.execute(
                "SELECT session_id, adopted FROM file WHERE path = ?", (path,)
            ).fetchone()
            if row is None:  # damaged: listed in an index of the table, but not in the table
                continue
            name, adopted = row
            if adopted or name not in above.get(name, ()):
                self.db.execute(
                    "UPDATE file SET mtime_ns = -1, print = x'' WHERE path = ?", (path,)
                )

    def _has_forks(self) -> bool:
        found = self.db.execute("SELECT 1 FROM file WHERE forked_from <> '' LIMIT 1").fetchone()
        return found is not None

    def outdated(self) -> list[str]:
        """Forks that must be matched again."""
        return [path for (path,) in self.db.execute("SELECT path FROM file WHERE mtime_ns = -1")]

    def keep(self, batch: Sequence[tuple[FileOnDisk, CountedFile, "Ledger"]]) -> None:
        """Stores counts, each file as a whole."""
        if not batch:
            return
        self.db.execute(f"PRAGMA cache_size = -{_CACHE_KB}")
        with self.write():
            self.db.execute("DELETE FROM total")
            added: list[tuple[int, int]] = []
            for found, new, ledger in batch:
                added += self._keep_one(found, new, ledger)
            if self._has_forks():  # then, because one may be among them
                for _, new, _ in batch:
                    self._outdate_forks(new.session_id, is_new=new.is_new)
            self.db.executemany("INSERT OR IGNORE INTO key VALUES (?, ?)", added)
            self._match_twins(added, {f.path: ledger for f, _, ledger in batch})

    def _keep_one(
        self, found: FileOnDisk, new: CountedFile, ledger: "Ledger"
    ) -> list[tuple[int, int]]:
        old = self.db.execute(
            "SELECT number, ledger, models FROM file WHERE path = ?", (found.path,)
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
                _sealed(new.tally),
                _sealed(new.ledger),
                json.dumps(new.models),
            ),
        )
        number = number or cursor.lastrowid or 0
        known = _unsealed(old[1]) if old else None
        if old and known is None:  # nobody knows which rows were its own
            self.db.execute("DELETE FROM key WHERE file = ?", (number,))
            self.db.execute("DELETE FROM twin WHERE file = ?", (number,))
        same = 0  # rows at the start; they refer to models by number, so those must be the same too
        names = _names(old[2]) if old else None
        if names is not None and known is not None and new.models[: len(names)] == names:
            same = _same_rows(known, new.ledger)
        keys = set(ledger.keys(same))
        if old:
            before = set(_keys(known or b"", same))
            removed_keys = before - keys
            if removed_keys:
                removed_keys -= set(ledger.keys())
            self.db.executemany(
                "DELETE FROM key WHERE hash = ? AND file = ?",
                [(key, number) for key in removed_keys],
            )
            self.db.executemany(
                "DELETE FROM twin WHERE hash = ? AND file = ?", [(key, number) for key in before]
            )
            self.db.execute("DELETE FROM spend WHERE file = ?", (number,))
        self.db.executemany(
            "INSERT INTO spend VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(number, model, *spend.five) for model, spend in ledger.totals().items()],
        )
        keys.discard(0)
        return [(key, number) for key in keys]

    def _match_twins(self, added: list[tuple[int, int]], ledgers: dict[str, "Ledger"]) -> None:
        """Replies that are in a file of this batch and in another one."""
        if not added:
            return
        # A hash that appears twice: found in one pass over the keys if many are new, otherwise by
        # lookups.
        known = 0
        if len(added) > _FEW:
            (known,) = self.db.execute("SELECT count(*) FROM key").fetchone()
        shared: list[tuple[int, int]] = []
        if len(added) * 8 > known > 0:
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
        from segue.core.sessions.ledger import SIDE, Ledger

        row = self.db.execute(
            "SELECT path, ledger, models FROM file WHERE number = ?", (file,)
        ).fetchone()
        if row is None:  # damaged: a key without its file
            self.db.execute("DELETE FROM key WHERE file = ?", (file,))
            return
        path, data, models = row
        ledger = ledgers.get(path) or Ledger(_unsealed(data) or b"", _names(models))
        entries = [entry for key in keys if (entry := ledger.find(key)) is not None]
        self.db.executemany(
            "INSERT OR REPLACE INTO twin VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(e.key, file, e.model, e.flags & SIDE, *e.spend.five) for e in entries],
        )

    def forget(self, paths: Iterable[str]) -> None:
        """Removes files that no longer exist."""
        removed = list(paths)
        if not removed:
            return
        with self.write():
            self.db.execute("DELETE FROM total")
            for path in removed:
                row = self.db.execute(
                    "SELECT number, ledger, session_id FROM file WHERE path = ?", (path,)
                ).fetchone()
                if row is not None:
                    number, ledger, session_id = row
                    self.db.executemany(
                        "DELETE FROM key WHERE hash = ? AND file = ?",
                        [(key, number) for key in _keys(_unsealed(ledger) or b"", 0)],
                    )
                    self.db.execute("DELETE FROM twin WHERE file = ?", (number,))
                    self.db.execute("DELETE FROM spend WHERE file = ?", (number,))
                    self.db.execute("DELETE FROM file WHERE number = ?", (number,))
                    self._outdate_forks(session_id, is_new=True)
                self.db.execute("DELETE FROM look WHERE path = ?", (path,))
                self.db.execute("DELETE FROM parent WHERE path = ?", (path,))
                self.db.execute(
                    "DELETE FROM task WHERE name >= ? AND name < ?", (f"{path}#", f"{path}$")
                )

    def totals(self, homes: Sequence[str]) -> list[Total]:
        """Tokens by agent and model over all files below these homes, each reply once."""
        name = "\n".join(homes)
        row = self.db.execute("SELECT totals FROM total WHERE homes = ?", (name,)).fetchone()
        if row is not None and (known := _totals(row[0])) is not None:
            return known
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
        """Whether the price list was asked about this model, and its answer."""
        row = self.db.execute("SELECT tokens FROM window WHERE model = ?", (model,)).fetchone()
        tokens = row[0] if row else None
        is_asked = row is not None and (tokens is None or isinstance(tokens, int))
        return is_asked, tokens if is_asked else None

    def keep_window(self, model: str, tokens: int | None) -> None:
        """Stores the price list's answer."""
        with self.write():
            self.db.execute("INSERT OR REPLACE INTO window VALUES (?, ?)", (model, tokens))


def _sealed(data: bytes) -> bytes:
    from binascii import crc32

    return data + crc32(data).to_bytes(_SEAL_BYTES, "little")


def _unsealed(data: object) -> bytes | None:
    """The bytes, if they are the ones that were written."""
    if not isinstance(data, bytes) or len(data) < _SEAL_BYTES:
        return None
    body = data[:-_SEAL_BYTES]
    return body if _sealed(body) == data else None


def _names(models: object) -> list[str] | None:
    try:
        found = json.loads(models) if isinstance(models, str) else None
    except (ValueError, RecursionError):
        return None
    is_known = isinstance(found, list) and all(isinstance(name, str) for name in found)
    return found if is_known else None


def _totals(text: object) -> list[Total] | None:
    try:
        found = json.loads(text) if isinstance(text, str) else None
        totals = [Total(*each) for each in found or ()]
    except (ValueError, TypeError, RecursionError):
        return None
    types = (str, str, int, int, int, int, int)
    is_known = found is not None and all(tuple(map(type, each)) == types for each in totals)
    return totals if is_known else None


def _keys(ledger: bytes, first: int) -> "array[int]":
    from segue.core.sessions.ledger import Ledger

    return Ledger(ledger).keys(first)


def _same_rows(old: bytes, new: bytes) -> int:
    """How many leading rows two ledgers have in common; found by bisection."""
    from segue.core.sessions.ledger import ROW_BYTES

    same, most = 0, min(len(old), len(new)) // ROW_BYTES
    while same < most:
        half = (same + most + 1) // 2
        place = slice(same * ROW_BYTES, half * ROW_BYTES)
        if old[place] == new[place]:
            same = half
        else:
            most = half - 1
    return same


def open_index(place: Place) -> tuple[Index, str]:
    """The index, and one line to print if it was damaged: it is then set aside, and a new one is
    built."""
    note = ""
    for _ in range(_TRIES):
        try:
            return Index(place), note
        except Damaged as fault:
            note = _moved(place, fault.identity, str(fault)) or note
    raise StateError(f"{place}: the index is damaged repeatedly")


def set_aside(broken: Index, why: str) -> tuple[Index, str]:
    """A new index in place of one that broke while it was open, and the line to print; none if
    another process has already done the same."""
    note = _moved(broken.path, broken.identity, why)
    index, more = open_index(broken.path)
    return index, note or more


def _moved(place: Place, identity: Identity | None, why: str) -> str:
    name = move_aside(place, identity)
    if not name:
        return ""
    return f"the index was damaged ({why}); segue kept it as {name} and built a new one"
