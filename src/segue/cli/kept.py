"""The runs that are kept, as commands find them. Imports no more than that: `runs` and `logs` are
asked for often."""

import os

from segue.core.run import Run
from segue.errors import InputError, StateError
from segue.store import leases, open_store
from segue.store.port import Holder, Store, run_key
from segue.store.sqlite import SqliteStore


def opened() -> SqliteStore:
    """The user's runs. Raises InputError if they cannot be used: nothing was run, and it is the
    user who must do something."""
    try:
        return open_store()
    except StateError as fault:
        raise InputError(str(fault)) from None


def folder() -> str:
    """The working folder. Raises InputError if it is gone."""
    try:
        return os.getcwd()
    except OSError as fault:
        raise InputError(
            f"the working folder is gone, or cannot be read ({fault.strerror}); change to another"
        ) from None


def find(store: Store, name: str | None) -> Run:
    """A run by its id or the beginning of it; none named: the newest unfinished one of this folder.
    Raises InputError."""
    if name is None:
        cwd = folder()
        for run in store.runs(cwd=cwd):
            if run.state.value != "done":
                return run
        raise InputError(f"no unfinished run in {cwd}; `segue runs` lists all")
    ids = store.find(name if name.startswith("run-") else f"run-{name}") if name else []
    if name in ids:
        ids = [name]
    if not ids:
        raise InputError(f"no run is called {name!r}; `segue runs` lists all")
    if len(ids) > 1:
        more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
        raise InputError(f"{len(ids)} runs begin with {name!r}: {', '.join(ids[:5])}{more}")
    try:
        found = store.run(ids[0])
    except StateError as fault:  # a newer segue's
        raise InputError(str(fault)) from None
    if found is None:
        raise InputError(f"{ids[0]}: its events are there, but not what is made from them")
    return found


def must_be_there(run: Run) -> None:
    """Raises InputError if the folder that it works in is gone."""
    if not os.path.isdir(run.cwd):
        raise InputError(f"{run.id} works in {run.cwd}, which is not there any more")


def driver(store: Store, run: Run) -> Holder | None:
    """The living process that drives a run now."""
    holder = store.holder(run_key(run.id))
    return holder if holder is not None and leases.is_alive(holder) else None
