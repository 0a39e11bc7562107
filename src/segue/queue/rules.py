"""How a task changes. The rules are the same for every queue, wherever it stores its tasks."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from segue.core.queue.types import Caps, Task, TaskState
from segue.queue.port import NotQueued, UnknownTask
from segue.runs.store.port import Holder, IsAlive

LIVED_S = 60.0
"""A process that was lost after more than this does not suggest a recurring problem."""


def unknown(task_id: str) -> UnknownTask:
    """The error for an id that no task has."""
    return UnknownTask(f"no task is called {task_id}; `segue queue` lists them")


def edited(task: Task, new: Task, is_held: bool) -> Task:
    """The task after `edit`. What a worker has stored stays."""
    if task.state is not TaskState.QUEUED or is_held or task.run:
        state = "running" if is_held else task.state.value
        raise NotQueued(f"{task.id} is {state}: only a task that has not started can be changed")
    return replace(
        new, id=task.id, number=task.number, state=task.state, created_at=task.created_at
    )


def cancelled(task: Task, is_held: bool, at: float) -> Task:
    """The task after `cancel`."""
    if task.state.is_final:
        return task
    if is_held:
        return replace(task, cancel_asked=True)
    return replace(task, state=TaskState.CANCELLED, cancel_asked=True, ended_at=at, why="")


def retried(task: Task) -> Task:
    """The task after `retry`."""
    if not task.state.is_final or task.state is TaskState.DONE:
        raise NotQueued(f"{task.id} is {task.state.value}: there is nothing to retry")
    return replace(
        task, state=TaskState.QUEUED, cancel_asked=False, ended_at=None, outcome=None,
        tries=0, not_before=0.0, why="", is_limited=False, again=True,
    )  # fmt: skip


def must_be_over(task: Task) -> None:
    """Raises NotQueued unless the task has ended."""
    if not task.state.is_final:
        raise NotQueued(f"{task.id} is {task.state.value}: cancel it first")


def may_claim(
    task: Task,
    rows: Iterable[tuple[Task, Holder | None]],
    *,
    me: Holder,
    account: str,
    caps: Caps,
    is_alive: IsAlive,
) -> bool:
    """Whether a process may claim the task. `rows`: all unfinished tasks. A task that was cancelled
    while a process had it, and that is still unfinished, is ended by the next process."""
    if task.state.is_final:
        return False
    jobs = projects = accounts = 0
    for other, holder in rows:
        is_live = holder is not None and is_alive(holder)
        if other.id == task.id:
            if is_live:
                return False
            continue
        if other.here and other.place == task.place and (is_live or other.is_half_done):
            return False
        if not is_live or holder is None:
            continue
        jobs += holder.machine == me.machine
        projects += other.project == task.project
        accounts += other.account == account
    return (
        jobs < caps.jobs
        and (not caps.max_per_project or projects < caps.max_per_project)
        and (not caps.max_per_account or accounts < caps.max_per_account)
    )


def claimed(task: Task, now: float, *, agent: str, account: str) -> Task:
    """The task after a claim. If it was running before, its process is lost."""
    was_lost = task.state is TaskState.RUNNING
    is_again = was_lost and now - task.tried_at <= LIVED_S
    return replace(
        task,
        state=TaskState.RUNNING,
        agent=agent,
        account=account,
        why="",
        not_before=0.0,
        is_limited=False,
        tries=task.tries + 1 if is_again else 1 if was_lost else task.tries,
        tried_at=now,
        started_at=task.started_at if task.started_at is not None else now,
    )


def saved(now: Task, new: Task) -> Task:
    """What is stored of `new`: what a user asked for in the meantime stays."""
    return replace(new, cancel_asked=now.cancel_asked or new.cancel_asked)


def check_after(tasks: Iterable[Task], known: Mapping[str, object]) -> None:
    """Checks the tasks that a new task comes after. Raises UnknownTask, ValueError."""
    visited = set(known)
    for task in tasks:
        if task.id in visited:
            raise ValueError(f"{task.id} already exists")
        for name in task.after:
            if name not in visited:
                raise unknown(name)
        visited.add(task.id)
