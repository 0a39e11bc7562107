"""A queue in memory: for tests of what is built on a queue, and as the simplest form of the
contract."""

import threading
from collections.abc import Callable, Sequence
from typing import Self

from msgspec.structs import replace

from segue.core.queue.types import Caps, Task
from segue.queue import rules
from segue.queue.port import Candidate, task_key
from segue.runs.store import leases
from segue.runs.store.port import Holder, IsAlive, Lease


class SharedTasks:
    """What is shared by those who open the same one."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.unfinished: dict[str, Task] = {}  # of these
        self.epochs: dict[str, int] = {}
        self.holders: dict[str, Holder] = {}
        self.writes = 0
        self.last = 0
        self.lock = threading.Lock()


class MemoryQueue:
    """See `port.Queue`."""

    def __init__(
        self, kept: SharedTasks | None = None, *, is_alive: IsAlive = leases.is_alive
    ) -> None:
        self._kept, self._is_alive = kept or SharedTasks(), is_alive

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def submit(self, tasks: Sequence[Task]) -> list[Task]:
        rules.check_after(tasks, self._kept.tasks)
        added = []
        for task in tasks:
            self._kept.last += 1
            added.append(self._put(replace(task, number=self._kept.last)))
        return added

    def edit(self, task_id: str, change: Callable[[Task], Task]) -> Task:
        task = self._known(task_id)
        new = rules.edited(task, change(task), self._is_held(task_id))
        rules.check_after((replace(new, id=""),), self._kept.tasks)
        return self._put(new)

    def cancel(self, task_id: str, at: float) -> Task:
        return self._put(rules.cancelled(self._known(task_id), self._is_held(task_id), at))

    def retry(self, task_id: str, at: float) -> Task:
        return self._put(rules.retried(self._known(task_id)))

    def forget(self, task_id: str) -> None:
        rules.must_be_over(self._known(task_id))
        del self._kept.tasks[task_id]
        self._kept.writes += 1

    def task(self, task_id: str) -> Task | None:
        return self._kept.tasks.get(task_id)

    def tasks(self, *, unfinished: bool = False) -> list[Task]:
        found = self._kept.unfinished if unfinished else self._kept.tasks
        return sorted(found.values(), key=lambda task: task.number)

    def upcoming(self, machine: str, now: float) -> list[Task]:
        return self.tasks(unfinished=True)

    def with_trees(self, machine: str) -> list[Task]:
        return [task for task in self.tasks() if task.state.is_final]

    def find(self, prefix: str) -> list[str]:
        return sorted(name for name in self._kept.tasks if name.startswith(prefix))

    def holder(self, task_id: str) -> Holder | None:
        return self._kept.holders.get(task_id)

    def lives(self, holder: Holder) -> bool:
        return self._is_alive(holder)

    def version(self) -> int:
        return self._kept.writes

    def claim(
        self, task_id: str, holder: Holder, now: float, *, agent: str, account: str, caps: Caps
    ) -> Lease | None:
        with self._kept.lock:
            task = self._known(task_id)
            rows = [(each, self.holder(each.id)) for each in self.tasks(unfinished=True)]
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
        return self._give(self._held(lease).id, holder)

    def save(self, task: Task, lease: Lease, *, release: bool = False) -> None:
        self._put(rules.saved(self._held(lease), task))
        if release:
            del self._kept.holders[task.id]

    def note(self, task: Task) -> None:
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

    def _held(self, lease: Lease) -> Task:
        task_id = lease.key.removeprefix(task_key(""))
        holder = self.holder(task_id)
        if holder is None or self._kept.epochs[task_id] != lease.epoch:
            raise leases.lost(lease.key, holder)
        return self._known(task_id)

    def _give(self, task_id: str, holder: Holder) -> Lease:
        epoch = self._kept.epochs[task_id] = self._kept.epochs.get(task_id, 0) + 1
        self._kept.holders[task_id] = holder
        self._kept.writes += 1
        return Lease(task_key(task_id), epoch)

    def _put(self, task: Task) -> Task:
        self._kept.tasks[task.id] = task
        if task.state.is_final:
            self._kept.unfinished.pop(task.id, None)
        else:
            self._kept.unfinished[task.id] = task
        self._kept.writes += 1
        return task
