"""The queue in an SQLite file, for several processes at once. Any of them may be killed at any
time."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Self

from msgspec.structs import replace

from segue.core.queue.types import Caps, Task
from segue.queue import rules
from segue.queue.port import Candidate, task_key
from segue.runs.store import leases
from segue.runs.store.coding import cell, pack, text
from segue.runs.store.file import RunsFile
from segue.runs.store.port import Holder, IsAlive, Lease
from segue.system.files.sqlite import Place


class SqliteQueue(RunsFile):
    """See `port.Queue`."""

    migrations: Place = os.path.join(os.path.dirname(__file__), "migrations")

    def __init__(self, place: Place, *, is_alive: IsAlive = leases.is_alive) -> None:
        super().__init__(place)
        self._is_alive = is_alive

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # What users do

    def submit(self, tasks: Sequence[Task]) -> list[Task]:
        added = []
        with self.alone():
            rules.check_after(tasks, dict.fromkeys(self._ids()))
            for task in tasks:
                sql = "INSERT INTO task (id, state, is_over, data) VALUES (?, '', 0, '')"
                number = self.db.execute(sql, (cell(task.id),)).lastrowid or 0
                added.append(self._put(replace(task, number=number)))
        return added

    def edit(self, task_id: str, change: Callable[[Task], Task]) -> Task:
        with self.alone():
            task = self._known(task_id)
            new = rules.edited(task, change(task), self._is_held(task_id))
            rules.check_after((replace(new, id=""),), dict.fromkeys(self._ids()))
            return self._put(new)

    def cancel(self, task_id: str, at: float) -> Task:
        with self.alone():
            return self._put(rules.cancelled(self._known(task_id), self._is_held(task_id), at))

    def retry(self, task_id: str, at: float) -> Task:
        with self.alone():
            return self._put(rules.retried(self._known(task_id)))

    def forget(self, task_id: str) -> None:
        with self.alone():
            rules.must_be_over(self._known(task_id))
            self.db.execute("DELETE FROM task WHERE id = ?", (cell(task_id),))
        with self.guarded():
            self.drop_traces()

    # What is known

    def task(self, task_id: str) -> Task | None:
        for (data,) in self.rows("SELECT data FROM task WHERE id = ?", (cell(task_id),)):
            return self._task(data)
        return None

    def tasks(self, *, unfinished: bool = False) -> list[Task]:
        where = " WHERE is_over = 0" if unfinished else ""
        sql = f"SELECT data FROM task{where} ORDER BY number"  # noqa: S608
        return [self._task(data) for (data,) in self.rows(sql)]

    def upcoming(self, machine: str, now: float) -> list[Task]:
        return self.tasks(unfinished=True)

    def with_trees(self, machine: str) -> list[Task]:
        return [task for task in self.tasks() if task.state.is_final]

    def find(self, prefix: str) -> list[str]:
        return sorted(name for name in self._ids() if name.startswith(prefix))

    def holder(self, task_id: str) -> Holder | None:
        return self._lease(task_id)[1]

    def lives(self, holder: Holder) -> bool:
        return self._is_alive(holder)

    def version(self) -> int:
        ((number,),) = self.rows("PRAGMA data_version")
        return int(number)

    # Who carries what

    def claim(
        self, task_id: str, holder: Holder, now: float, *, agent: str, account: str, caps: Caps
    ) -> Lease | None:
        with self.alone():
            task = self._known(task_id)
            found = self.rows("SELECT data, holder FROM task WHERE is_over = 0")
            rows = [(self._task(data), self._holder(held)) for data, held in found]
            if not rules.may_claim(
                task, rows, me=holder, account=account, caps=caps, is_alive=self._is_alive
            ):
                return None
            self._put(rules.claimed(task, now, agent=agent, account=account))
            return self._give(task_id, holder)

    def claim_first(
        self, wanted: Sequence[Candidate], holder: Holder, now: float, *, caps: Caps
    ) -> tuple[Candidate, Lease] | None:
        for each in wanted:
            lease = self.claim(
                each.task, holder, now, agent=each.agent, account=each.account, caps=caps
            )
            if lease is not None:
                return each, lease
        return None

    def take_over(self, lease: Lease, holder: Holder, now: float) -> Lease:
        with self.alone():
            return self._give(self._held(lease).id, holder)

    def save(self, task: Task, lease: Lease, *, release: bool = False) -> None:
        with self.alone():
            self._put(rules.saved(self._held(lease), task))
            if release:
                self.db.execute("UPDATE task SET holder = NULL WHERE id = ?", (cell(task.id),))

    def note(self, task: Task) -> None:
        with self.alone():
            now = self.task(task.id)
            if now is not None and now.state.is_final:
                self._put(replace(now, work=task.work, is_tree_removed=task.is_tree_removed))

    def _known(self, task_id: str) -> Task:
        if (found := self.task(task_id)) is None:
            raise rules.unknown(task_id)
        return found

    def _is_held(self, task_id: str) -> bool:
        holder = self.holder(task_id)
        return holder is not None and self._is_alive(holder)

    def _lease(self, task_id: str) -> tuple[int, Holder | None]:
        sql = "SELECT epoch, holder FROM task WHERE id = ?"
        for epoch, data in self.rows(sql, (cell(task_id),)):
            return epoch, self._holder(data)
        return 0, None

    def _held(self, lease: Lease) -> Task:
        task_id = lease.key.removeprefix(task_key(""))
        epoch, holder = self._lease(task_id)
        if holder is None or epoch != lease.epoch:
            raise leases.lost(lease.key, holder)
        return self._known(task_id)

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
