"""What every queue does in the same way, wherever its tasks are stored; see `port.Queue`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from msgspec.structs import replace

from segue.core.queue.types import Caps, Task
from segue.queue import rules
from segue.queue.port import Candidate, task_key
from segue.runs.store import leases
from segue.runs.store.port import Holder, IsAlive, Lease


class BaseQueue(ABC):
    """The rules of every queue. Subclasses store the tasks and their leases, and say which holders
    are alive."""

    _is_alive: IsAlive

    @abstractmethod
    def alone(self) -> AbstractContextManager[object]:
        """A transaction: nobody else writes while it lasts, and everything in it is written or
        nothing is."""

    @abstractmethod
    def tasks(self, *, unfinished: bool = False) -> list[Task]: ...

    @abstractmethod
    def _ids(self) -> Iterable[str]: ...

    @abstractmethod
    def _locked(self, task_id: str) -> Task | None:
        """The task, which nobody else can change until `alone` ends."""

    @abstractmethod
    def _that_count(
        self, task: Task, machine: str, account: str, caps: Caps
    ) -> list[tuple[Task, Holder | None]]:
        """The unfinished tasks that can prevent a claim, each with its holder."""

    @abstractmethod
    def _insert(self, task: Task) -> int:
        """Stores a new task; returns its number."""

    @abstractmethod
    def _delete(self, task_id: str) -> None: ...

    @abstractmethod
    def _put(self, task: Task) -> Task: ...

    @abstractmethod
    def _lease(self, task_id: str) -> tuple[int, Holder | None]:
        """The epoch and the holder of a task; (0, None) if it is unknown."""

    @abstractmethod
    def _give(self, task_id: str, holder: Holder) -> Lease: ...

    @abstractmethod
    def _release(self, task_id: str) -> None: ...

    # Changes by users

    def submit(self, tasks: Sequence[Task]) -> list[Task]:
        with self.alone():
            rules.check_after(tasks, dict.fromkeys(self._ids()))
            return [self._put(replace(task, number=self._insert(task))) for task in tasks]

    def edit(self, task_id: str, change: Callable[[Task], Task]) -> Task:
        with self.alone():
            task = self._known_task(task_id)
            new = rules.edited(task, change(task), self._is_held(task_id))
            rules.check_after((replace(new, id=""),), dict.fromkeys(self._ids()))
            return self._put(new)

    def cancel(self, task_id: str, at: float) -> Task:
        with self.alone():
            return self._put(rules.cancelled(self._known_task(task_id), self._is_held(task_id), at))

    def retry(self, task_id: str, at: float) -> Task:
        with self.alone():
            return self._put(rules.retried(self._known_task(task_id)))

    def forget(self, task_id: str) -> None:
        with self.alone():
            rules.must_be_over(self._known_task(task_id))
            self._delete(task_id)

    # Queries

    def upcoming(self, machine: str, now: float) -> list[Task]:
        return self.tasks(unfinished=True)

    def with_trees(self, machine: str) -> list[Task]:
        return [task for task in self.tasks() if task.state.is_final]

    def find(self, prefix: str) -> list[str]:
        return sorted(name for name in self._ids() if name.startswith(prefix))

    def holder(self, task_id: str) -> Holder | None:
        return self._lease(task_id)[1]

    def is_alive(self, holder: Holder) -> bool:
        return self._is_alive(holder)

    # Claims and leases

    def claim(
        self, task_id: str, holder: Holder, now: float, *, agent: str, account: str, caps: Caps
    ) -> Lease | None:
        with self.alone():
            task = self._known_task(task_id)
            if not rules.may_claim(
                task,
                self._that_count(task, holder.machine, account, caps),
                me=holder,
                account=account,
                caps=caps,
                is_alive=self._is_alive,
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
            return self._give(self._leased_task(lease).id, holder)

    def save(self, task: Task, lease: Lease, *, release: bool = False) -> None:
        with self.alone():
            self._put(rules.saved(self._leased_task(lease), task))
            if release:
                self._release(task.id)

    def note(self, task: Task) -> None:
        with self.alone():
            now = self._locked(task.id)
            if now is not None and now.state.is_final:
                self._put(replace(now, work=task.work, is_tree_removed=task.is_tree_removed))

    def _known_task(self, task_id: str) -> Task:
        if (found := self._locked(task_id)) is None:
            raise rules.unknown(task_id)
        return found

    def _is_held(self, task_id: str) -> bool:
        holder = self.holder(task_id)
        return holder is not None and self._is_alive(holder)

    def _leased_task(self, lease: Lease) -> Task:
        """The task of a lease. Raises LeaseLost."""
        task_id = lease.key.removeprefix(task_key(""))
        task = self._locked(task_id)
        epoch, holder = self._lease(task_id)
        if holder is None or epoch != lease.epoch:
            raise leases.lease_lost(lease.key, holder)
        if task is None:
            raise rules.unknown(task_id)
        return task
