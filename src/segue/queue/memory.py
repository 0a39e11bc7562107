"""A queue in memory: for tests of what is built on a queue, and as the simplest form of the
contract."""

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Self

from segue.core.queue.types import Caps, Task
from segue.queue.base import BaseQueue
from segue.queue.port import task_key
from segue.runs.store import leases
from segue.runs.store.port import Holder, IsAlive, Lease


class SharedTasks:
    """The data that all queues opened on it share."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.unfinished: dict[str, Task] = {}  # of these
        self.epochs: dict[str, int] = {}
        self.holders: dict[str, Holder] = {}
        self.writes = 0
        self.last = 0
        self.lock = threading.RLock()


class MemoryQueue(BaseQueue):
    """See `port.Queue`."""

    def __init__(
        self, shared: SharedTasks | None = None, *, is_alive: IsAlive = leases.is_alive
    ) -> None:
        self._shared, self._is_alive = shared or SharedTasks(), is_alive

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def task(self, task_id: str) -> Task | None:
        return self._shared.tasks.get(task_id)

    def tasks(self, *, unfinished: bool = False) -> list[Task]:
        found = self._shared.unfinished if unfinished else self._shared.tasks
        return sorted(found.values(), key=lambda task: task.number)

    def version(self) -> int:
        return self._shared.writes

    def alone(self) -> AbstractContextManager[object]:
        return self._shared.lock

    def _ids(self) -> Iterable[str]:
        return self._shared.tasks

    def _locked(self, task_id: str) -> Task | None:
        return self.task(task_id)

    def _that_count(
        self, task: Task, machine: str, account: str, caps: Caps
    ) -> list[tuple[Task, Holder | None]]:
        return [(each, self.holder(each.id)) for each in self.tasks(unfinished=True)]

    def _insert(self, task: Task) -> int:
        self._shared.last += 1
        return self._shared.last

    def _delete(self, task_id: str) -> None:
        del self._shared.tasks[task_id]
        self._shared.writes += 1

    def _lease(self, task_id: str) -> tuple[int, Holder | None]:
        return self._shared.epochs.get(task_id, 0), self._shared.holders.get(task_id)

    def _release(self, task_id: str) -> None:
        del self._shared.holders[task_id]

    def _give(self, task_id: str, holder: Holder) -> Lease:
        epoch = self._shared.epochs[task_id] = self._shared.epochs.get(task_id, 0) + 1
        self._shared.holders[task_id] = holder
        self._shared.writes += 1
        return Lease(task_key(task_id), epoch)

    def _put(self, task: Task) -> Task:
        self._shared.tasks[task.id] = task
        if task.state.is_final:
            self._shared.unfinished.pop(task.id, None)
        else:
            self._shared.unfinished[task.id] = task
        self._shared.writes += 1
        return task
