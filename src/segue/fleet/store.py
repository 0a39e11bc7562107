"""Runs in PostgreSQL; see `segue.runs.store.port`. The log is the truth: each entry is written in
one transaction with everything derived from it."""

from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from segue.core.runs.types import Run
from segue.errors import StateError
from segue.fleet import machines
from segue.fleet.database import FleetDatabase, encode, plain, raw, read
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
from segue.runs.store.projection import TableChange
from segue.runs.store.rules import StoreRules, changed_row, chosen

T = TypeVar("T")


class _Snapshot(Struct):
    data: Run


class _RunRow(Struct):
    id: str
    task: str
    origin: str = ""


_SNAPSHOTS = (
    "SELECT s.data, r.data FROM segue.row s JOIN segue.row r ON r.run = s.run"
    " WHERE s.kind = 'snapshot' AND r.kind = 'run'"
)


def _run(snapshot: bytes, row: bytes) -> Run:
    return replace(read(snapshot, _Snapshot).data, task=read(row, _RunRow).task)


class PostgresStore(FleetDatabase, StoreRules):
    """See `port.Store`."""

    def __init__(
        self,
        url: str,
        *,
        machine: str = "",
        is_alive: IsAlive | None = None,
        beside: FleetDatabase | None = None,
    ) -> None:
        super().__init__(url, beside=beside)
        self._machine = machine
        self._is_alive = is_alive or partial(machines.is_alive, self)

    # The log

    def last_seq(self, run_id: str) -> int:
        sql = "SELECT max(seq) FROM segue.event WHERE run = %s"
        ((last,),) = self.rows(sql, (raw(run_id),))
        return last or 0

    def write_entry(self, entry: Entry) -> None:
        self.rows(
            "INSERT INTO segue.event (run, seq, data) VALUES (%s, %s, %s)",
            (raw(entry.run), entry.seq, encode(entry)),
        )

    def change_row(self, change: TableChange) -> None:
        key = encode(change.key)
        where = (change.table, key)
        if change.values is None:
            self.rows("DELETE FROM segue.row WHERE kind = %s AND key = %s", where)
            return
        sql = "SELECT data FROM segue.row WHERE kind = %s AND key = %s FOR UPDATE"
        old = [read(data, dict[str, Any]) for (data,) in self.rows(sql, where)]
        self.rows(
            "INSERT INTO segue.row (kind, key, run, data) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (kind, key) DO UPDATE SET data = excluded.data",
            (*where, raw(str(change.key[0])), encode(changed_row(old[0] if old else None, change))),
        )

    def log(self, run_id: str, after_seq: int = 0) -> list[Entry]:
        sql = "SELECT data FROM segue.event WHERE run = %s AND seq > %s ORDER BY seq"
        return [read(data, Entry) for (data,) in self.rows(sql, (raw(run_id), after_seq))]

    # Derived tables

    def run(self, run_id: str) -> Run | None:
        for snapshot, row in self.rows(f"{_SNAPSHOTS} AND s.run = %s", (raw(run_id),)):
            return _run(snapshot, row)
        return None

    def runs(
        self, cwd: str | None = None, *, unfinished: bool = False, limit: int | None = None
    ) -> list[Run]:
        found = []
        for snapshot, row in self.rows(_SNAPSHOTS):
            with suppress(StateError):  # written by a newer segue, which a query by id reports
                found.append(_run(snapshot, row))
        return chosen(found, cwd, unfinished=unfinished, limit=limit)

    def find(self, prefix: str) -> list[str]:
        names = (plain(name) for (name,) in self.rows("SELECT DISTINCT run FROM segue.event"))
        return sorted(name for name in names if name.startswith(prefix))

    def legs(self, run_id: str) -> list[StoredLeg]:
        return sorted(self._rows("leg", StoredLeg, run_id), key=lambda leg: leg.leg)

    def sessions(self) -> list[tuple[str, str]]:
        rows = self.rows("SELECT data FROM segue.row WHERE kind = 'leg'")
        legs = [read(data, StoredLeg) for (data,) in rows]
        found = {(leg.session_id, leg.run) for leg in legs}
        rows = self.rows("SELECT data FROM segue.row WHERE kind = 'run'")
        found |= {(run.origin, run.id) for run in (read(data, _RunRow) for (data,) in rows)}
        return [(session, run) for session, run in found if session]

    def readings(self, run_id: str) -> list[StoredReading]:
        return sorted(self._rows("reading", StoredReading, run_id), key=lambda row: row.seq)

    def stops(self, run_id: str) -> list[StoredStop]:
        return sorted(self._rows("stop", StoredStop, run_id), key=lambda row: row.seq)

    def decisions(self, run_id: str) -> list[StoredDecision]:
        found = self._rows("decision", StoredDecision, run_id)
        return sorted(found, key=lambda row: (row.seq, row.place))

    def timers(self, due_before: float | None = None) -> list[StoredTimer]:
        rows = self.rows("SELECT data FROM segue.row WHERE kind = 'timer'")
        found = [read(data, StoredTimer) for (data,) in rows]
        due = [row for row in found if due_before is None or row.until <= due_before]
        return sorted(due, key=lambda row: (row.until, row.run))

    def _rows(self, kind: str, of: type[T], run_id: str) -> list[T]:
        sql = "SELECT data FROM segue.row WHERE kind = %s AND run = %s"
        return [read(data, of) for (data,) in self.rows(sql, (kind, raw(run_id)))]

    # Data too large for the log

    def keep_checkpoint(
        self, run_id: str, number: int, checkpoint: dict[str, Any], at: float
    ) -> None:
        with self.alone():
            self.must_know(run_id)
            self.rows(
                "INSERT INTO segue.checkpoint (run, number, data) VALUES (%s, %s, %s)"
                " ON CONFLICT (run, number) DO UPDATE SET data = excluded.data",
                (raw(run_id), number, encode(checkpoint)),
            )

    def checkpoint(self, run_id: str, number: int) -> dict[str, Any] | None:
        sql = "SELECT data FROM segue.checkpoint WHERE run = %s AND number = %s"
        for (data,) in self.rows(sql, (raw(run_id), number)):
            return read(data, dict[str, Any])
        return None

    def forget(self, run_id: str, *, epoch: int) -> None:
        with self.alone():
            self.must_know(run_id)
            self.must_hold(run_key(run_id), epoch)
            for table in ("words", "result", "ask", "checkpoint", "row", "event"):
                self.rows(f"DELETE FROM segue.{table} WHERE run = %s", (raw(run_id),))  # noqa: S608
            self.rows("DELETE FROM segue.lease WHERE key = %s", (raw(run_key(run_id)),))

    # Requests from other processes

    def ask(self, run_id: str, what: str, at: float) -> int:
        with self.alone():
            self.must_know(run_id)
            sql = "INSERT INTO segue.ask (run, what, at) VALUES (%s, %s, %s) RETURNING number"
            ((number,),) = self.rows(sql, (raw(run_id), raw(what), at))
            return int(number)

    def asks(self, run_id: str, after: int = 0) -> list[StoredAsk]:
        sql = (
            "SELECT number, what, at FROM segue.ask WHERE run = %s AND number > %s ORDER BY number"
        )
        return [
            StoredAsk(number=number, run=run_id, what=plain(what), at=at)
            for number, what, at in self.rows(sql, (raw(run_id), after))
        ]

    def drop_asks(self, run_id: str, up_to: int) -> None:
        sql = "DELETE FROM segue.ask WHERE run = %s AND number <= %s"
        self.rows(sql, (raw(run_id), up_to))

    # Leases

    def acquire(self, key: str, holder: Holder, now: float, *, seize: bool = False) -> Lease:
        # Only an existing row can be locked.
        self.rows(
            "INSERT INTO segue.lease (key, epoch) VALUES (%s, 0) ON CONFLICT DO NOTHING",
            (raw(key),),
        )
        return super().acquire(key, holder, now, seize=seize)

    def lease_of(self, key: str) -> tuple[int, Holder | None]:
        return self._lease(key)

    def give_lease(self, key: str, epoch: int, holder: Holder, now: float) -> None:
        self.rows(
            "UPDATE segue.lease SET epoch = %s, holder = %s WHERE key = %s",
            (epoch, encode(holder), raw(key)),
        )

    def release(self, lease: Lease) -> None:
        # The row stays, so that an epoch is never used twice.
        self.rows(
            "UPDATE segue.lease SET holder = NULL WHERE key = %s AND epoch = %s",
            (raw(lease.key), lease.epoch),
        )

    def holder(self, key: str) -> Holder | None:
        return self._lease(key, lock=False)[1]

    def _lease(self, key: str, *, lock: bool = True) -> tuple[int, Holder | None]:
        sql = "SELECT epoch, holder FROM segue.lease WHERE key = %s"
        for epoch, data in self.rows(sql + (" FOR UPDATE" if lock else ""), (raw(key),)):
            return epoch, None if data is None else read(data, Holder)
        return 0, None
