"""Stores runs: `port` defines what a store is, and `open_store` opens this machine's.

The log of events is the truth. Everything else about a run is derived from it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from segue.runs.store.sqlite import SqliteStore
    from segue.system.files.sqlite import Place

RUNS_NAME = "runs.db"


def runs_path() -> str:
    """The file that holds the runs."""
    import os

    from segue.system.files.state import state_folder

    return os.path.join(state_folder(), RUNS_NAME)


def open_store(place: "Place | None" = None) -> "SqliteStore":
    """Opens the user's runs, and creates the file if it does not exist. Raises StateError with
    one clear line if the file cannot be used, and leaves it unchanged."""
    from segue.runs.store.sqlite import SqliteStore

    return SqliteStore(runs_path() if place is None else place)
