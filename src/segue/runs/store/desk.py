"""What processes tell each other: who may write, and what is wanted of whoever does."""

from segue.runs.store import leases
from segue.runs.store.coding import cell, pack
from segue.runs.store.file import RunsFile
from segue.runs.store.port import Held, Holder, IsAlive, KeptAsk, Lease, UnknownRun
from segue.system.files.sqlite import Place


class RunsDesk(RunsFile):
    """The part of `port.Store` that is not about the log."""

    def __init__(self, place: Place, is_alive: IsAlive) -> None:
        super().__init__(place)
        self._is_alive = is_alive

    # What other processes want

    def ask(self, run_id: str, what: str, at: float) -> int:
        with self.alone():
            self.must_know(run_id)
            sql = "INSERT INTO ask (run, what, at) VALUES (?, ?, ?)"
            return self.db.execute(sql, (cell(run_id), cell(what), at)).lastrowid or 0

    def asks(self, run_id: str, after: int = 0) -> list[KeptAsk]:
        sql = "SELECT number, run, what, at FROM ask WHERE run = ? AND number > ? ORDER BY number"
        names = KeptAsk.__struct_fields__
        return [self.made(row, names, KeptAsk) for row in self.rows(sql, (cell(run_id), after))]

    def version(self) -> int:
        ((number,),) = self.rows("PRAGMA data_version")
        return int(number)

    def must_know(self, run_id: str) -> None:
        """Raises UnknownRun."""
        if not self.rows("SELECT 1 FROM run WHERE id = ?", (cell(run_id),)):
            raise UnknownRun(f"{run_id}: there is no such run")

    # Who may write

    def acquire(self, key: str, holder: Holder, now: float, *, seize: bool = False) -> Lease:
        with self.alone():
            epoch, old = self._lease(key)
            if old is not None and not seize and self._is_alive(old):
                raise Held(key, old)
            self.db.execute(
                "INSERT OR REPLACE INTO lease (key, epoch, at, holder) VALUES (?, ?, ?, ?)",
                (cell(key), epoch + 1, now, pack(holder)),
            )
        return Lease(key, epoch + 1)

    def release(self, lease: Lease) -> None:
        # The row stays, so that an epoch never comes twice.
        with self.alone():
            self.db.execute(
                "UPDATE lease SET holder = NULL WHERE key = ? AND epoch = ?",
                (cell(lease.key), lease.epoch),
            )

    def holder(self, key: str) -> Holder | None:
        return self._lease(key)[1]

    def _lease(self, key: str) -> tuple[int, Holder | None]:
        for epoch, data in self.rows("SELECT epoch, holder FROM lease WHERE key = ?", (cell(key),)):
            return epoch, data and self.read(data, Holder, f"the lease of {key}")
        return 0, None

    def must_hold(self, key: str, epoch: int) -> None:
        """Raises LeaseLost."""
        now, holder = self._lease(key)
        if holder is None or now != epoch:
            raise leases.lost(key, holder)
