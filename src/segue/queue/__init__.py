"""Tasks that wait for their turn: `port` defines what a queue is, and `open_queue` opens the
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
    """The user's tasks; the file is created if it does not exist. Raises StateError with one
    clear line if it cannot be used; it is left as it is then."""
    from segue.queue.sqlite import SqliteQueue

    return SqliteQueue(queue_path() if place is None else place)
