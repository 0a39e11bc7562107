"""Finds stored runs for commands. It imports little, because `runs` and `logs` are used often."""

import os
import time

from segue import fleet
from segue.cli.support.ids import find_id
from segue.core.runs.types import Run
from segue.errors import ConfigError, InputError, StateError
from segue.queue.port import Queue
from segue.runs.store import open_store
from segue.runs.store.port import Holder, Store
from segue.views import printing

_LEAVES_S = 10.0
_LOOK_S = 0.05


def opened(beside: Queue | None = None) -> Store:
    """Opens the store of runs; `beside`: a queue whose connection it can share. Raises InputError,
    not StateError, if it cannot be used: nothing was run, and the user has to act."""
    try:
        try:
            return fleet.open_store(beside)
        except ConfigError:  # a mistake in a file must not prevent looking at or ending a run
            return open_store()
    except StateError as fault:
        raise InputError(str(fault)) from None


def folder() -> str:
    """The working folder. Raises InputError if it is gone."""
    try:
        return os.getcwd()
    except OSError as fault:
        raise InputError(
            f"the working folder is gone, or cannot be read ({fault.strerror});"
            " cd to another folder"
        ) from None


def find(store: Store, name: str | None) -> Run:
    """A run by its id or the beginning of it; without a name, the newest run of this folder that is
    not done. Raises InputError if there is none."""
    if name is None:
        cwd = folder()
        for run in store.runs(cwd=cwd):
            if run.state.value != "done":
                return run
        raise InputError(f"no unfinished run in {cwd}; `segue runs` lists all")
    found_id = find_id(store.find, name, kind="run", lists="`segue runs` lists all")
    try:
        found = store.run(found_id)
    except StateError as fault:  # written by a newer segue
        raise InputError(str(fault)) from None
    if found is None:
        raise InputError(f"{found_id}: its events exist, but its state is missing")
    return found


def newest(store: Store) -> Run:
    """The newest unfinished run of this folder; if all have ended, the newest. Raises InputError if
    there is none."""
    cwd = folder()
    for unfinished in (True, False):
        for run in store.runs(cwd=cwd, unfinished=unfinished, limit=1):
            return run
    raise InputError(f"no run in {cwd}; `segue runs` lists all")


def find_or_newest(store: Store, name: str | None) -> Run:
    """The named run; without a name, the newest run of this folder, after a message that says
    which. Raises InputError if there is none."""
    if name is not None:
        return find(store, name)
    found = newest(store)
    printing.complain(f"{found.id}, the newest run in this folder")
    return found


def must_be_here(store: Store, run: Run) -> None:
    """Raises InputError if the run's files are on another machine of the fleet."""
    from segue.fleet.database import FleetDatabase
    from segue.runs.results import is_here

    if isinstance(store, FleetDatabase) and not is_here(run):
        from segue.fleet.output import machine_of

        where = machine_of(store, run.id)
        raise InputError(f"{run.id} is on {where}, with its files; run this command there")


def must_be_there(run: Run) -> None:
    """Raises InputError if its working folder is gone."""
    if not os.path.isdir(run.cwd):
        raise InputError(f"{run.id} works in {run.cwd}, which no longer exists")


def driver(store: Store, run: Run) -> Holder | None:
    """The live process that drives a run; None if there is none."""
    return fleet.driver(store, run.id)


def wait_until_released(store: Store, run: Run) -> None:
    """Waits until no process drives a run: the one that ended it takes a moment to release it after
    `segue cancel` has returned. Gives up after `_LEAVES_S`, without an error."""
    until = time.monotonic() + _LEAVES_S
    while driver(store, run) is not None and time.monotonic() < until:
        time.sleep(_LOOK_S)


def is_driven(run: Run, holder: Holder) -> str:
    """The message of the error for a run that another process drives."""
    return (
        f"{run.id} is already driven by process {holder.pid}; to see it: segue attach {run.id};"
        f" to end it: segue cancel {run.id}"
    )
