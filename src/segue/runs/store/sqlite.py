"""A store in an SQLite file, for several processes at once, any of which may be killed at any
time."""

from functools import cache
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from segue.core.runs.types import Run
from segue.runs.store import leases, projection
from segue.runs.store.coding import cell, pack, text, unpack
from segue.runs.store.file import RunsFile
from segue.runs.store.port import (
    Entry,
    Holder,
    IsAlive,
    Lease,
    StoredAsk,
    StoredDecision,
    StoredLeg,
    StoredReading,
    StoredStop,
    StoredTimer,
    run_key,
)
from segue.runs.store.projection import TABLES, Drift, StepFunction, TableChange
from segue.runs.store.rules import StoreRules
from segue.system.files.sqlite import Place

T = TypeVar("T")
_COLUMNS = Entry.__struct_fields__
_EVENT = ", ".join(_COLUMNS)


class SqliteStore(RunsFile, StoreRules):
    """An open store; see `port.Store`."""

    def __init__(
        self, place: Place, *, machine: str = "", is_alive: IsAlive = leases.is_alive
    ) -> None:
        super().__init__(place)
        self._machine = machine
        self._is_alive = is_alive

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # The log

    def last_seq(self, run_id: str) -> int:
        ((last,),) = self.rows("SELECT max(seq) FROM event WHERE run = ?", (cell(run_id),))
        return last or 0

    def write_entry(self, entry: Entry) -> None:
        values = [cell(getattr(entry, name)) for name in _COLUMNS]
        marks = ", ".join("?" * len(values))
        self.db.execute(f"INSERT INTO event ({_EVENT}) VALUES ({marks})", values)  # noqa: S608

    def change_row(self, change: TableChange) -> None:
        key = [cell(value) for value in change.key]
        if change.values is None:
            self.db.execute(_delete(change.table), key)
            return
        new = [cell(value) for value in (*change.values.values(), *change.once.values())]
        sql = _upsert(change.table, tuple(change.values), tuple(change.once))
        self.db.execute(sql, (*key, *new))

    def log(self, run_id: str, after_seq: int = 0) -> list[Entry]:
        sql = f"SELECT {_EVENT} FROM event WHERE run = ? AND seq > ? ORDER BY seq"  # noqa: S608
        return [
            self.decode_row(row, _COLUMNS, Entry)
            for row in self.rows(sql, (cell(run_id), after_seq))
        ]

    # Derived from the log

    def run(self, run_id: str) -> Run | None:
        sql = "SELECT data, task FROM snapshot JOIN run ON id = run WHERE id = ?"
        for data, task in self.rows(sql, (cell(run_id),)):
            return replace(self.read(data, Run, f"{run_id}"), task=text(task))
        return None

    def runs(
        self, cwd: str | None = None, *, unfinished: bool = False, limit: int | None = None
    ) -> list[Run]:
        sql = (
            "SELECT data, task FROM run JOIN snapshot ON run = id"
            " WHERE (?1 IS NULL OR cwd = ?1) AND NOT (?2 AND is_final)"
            " ORDER BY created_at DESC, id DESC LIMIT ?3"
        )
        found = []
        for data, task in self.rows(sql, (cell(cwd), unfinished, -1 if limit is None else limit)):
            try:
                found.append(replace(unpack(data, Run), task=text(task)))
            except ValueError:
                continue  # a newer segue's; asked for by its id, it says so
        return found

    def find(self, prefix: str) -> list[str]:
        rows = self.rows("SELECT id FROM run WHERE id >= ? ORDER BY id", (cell(prefix),))
        return [name for (value,) in rows if (name := text(value)).startswith(prefix)]

    def legs(self, run_id: str) -> list[StoredLeg]:
        return self._records_of("leg", StoredLeg, run_id)

    def sessions(self) -> list[tuple[str, str]]:
        sql = (
            "SELECT session_id, run FROM leg WHERE session_id <> ''"
            " UNION SELECT origin, id FROM run WHERE origin <> ''"
        )
        return [(text(session), text(run)) for session, run in self.rows(sql)]

    def readings(self, run_id: str) -> list[StoredReading]:
        return self._records_of("reading", StoredReading, run_id)

    def stops(self, run_id: str) -> list[StoredStop]:
        return self._records_of("stop", StoredStop, run_id)

    def decisions(self, run_id: str) -> list[StoredDecision]:
        return self._records_of("decision", StoredDecision, run_id)

    def timers(self, due_before: float | None = None) -> list[StoredTimer]:
        names = StoredTimer.__struct_fields__
        rows = self.rows(
            "SELECT run, until, since, why FROM timer WHERE ?1 IS NULL OR until <= ?1"
            " ORDER BY until, run",
            (due_before,),
        )
        return [self.decode_row(row, names, StoredTimer) for row in rows]

    def rebuild(self, step: StepFunction | None = None) -> list[Drift]:
        """Derives everything from the log again. Reports where this version's machine leads to a
        different result than the one that wrote it; raises StateError, and changes nothing,
        if it cannot read an entry."""
        step = step or projection.todays_machine()
        drifts: list[Drift] = []
        with self.alone():
            self.db.execute("PRAGMA defer_foreign_keys = ON")
            for table in reversed(TABLES):
                self.db.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of ours
            for (name,) in self.rows("SELECT run FROM event WHERE seq = 1 ORDER BY run"):
                try:
                    for entry, run in projection.replay(self.log(text(name)), step):
                        drifts += projection.drift(entry, run)
                        for change in projection.changes(entry, run):
                            self.change_row(change)
                except (ValueError, KeyError) as fault:
                    raise self.unreadable(f"the log of {text(name)}", fault) from None
        return drifts

    def _records_of(self, table: str, kind: type[T], run_id: str) -> list[T]:
        names = kind.__struct_fields__  # type: ignore[attr-defined]
        order = ", ".join(TABLES[table])
        sql = f"SELECT {', '.join(names)} FROM {table} WHERE run = ? ORDER BY {order}"  # noqa: S608
        return [self.decode_row(row, names, kind) for row in self.rows(sql, (cell(run_id),))]

    # What is too large for the log

    def keep_checkpoint(
        self, run_id: str, number: int, checkpoint: dict[str, Any], at: float
    ) -> None:
        with self.alone():
            self.must_know(run_id)
            self.db.execute(
                "INSERT OR REPLACE INTO checkpoint (run, number, at, data) VALUES (?, ?, ?, ?)",
                (cell(run_id), number, at, pack(checkpoint)),
            )

    def checkpoint(self, run_id: str, number: int) -> dict[str, Any] | None:
        sql = "SELECT data FROM checkpoint WHERE run = ? AND number = ?"
        for (data,) in self.rows(sql, (cell(run_id), number)):
            return self.read(data, dict[str, Any], f"checkpoint {number} of {run_id}")
        return None

    def forget(self, run_id: str, *, epoch: int) -> None:
        name = cell(run_id)
        with self.alone():
            self.must_know(run_id)
            self.must_hold(run_key(run_id), epoch)
            sessions = self.rows("SELECT DISTINCT session_id FROM leg WHERE run = ?", (name,))
            for table in ("ask", "checkpoint", *reversed(TABLES), "event"):
                column = "id" if table == "run" else "run"
                self.db.execute(f"DELETE FROM {table} WHERE {column} = ?", (name,))  # noqa: S608
            self.db.execute("DELETE FROM lease WHERE key = ?", (cell(run_key(run_id)),))
            for (session,) in sessions:
                self.db.execute(
                    "DELETE FROM lease WHERE holder IS NULL AND key GLOB 'session:*'"
                    " AND substr(key, -length(?1) - 1) = ':' || ?1 AND ?1 <> ''",
                    (session,),
                )
        with self.guarded():
            self.drop_traces()

    # Requests of other processes

    def ask(self, run_id: str, what: str, at: float) -> int:
        with self.alone():
            self.must_know(run_id)
            sql = "INSERT INTO ask (run, what, at) VALUES (?, ?, ?)"
            return self.db.execute(sql, (cell(run_id), cell(what), at)).lastrowid or 0

    def asks(self, run_id: str, after: int = 0) -> list[StoredAsk]:
        sql = "SELECT number, run, what, at FROM ask WHERE run = ? AND number > ? ORDER BY number"
        names = StoredAsk.__struct_fields__
        return [
            self.decode_row(row, names, StoredAsk) for row in self.rows(sql, (cell(run_id), after))
        ]

    def drop_asks(self, run_id: str, up_to: int) -> None:
        self.rows("DELETE FROM ask WHERE run = ? AND number <= ?", (cell(run_id), up_to))

    def version(self) -> int:
        ((number,),) = self.rows("PRAGMA data_version")
        return int(number)

    # Leases

    def lease_of(self, key: str) -> tuple[int, Holder | None]:
        for epoch, data in self.rows("SELECT epoch, holder FROM lease WHERE key = ?", (cell(key),)):
            return epoch, data and self.read(data, Holder, f"the lease of {key}")
        return 0, None

    def give_lease(self, key: str, epoch: int, holder: Holder, now: float) -> None:
        self.db.execute(
            "INSERT OR REPLACE INTO lease (key, epoch, at, holder) VALUES (?, ?, ?, ?)",
            (cell(key), epoch, now, pack(holder)),
        )

    def release(self, lease: Lease) -> None:
        # The row stays, so that an epoch never comes twice.
        with self.alone():
            self.db.execute(
                "UPDATE lease SET holder = NULL WHERE key = ? AND epoch = ?",
                (cell(lease.key), lease.epoch),
            )

    def holder(self, key: str) -> Holder | None:
        return self.lease_of(key)[1]


@cache
def _upsert(table: str, names: tuple[str, ...], once: tuple[str, ...]) -> str:
    key = TABLES[table]
    columns = (*key, *names, *once)
    sets = [f"{name} = excluded.{name}" for name in names]
    sets += [f"{name} = coalesce({table}.{name}, excluded.{name})" for name in once]
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {', '.join(sets)}"
    )


@cache
def _delete(table: str) -> str:
    where = " AND ".join(f"{name} = ?" for name in TABLES[table])
    return f"DELETE FROM {table} WHERE {where}"  # noqa: S608
