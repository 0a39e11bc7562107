"""Runs in PostgreSQL; see `segue.runs.store.port`. The log is the truth, and each entry is kept in
one transaction with all that is made from it."""

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from segue.core.runs.types import AnyDecision, AnyFact, Created, Run
from segue.fleet import machines
from segue.fleet.database import FleetDatabase, kept, plain, raw, read
from segue.runs.store import leases, projection
from segue.runs.store.port import (
    Entry,
    Held,
    Holder,
    IsAlive,
    KeptAsk,
    KeptDecision,
    KeptLeg,
    KeptReading,
    KeptStop,
    KeptTimer,
    Lease,
    UnknownRun,
    run_key,
)
from segue.runs.store.projection import TABLES, TableChange

T = TypeVar("T")


class _Snapshot(Struct):
    data: Run


class _RunRow(Struct):
    task: str


class PostgresStore(FleetDatabase):
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
        self.machine = machine or leases.machine()
        self._is_alive = is_alive or partial(machines.is_alive, self)

    # The log

    def create(
        self,
        run: Run,
        *,
        after: Run | None = None,
        at: float | None = None,
        draw: float | None = None,
        decisions: Sequence[AnyDecision] = (),
    ) -> Entry:
        after = run if after is None else after
        entry = projection.first_entry(
            run, after, at=at, machine=self.machine, draw=draw, decisions=decisions
        )
        with self.alone():
            if self._is_known(run.id):
                raise ValueError(f"{run.id} is there already")
            self._keep(entry, after)
        return entry

    def append(
        self,
        run_after: Run,
        fact: AnyFact,
        *,
        at: float,
        draw: float | None = None,
        decisions: Sequence[AnyDecision] = (),
        epoch: int,
        taken: int = 0,
    ) -> Entry:
        if isinstance(fact, Created):
            raise ValueError("a run is created once, by `create`")
        name = raw(run_after.id)
        with self.alone():
            ((last,),) = self.rows("SELECT max(seq) FROM segue.event WHERE run = %s", (name,))
            if last is None:
                raise UnknownRun(f"{run_after.id}: there is no such run")
            self._must_hold(run_key(run_after.id), epoch)
            entry = projection.entry_of(
                run_after,
                fact,
                seq=last + 1,
                at=at,
                machine=self.machine,
                draw=draw,
                decisions=decisions,
            )
            self._keep(entry, run_after)
            if taken:
                sql = "DELETE FROM segue.ask WHERE run = %s AND number <= %s"
                self.rows(sql, (name, taken))
        return entry

    def _keep(self, entry: Entry, run: Run) -> None:
        self.rows(
            "INSERT INTO segue.event (run, seq, data) VALUES (%s, %s, %s)",
            (raw(entry.run), entry.seq, kept(entry)),
        )
        for change in projection.changes(entry, run):
            self._carry_out(change)

    def _carry_out(self, change: TableChange) -> None:
        key = kept(change.key)
        where = (change.table, key)
        if change.values is None:
            self.rows("DELETE FROM segue.row WHERE kind = %s AND key = %s", where)
            return
        row: dict[str, Any] = dict(zip(TABLES[change.table], change.key, strict=True))
        sql = "SELECT data FROM segue.row WHERE kind = %s AND key = %s FOR UPDATE"
        for (data,) in self.rows(sql, where):
            row = read(data, dict[str, Any])
        row.update(change.values)
        for name, value in change.once.items():
            row.setdefault(name, value)
        self.rows(
            "INSERT INTO segue.row (kind, key, run, data) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (kind, key) DO UPDATE SET data = excluded.data",
            (change.table, key, raw(str(change.key[0])), kept(row)),
        )

    def log(self, run_id: str, after_seq: int = 0) -> list[Entry]:
        sql = "SELECT data FROM segue.event WHERE run = %s AND seq > %s ORDER BY seq"
        return [read(data, Entry) for (data,) in self.rows(sql, (raw(run_id), after_seq))]

    # What is made from it

    def run(self, run_id: str) -> Run | None:
        found = self._snapshots("AND s.run = %s", (raw(run_id),))
        return found[0] if found else None

    def runs(
        self, cwd: str | None = None, *, unfinished: bool = False, limit: int | None = None
    ) -> list[Run]:
        found = self._snapshots("", ())
        found = [run for run in found if cwd is None or run.cwd == cwd]
        found = [run for run in found if not (unfinished and run.state.is_final)]
        return sorted(found, key=lambda run: (run.created_at, run.id), reverse=True)[:limit]

    def _snapshots(self, where: str, values: Sequence[object]) -> list[Run]:
        sql = (
            "SELECT s.data, r.data FROM segue.row s JOIN segue.row r ON r.run = s.run"  # noqa: S608
            f" WHERE s.kind = 'snapshot' AND r.kind = 'run' {where}"
        )
        return [
            replace(read(data, _Snapshot).data, task=read(row, _RunRow).task)
            for data, row in self.rows(sql, values)
        ]

    def find(self, prefix: str) -> list[str]:
        names = (plain(name) for (name,) in self.rows("SELECT DISTINCT run FROM segue.event"))
        return sorted(name for name in names if name.startswith(prefix))

    def legs(self, run_id: str) -> list[KeptLeg]:
        return sorted(self._rows("leg", KeptLeg, run_id), key=lambda leg: leg.leg)

    def sessions(self) -> list[tuple[str, str]]:
        rows = self.rows("SELECT data FROM segue.row WHERE kind = 'leg'")
        legs = [read(data, KeptLeg) for (data,) in rows]
        return [*{(leg.session_id, leg.run) for leg in legs if leg.session_id}]

    def readings(self, run_id: str) -> list[KeptReading]:
        return sorted(self._rows("reading", KeptReading, run_id), key=lambda row: row.seq)

    def stops(self, run_id: str) -> list[KeptStop]:
        return sorted(self._rows("stop", KeptStop, run_id), key=lambda row: row.seq)

    def decisions(self, run_id: str) -> list[KeptDecision]:
        found = self._rows("decision", KeptDecision, run_id)
        return sorted(found, key=lambda row: (row.seq, row.place))

    def timers(self, due_before: float | None = None) -> list[KeptTimer]:
        rows = self.rows("SELECT data FROM segue.row WHERE kind = 'timer'")
        found = [read(data, KeptTimer) for (data,) in rows]
        due = [row for row in found if due_before is None or row.until <= due_before]
        return sorted(due, key=lambda row: (row.until, row.run))

    def _rows(self, kind: str, of: type[T], run_id: str) -> list[T]:
        sql = "SELECT data FROM segue.row WHERE kind = %s AND run = %s"
        return [read(data, of) for (data,) in self.rows(sql, (kind, raw(run_id)))]

    # What is too large for the log

    def keep_checkpoint(
        self, run_id: str, number: int, checkpoint: dict[str, Any], at: float
    ) -> None:
        with self.alone():
            self._must_know(run_id)
            self.rows(
                "INSERT INTO segue.checkpoint (run, number, data) VALUES (%s, %s, %s)"
                " ON CONFLICT (run, number) DO UPDATE SET data = excluded.data",
                (raw(run_id), number, kept(checkpoint)),
            )

    def checkpoint(self, run_id: str, number: int) -> dict[str, Any] | None:
        sql = "SELECT data FROM segue.checkpoint WHERE run = %s AND number = %s"
        for (data,) in self.rows(sql, (raw(run_id), number)):
            return read(data, dict[str, Any])
        return None

    def forget(self, run_id: str, *, epoch: int) -> None:
        with self.alone():
            self._must_know(run_id)
            self._must_hold(run_key(run_id), epoch)
            for table in ("words", "result", "ask", "checkpoint", "row", "event"):
                self.rows(f"DELETE FROM segue.{table} WHERE run = %s", (raw(run_id),))  # noqa: S608
            self.rows("DELETE FROM segue.lease WHERE key = %s", (raw(run_key(run_id)),))

    # What other processes want

    def ask(self, run_id: str, what: str, at: float) -> int:
        with self.alone():
            self._must_know(run_id)
            sql = "INSERT INTO segue.ask (run, what, at) VALUES (%s, %s, %s) RETURNING number"
            ((number,),) = self.rows(sql, (raw(run_id), raw(what), at))
            return int(number)

    def asks(self, run_id: str, after: int = 0) -> list[KeptAsk]:
        sql = (
            "SELECT number, what, at FROM segue.ask WHERE run = %s AND number > %s ORDER BY number"
        )
        return [
            KeptAsk(number=number, run=run_id, what=plain(what), at=at)
            for number, what, at in self.rows(sql, (raw(run_id), after))
        ]

    def _is_known(self, run_id: str) -> bool:
        sql = "SELECT 1 FROM segue.event WHERE run = %s LIMIT 1"
        return bool(self.rows(sql, (raw(run_id),)))

    def _must_know(self, run_id: str) -> None:
        if not self._is_known(run_id):
            raise UnknownRun(f"{run_id}: there is no such run")

    # Who may write

    def acquire(self, key: str, holder: Holder, now: float, *, seize: bool = False) -> Lease:
        with self.alone():
            self.rows(
                "INSERT INTO segue.lease (key, epoch) VALUES (%s, 0) ON CONFLICT DO NOTHING",
                (raw(key),),
            )
            epoch, old = self._lease(key)
            if old is not None and not seize and self._is_alive(old):
                raise Held(key, old)
            self.rows(
                "UPDATE segue.lease SET epoch = %s, holder = %s WHERE key = %s",
                (epoch + 1, kept(holder), raw(key)),
            )
        return Lease(key, epoch + 1)

    def release(self, lease: Lease) -> None:
        # The row stays, so that an epoch never comes twice.
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

    def _must_hold(self, key: str, epoch: int) -> None:
        now, holder = self._lease(key)
        if holder is None or now != epoch:
            raise leases.lost(key, holder)
