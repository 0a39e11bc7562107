"""Tasks that wait for a worker: `port` defines what a queue is, and `open_queue` opens the
user's."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from segue.queue.sqlite import SqliteQueue
    from segue.system.files.sqlite import Place

QUEUE_NAME = "queue.db"


def queue_path() -> str:
    """The file that holds the queue."""
    import os

    from segue.system.files.state import state_folder

    return os.path.join(state_folder(), QUEUE_NAME)


def open_queue(place: "Place | None" = None) -> "SqliteQueue":
    """Opens the user's tasks, and creates the file if it does not exist. Raises StateError with
    one clear line if the file cannot be used, and leaves it unchanged."""
    from segue.queue.sqlite import SqliteQueue

    return SqliteQueue(queue_path() if place is None else place)
