"""Finds stored tasks for commands."""

from segue.cli.support.ids import find_id
from segue.core.queue.types import Task
from segue.errors import InputError, StateError
from segue.fleet import open_queue
from segue.queue.port import Queue


def opened_queue() -> Queue:
    """The user's queue. Raises InputError if it cannot be used."""
    try:
        return open_queue()
    except StateError as fault:
        raise InputError(str(fault)) from None


def find_task(queue: Queue, name: str) -> Task:
    """A task by its id or the beginning of it. Raises InputError if there is none, or more than
    one."""
    task_id = find_id(queue.find, name, kind="task", lists="`segue queue` lists them")
    found = queue.task(task_id)
    assert found is not None
    return found
