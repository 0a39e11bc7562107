"""A store in memory, for tests and simulations: it ends with the process, and otherwise behaves
the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, Self, TypeVar

from msgspec import convert
from msgspec.structs import replace

from segue.core.runs.types import Run
from segue.runs.store import leases, projection
from segue.runs.store.coding import pack, unpack
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
from segue.runs.store.rules import StoreRules, changed_row, chosen

T = TypeVar("T")
Table = dict[tuple[Any, ...], dict[str, Any]]


class MemoryStore(StoreRules):
    """A store in memory; see `port.Store`. Threads may share it."""

    def __init__(self, *, machine: str = "memory", is_alive: IsAlive = leases.is_alive) -> None:
        self._machine = machine
        self._is_alive = is_alive
        self._lock = RLock()
        self._log: dict[str, list[str | bytes]] = {}
        self._tables: dict[str, Table] = {name: {} for name in TABLES}
        self._checkpoints: dict[tuple[str, int], str | bytes] = {}
        self._asks: list[StoredAsk] = []
        self._asked = 0
        self._leases: dict[str, tuple[int, Holder | None]] = {}
        self._version = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Releases nothing; the store stays readable."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nothing is undone: whatever can fail is checked before the first change."""
        with self._lock:
            yield
            self._version += 1

    # The log

    def last_seq(self, run_id: str) -> int:
        return len(self._log.get(run_id, ()))

    def write_entry(self, entry: Entry) -> None:
        self._log.setdefault(entry.run, []).append(pack(entry))

    def change_row(self, change: TableChange) -> None:
        table = self._tables[change.table]
        if change.values is None:
            table.pop(change.key, None)
        else:
            table[change.key] = changed_row(table.get(change.key), change)

    def drop_asks(self, run_id: str, up_to: int) -> None:
        self._asks = [ask for ask in self._asks if ask.run != run_id or ask.number > up_to]

    def log(self, run_id: str, after_seq: int = 0) -> list[Entry]:
        with self._lock:
            return [unpack(data, Entry) for data in self._log.get(run_id, [])[max(0, after_seq) :]]

    # Derived from the log

    def run(self, run_id: str) -> Run | None:
        with self._lock:
            row = self._tables["snapshot"].get((run_id,))
            if row is None:
                return None
            run: Run = replace(row["data"], task=self._tables["run"][run_id,]["task"])
            return run

    def runs(
        self, cwd: str | None = None, *, unfinished: bool = False, limit: int | None = None
    ) -> list[Run]:
        with self._lock:
            found = [run for name in self._log if (run := self.run(name)) is not None]
        return chosen(found, cwd, unfinished=unfinished, limit=limit)

    def find(self, prefix: str) -> list[str]:
        with self._lock:
            return sorted(name for name in self._log if name.startswith(prefix))

    def legs(self, run_id: str) -> list[StoredLeg]:
        return self._records_of("leg", StoredLeg, run_id)

    def sessions(self) -> list[tuple[str, str]]:
        with self._lock:
            rows = [*self._tables["leg"].values()]
            begun = [(row["origin"], name) for (name,), row in self._tables["run"].items()]
        found = {(row["session_id"], row["run"]) for row in rows if row.get("session_id")}
        return [*found, *(pair for pair in begun if pair[0] and pair not in found)]

    def readings(self, run_id: str) -> list[StoredReading]:
        return self._records_of("reading", StoredReading, run_id)

    def stops(self, run_id: str) -> list[StoredStop]:
        return self._records_of("stop", StoredStop, run_id)

    def decisions(self, run_id: str) -> list[StoredDecision]:
        return self._records_of("decision", StoredDecision, run_id)

    def timers(self, due_before: float | None = None) -> list[StoredTimer]:
        with self._lock:
            rows = [convert(row, StoredTimer) for row in self._tables["timer"].values()]
        due = [row for row in rows if due_before is None or row.until <= due_before]
        return sorted(due, key=lambda row: (row.until, row.run))

    def rebuild(self, step: StepFunction | None = None) -> list[Drift]:
        """Derives everything from the log again; see the SQLite store."""
        step = step or projection.todays_machine()
        drifts: list[Drift] = []
        with self._lock:
            replayed = [
                pair for name in self._log for pair in projection.replay(self.log(name), step)
            ]
            self._tables = {name: {} for name in TABLES}
            for entry, run in replayed:
                drifts += projection.drift(entry, run)
                for change in projection.changes(entry, run):
                    self.change_row(change)
        return drifts

    def _records_of(self, table: str, kind: type[T], run_id: str) -> list[T]:
        with self._lock:
            rows = sorted(self._tables[table].items())
            return [
                convert(row, kind, from_attributes=True) for key, row in rows if key[0] == run_id
            ]

    # What is too large for the log

    def keep_checkpoint(
        self, run_id: str, number: int, checkpoint: dict[str, Any], at: float
    ) -> None:
        with self.alone():
            self.must_know(run_id)
            self._checkpoints[run_id, number] = pack(checkpoint)

    def checkpoint(self, run_id: str, number: int) -> dict[str, Any] | None:
        with self._lock:
            data = self._checkpoints.get((run_id, number))
        return None if data is None else unpack(data, dict[str, Any])

    def forget(self, run_id: str, *, epoch: int) -> None:
        with self.alone():
            self.must_know(run_id)
            self.must_hold(run_key(run_id), epoch)
            del self._log[run_id], self._leases[run_key(run_id)]
            for table in self._tables.values():
                for key in [key for key in table if key[0] == run_id]:
                    del table[key]
            for number in [key for key in self._checkpoints if key[0] == run_id]:
                del self._checkpoints[number]
            self._asks = [ask for ask in self._asks if ask.run != run_id]

    # Requests of other processes

    def ask(self, run_id: str, what: str, at: float) -> int:
        with self.alone():
            self.must_know(run_id)
            self._asked += 1
            self._asks.append(StoredAsk(number=self._asked, run=run_id, what=what, at=at))
            return self._asked

    def asks(self, run_id: str, after: int = 0) -> list[StoredAsk]:
        with self._lock:
            return [ask for ask in self._asks if ask.run == run_id and ask.number > after]

    def version(self) -> int:
        return self._version

    # Leases

    def lease_of(self, key: str) -> tuple[int, Holder | None]:
        return self._leases.get(key, (0, None))

    def give_lease(self, key: str, epoch: int, holder: Holder, now: float) -> None:
        self._leases[key] = epoch, holder

    def release(self, lease: Lease) -> None:
        with self._lock:
            epoch, holder = self.lease_of(lease.key)
            if epoch == lease.epoch and holder is not None:
                self._leases[lease.key] = epoch, None
                self._version += 1

    def holder(self, key: str) -> Holder | None:
        with self._lock:
            return self.lease_of(key)[1]
