"""What a queue is: tasks in their order, and who may carry which.

`segue.testing.queues` holds the tests that every queue must pass.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, Self

from segue.core.queue.types import Caps, Task
from segue.errors import InputError
from segue.runs.store.port import Holder, Lease


class UnknownTask(InputError):  # noqa: N818 - told to the user as it is
    """There is no such task."""


class NotQueued(InputError):  # noqa: N818
    """The task has begun, or has ended: it can no longer be changed."""


def task_key(task_id: str) -> str:
    """What a lease on a task is called."""
    return f"task:{task_id}"


class Candidate(NamedTuple):
    """A task that may start, and with whom."""

    task: str
    agent: str
    account: str


class Queue(Protocol):
    """Tasks, kept. Each writing call is one transaction: all of it is kept, or nothing; once it
    returned, it is kept for good. Raises StateError with one line if the machine does not let it.
    """

    def close(self) -> None:
        """Releases everything."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    # What users do

    def submit(self, tasks: Sequence[Task]) -> list[Task]:
        """Adds them in this order, all or none; what is returned has numbers. Raises ValueError if
        one already exists, UnknownTask if one comes after a task that is not."""

    def edit(self, task_id: str, change: Callable[[Task], Task]) -> Task:
        """Changes what was asked for, and tells the task as it is now. Raises NotQueued unless it
        is queued and nobody has begun it, UnknownTask."""

    def cancel(self, task_id: str, at: float) -> Task:
        """A task that nobody carries is cancelled when this returns; of another `cancel_asked`
        is set, and whoever carries it ends it. One that has ended stays as it is."""

    def retry(self, task_id: str, at: float) -> Task:
        """Puts a task that has ended, and was not done, in the queue again; its run and its tree
        stay its own. Raises NotQueued for one that is done or not over."""

    def forget(self, task_id: str) -> None:
        """Deletes a task that has ended. Raises NotQueued for one that is not."""

    # What is known

    def task(self, task_id: str) -> Task | None:
        """As it was saved last."""

    def tasks(self, *, unfinished: bool = False) -> list[Task]:
        """In the order in which they were submitted."""

    def upcoming(self, machine: str, now: float) -> list[Task]:
        """Those that have not ended and that a worker of this machine has to look at now, in the
        order of their numbers: all, or, of a long queue, a part that changes with every call."""

    def with_trees(self, machine: str) -> list[Task]:
        """Those that have ended and whose tree may be on this machine."""

    def find(self, prefix: str) -> list[str]:
        """The ids that begin so, in order."""

    def holder(self, task_id: str) -> Holder | None:
        """Who was given it last and has not given it back; may be dead."""

    def lives(self, holder: Holder) -> bool:
        """Whether a holder may still be at work, as far as can be told from here."""

    def version(self) -> int:
        """Another number once another process has written. Costs next to nothing."""

    # Who carries what

    def claim(
        self, task_id: str, holder: Holder, now: float, *, agent: str, account: str, caps: Caps
    ) -> Lease | None:
        """The right to carry a task, in an epoch of its own; the task is running from now on.
        None if it has ended or cancelled, if a living process has it, if another task is in
        its folder, or if a cap is reached: of two that ask at once, one is given it."""

    def claim_first(
        self, wanted: Sequence[Candidate], holder: Holder, now: float, *, caps: Caps
    ) -> tuple[Candidate, Lease] | None:
        """The same for the first of several that can be had; None if none can."""

    def take_over(self, lease: Lease, holder: Holder, now: float) -> Lease:
        """The same right for another process, in a new epoch. Raises LeaseLost if it was lost."""

    def save(self, task: Task, lease: Lease, *, release: bool = False) -> None:
        """Keeps what became of a task; `release`: and gives it back. What a user asked meanwhile
        (`cancel_asked`) stays. Raises LeaseLost."""

    def note(self, task: Task) -> None:
        """Keeps what is known of the tree of a task that has ended (`work`, `is_tree_removed`).
        Does nothing if the task is active again."""
