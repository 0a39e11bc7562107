"""`--detach`: a run in its own process."""

import os
from collections.abc import Sequence

from segue import fleet
from segue.cli.support.run.lookup import driver, is_driven, opened
from segue.cli.work.run import whose_check
from segue.core.runs.types import Run
from segue.errors import InputError
from segue.runs.starting.detached import Detached
from segue.runs.starting.driver import Driver
from segue.runs.starting.run_request import RunRequest
from segue.runs.store.port import Store
from segue.system.config.settings import Settings
from segue.views import printing

SCHEMA = 1


def begin(wanted: RunRequest, settings: Settings, *, as_json: bool, raw: bool) -> None:
    """Starts a new run in its own process. The run is stored before that process starts, and the
    process drives it when this returns. Raises SegueError if it cannot start."""
    _refuse_raw(raw)
    with opened() as store:
        with Driver(
            store, env=os.environ, prompts=settings.prompts, accounts=fleet.open_accounts()
        ) as here:
            run = here.begin(wanted).run
        for note in (*settings.notes, whose_check(wanted, settings)):
            if note:
                printing.complain(note)
        _leave(store, run, ["--share-tree"] if wanted.share_tree else [], as_json=as_json)


def resume(
    store: Store, run: Run, options: Sequence[str], *, seize: bool, as_json: bool, raw: bool
) -> None:
    """Resumes a run in its own process. Raises InputError if another process drives the run and
    `seize` is not set."""
    _refuse_raw(raw)
    holder = driver(store, run)
    if holder is not None and not seize:
        raise InputError(is_driven(run, holder))
    _leave(store, run, options, as_json=as_json)


def _refuse_raw(raw: bool) -> None:
    if raw:
        raise InputError("--raw and --detach cannot be combined; later: segue attach --raw RUN")


def _leave(store: Store, run: Run, options: Sequence[str], *, as_json: bool) -> None:
    detached = Detached(run, options, os.environ)
    detached.begun(store)
    if as_json:
        row = {
            "schema": SCHEMA,
            "run": run.id,
            "pid": detached.process.pid,
            "log": str(detached.log),
        }
        printing.say_json(row)
        return
    printing.say(run.id)
    printing.say(
        f"segue: the run continues without this terminal (process {detached.process.pid})\n"
        f"  segue attach {run.id}  # watch it\n"
        f"  segue cancel {run.id}  # end it",
        err=True,
    )
