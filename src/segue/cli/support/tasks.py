"""Finds stored tasks for commands."""

from segue.core.nearest import did_you_mean
from segue.core.queue.types import Task
from segue.errors import InputError, StateError
from segue.fleet import open_queue
from segue.queue.port import Queue

_LIKE = 0.8  # ids all begin alike


def opened_queue() -> Queue:
    """The user's queue. Raises InputError if it cannot be used."""
    try:
        return open_queue()
    except StateError as fault:
        raise InputError(str(fault)) from None


def find_task(queue: Queue, name: str) -> Task:
    """A task by its id or the beginning of it. Raises InputError."""
    ids = queue.find(name if name.startswith("task-") else f"task-{name}") if name else []
    if name in ids:
        ids = [name]
    if not ids:
        hint = did_you_mean(name, queue.find(""), least=_LIKE) or "`segue queue` lists them"
        raise InputError(f"no task is called {name!r}; {hint}")
    if len(ids) > 1:
        more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
        raise InputError(f"{len(ids)} tasks begin with {name!r}: {', '.join(ids[:5])}{more}")
    found = queue.task(ids[0])
    assert found is not None
    return found
