"""The rules that all stores share: who may write to a run's log, and what an entry changes. A store
implements the row methods at the top, and inherits everything else. See `port.Store` for what
callers may rely on."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from segue.core.runs.types import AnyDecision, AnyFact, Created, Run
from segue.runs.store import leases, projection
from segue.runs.store.port import Entry, Held, Holder, IsAlive, Lease, UnknownRun, run_key
from segue.runs.store.projection import TABLES, TableChange


class StoreRules(ABC):
    """A log of runs. Subclasses implement how rows are stored."""

    _machine: str
    _is_alive: IsAlive

    @property
    def machine(self) -> str:
        """This machine's name, as entries hold it."""
        self._machine = self._machine or leases.machine()
        return self._machine

    # The rows, which each store implements

    @abstractmethod
    def alone(self) -> AbstractContextManager[None]:
        """A transaction: everything that is written in it is stored, or nothing is."""

    @abstractmethod
    def last_seq(self, run_id: str) -> int:
        """The number of a run's last entry; 0 if there is no such run."""

    @abstractmethod
    def write_entry(self, entry: Entry) -> None:
        """Adds an entry to its run's log."""

    @abstractmethod
    def change_row(self, change: TableChange) -> None:
        """Applies the change that an entry makes to a table derived from the log."""

    @abstractmethod
    def drop_asks(self, run_id: str, up_to: int) -> None:
        """Deletes a run's requests up to this number."""

    @abstractmethod
    def lease_of(self, key: str) -> tuple[int, Holder | None]:
        """The last epoch of a lease, and its holder; 0 and None if nobody ever had it."""

    @abstractmethod
    def give_lease(self, key: str, epoch: int, holder: Holder, now: float) -> None:
        """Records who holds a lease."""

    # The rules

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
            if self.last_seq(run.id):
                raise ValueError(f"{run.id} already exists")
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
        with self.alone():
            last = self.must_know(run_after.id)
            self.must_hold(run_key(run_after.id), epoch)
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
                self.drop_asks(run_after.id, taken)
        return entry

    def _keep(self, entry: Entry, run: Run) -> None:
        self.write_entry(entry)
        for change in projection.changes(entry, run):
            self.change_row(change)

    def acquire(self, key: str, holder: Holder, now: float, *, seize: bool = False) -> Lease:
        with self.alone():
            epoch, old = self.lease_of(key)
            if old is not None and not seize and self._is_alive(old):
                raise Held(key, old)
            self.give_lease(key, epoch + 1, holder, now)
        return Lease(key, epoch + 1)

    def must_know(self, run_id: str) -> int:
        """The number of a run's last entry. Raises UnknownRun."""
        if not (last := self.last_seq(run_id)):
            raise UnknownRun(f"{run_id}: no such run")
        return last

    def must_hold(self, key: str, epoch: int) -> None:
        """Raises LeaseLost unless the caller holds the lease in this epoch."""
        now, holder = self.lease_of(key)
        if holder is None or now != epoch:
            raise leases.lease_lost(key, holder)


def changed_row(row: dict[str, Any] | None, change: TableChange) -> dict[str, Any]:
    """The new row, for stores that write whole rows, after a change that does not delete it."""
    new = row or dict(zip(TABLES[change.table], change.key, strict=True))
    once = {name: value for name, value in change.once.items() if new.get(name) is None}
    return {**new, **(change.values or {}), **once}


def chosen(
    runs: Iterable[Run], cwd: str | None, *, unfinished: bool, limit: int | None
) -> list[Run]:
    """What `runs` returns, for stores that cannot select rows by their content."""
    found = [
        run for run in runs if cwd in (None, run.cwd) and not (unfinished and run.state.is_final)
    ]
    return sorted(found, key=lambda run: (run.created_at, run.id), reverse=True)[:limit]
