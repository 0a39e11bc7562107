"""The interface of a queue: tasks in their order, and who may carry out which.

`segue.testing.queues` has the tests that every queue must pass.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, Self

from segue.core.queue.types import Caps, Task
from segue.errors import InputError
from segue.runs.store.port import Holder, Lease


class UnknownTask(InputError):  # noqa: N818 - told to the user as it is
    """No task has this id."""


class NotQueued(InputError):  # noqa: N818
    """The task has started or has ended: it can no longer be changed."""


def task_key(task_id: str) -> str:
    """The name of the lease on a task."""
    return f"task:{task_id}"


class Candidate(NamedTuple):
    """A task that may start, and with which agent."""

    task: str
    agent: str
    account: str


class Queue(Protocol):
    """Stores tasks. Each writing call is one transaction: everything is stored, or nothing; once
    the call has returned, the data is durable. Raises StateError with one line if the machine
    prevents that."""

    def close(self) -> None:
        """Releases everything."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    # Changes by users

    def submit(self, tasks: Sequence[Task]) -> list[Task]:
        """Adds tasks in this order, all or none; the returned tasks have numbers. Raises
        ValueError if one already exists, UnknownTask if one comes after a task that does not
        exist."""

    def edit(self, task_id: str, change: Callable[[Task], Task]) -> Task:
        """Changes the request, and returns the changed task. Raises NotQueued unless it is
        queued and nobody has started it, UnknownTask."""

    def cancel(self, task_id: str, at: float) -> Task:
        """Cancels a task that nobody carries out; for any other task, sets `cancel_asked`, and
        the process that carries it out ends it. A task that has ended stays as it is."""

    def retry(self, task_id: str, at: float) -> Task:
        """Queues a task again that has ended and is not done; it keeps its run and its worktree.
        Raises NotQueued for one that is done or has not ended."""

    def forget(self, task_id: str) -> None:
        """Deletes a task that has ended. Raises NotQueued for one that has not."""

    # Queries

    def task(self, task_id: str) -> Task | None:
        """The task as it was last saved."""

    def tasks(self, *, unfinished: bool = False) -> list[Task]:
        """All tasks, in the order in which they were submitted."""

    def upcoming(self, machine: str, now: float) -> list[Task]:
        """The unfinished tasks that a worker of this machine has to look at now, in the order of
        their numbers: all of them or, for a long queue, a part that changes with every call."""

    def with_trees(self, machine: str) -> list[Task]:
        """The tasks that have ended and whose worktree may be on this machine."""

    def find(self, prefix: str) -> list[str]:
        """The ids that begin with this text, in order."""

    def holder(self, task_id: str) -> Holder | None:
        """The last process that claimed the task and has not released it. It may be dead."""

    def is_alive(self, holder: Holder) -> bool:
        """Whether a holder may still be at work, as far as segue can tell from here."""

    def version(self) -> int:
        """A number that changes once another process has written. Costs next to nothing."""

    # Claims

    def claim(
        self, task_id: str, holder: Holder, now: float, *, agent: str, account: str, caps: Caps
    ) -> Lease | None:
        """Claims a task, in a new epoch; the task is running from now on. None if it has ended
        or was cancelled, if a live process has it, if another task is in its folder, or if a
        cap is reached: of two processes that ask at once, only one gets it."""

    def claim_first(
        self, wanted: Sequence[Candidate], holder: Holder, now: float, *, caps: Caps
    ) -> tuple[Candidate, Lease] | None:
        """Claims the first of these that is available; None if none is."""

    def take_over(self, lease: Lease, holder: Holder, now: float) -> Lease:
        """Transfers the claim to another process, in a new epoch. Raises LeaseLost if it was
        lost."""

    def save(self, task: Task, lease: Lease, *, release: bool = False) -> None:
        """Stores the result of a task; `release`: also releases it. What a user asked in the
        meantime (`cancel_asked`) stays. Raises LeaseLost."""

    def note(self, task: Task) -> None:
        """Stores what is known about the worktree of a task that has ended (`work`,
        `is_tree_removed`). Does nothing if the task is active again."""
