"""The queue in an SQLite file, for several processes at once. Any of them may be killed at any
time."""

import os
from typing import Any, Self

from segue.core.queue.types import Caps, Task
from segue.queue.base import BaseQueue
from segue.queue.port import task_key
from segue.runs.store import leases
from segue.runs.store.coding import cell, pack, text
from segue.runs.store.file import RunsFile
from segue.runs.store.port import Holder, IsAlive, Lease
from segue.system.files.sqlite import Place


class SqliteQueue(RunsFile, BaseQueue):
    """See `port.Queue`."""

    migrations: Place = os.path.join(os.path.dirname(__file__), "migrations")

    def __init__(self, place: Place, *, is_alive: IsAlive = leases.is_alive) -> None:
        super().__init__(place)
        self._is_alive = is_alive

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def forget(self, task_id: str) -> None:
        super().forget(task_id)
        with self.guarded():
            self.drop_traces()

    def task(self, task_id: str) -> Task | None:
        for (data,) in self.rows("SELECT data FROM task WHERE id = ?", (cell(task_id),)):
            return self._task(data)
        return None

    def tasks(self, *, unfinished: bool = False) -> list[Task]:
        where = " WHERE is_over = 0" if unfinished else ""
        sql = f"SELECT data FROM task{where} ORDER BY number"  # noqa: S608
        return [self._task(data) for (data,) in self.rows(sql)]

    def version(self) -> int:
        ((number,),) = self.rows("PRAGMA data_version")
        return int(number)

    def _locked(self, task_id: str) -> Task | None:
        return self.task(task_id)

    def _that_count(
        self, task: Task, machine: str, account: str, caps: Caps
    ) -> list[tuple[Task, Holder | None]]:
        found = self.rows("SELECT data, holder FROM task WHERE is_over = 0")
        return [(self._task(data), self._holder(held)) for data, held in found]

    def _insert(self, task: Task) -> int:
        sql = "INSERT INTO task (id, state, is_over, data) VALUES (?, '', 0, '')"
        return self.db.execute(sql, (cell(task.id),)).lastrowid or 0

    def _delete(self, task_id: str) -> None:
        self.db.execute("DELETE FROM task WHERE id = ?", (cell(task_id),))

    def _release(self, task_id: str) -> None:
        self.db.execute("UPDATE task SET holder = NULL WHERE id = ?", (cell(task_id),))

    def _lease(self, task_id: str) -> tuple[int, Holder | None]:
        sql = "SELECT epoch, holder FROM task WHERE id = ?"
        for epoch, data in self.rows(sql, (cell(task_id),)):
            return epoch, self._holder(data)
        return 0, None

    def _give(self, task_id: str, holder: Holder) -> Lease:
        sql = "UPDATE task SET epoch = epoch + 1, holder = ? WHERE id = ? RETURNING epoch"
        ((epoch,),) = self.rows(sql, (pack(holder), cell(task_id)))
        return Lease(task_key(task_id), epoch)

    def _put(self, task: Task) -> Task:
        self.db.execute(
            "UPDATE task SET state = ?, is_over = ?, data = ? WHERE id = ?",
            (task.state.value, int(task.state.is_final), pack(task), cell(task.id)),
        )
        return task

    def _ids(self) -> list[str]:
        return [text(name) for (name,) in self.rows("SELECT id FROM task")]

    def _task(self, data: Any) -> Task:
        return self.read(data, Task, "a task")

    def _holder(self, data: Any) -> Holder | None:
        return None if data is None else self.read(data, Holder, "who carries a task")
