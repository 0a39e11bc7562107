"""The snapshots of a run, as `diff` and `restore` find them."""

import os

from msgspec.structs import replace

from segue.cli.support.kept import folder
from segue.core.runs.types import Run
from segue.errors import InputError, SegueError
from segue.system.git import snapshots
from segue.system.git.snapshots import NoRepository, Snapshot


def with_snapshots(run: Run) -> tuple[Run, list[Snapshot]]:
    """The run, in the folder where its snapshots are: a repository that moved took them along, and
    is asked if it is the one around. Raises InputError."""
    try:
        return run, snapshots.list_all(run.cwd, run.id)
    except NoRepository as fault:
        here = folder()
        if found := _moved_to(here, run):
            return replace(run, cwd=here), found
        if os.path.isdir(run.cwd):
            raise InputError(str(fault)) from None
        raise InputError(
            f"{run.id} worked in {run.cwd}, which no longer exists; if its repository moved, run"
            " this command there"
        ) from None


def _moved_to(here: str, run: Run) -> list[Snapshot]:
    try:
        return snapshots.list_all(here, run.id)
    except SegueError:
        return []
