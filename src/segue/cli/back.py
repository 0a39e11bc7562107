"""`segue back ID`: what the daemon lets a shell or a window run. It becomes the agent."""

import os
import re

import click

from segue.errors import InputError, StateError
from segue.io import state

_ID = re.compile(r"w-[a-z0-9]{1,32}")


@click.command(hidden=True)
@click.argument("id")
def command(id: str) -> None:
    """Start the agent again whose session the daemon wants to go on with.

    What is started, and where, stands in the daemon's log under ID.
    """
    if not _ID.fullmatch(id):
        raise InputError(f"{id!r} is no id of the daemon's")
    from segue.watch.log import LOG_NAME, open_log
    from segue.watch.waking import order_of

    log, _ = open_log(os.path.join(state.state_folder(), LOG_NAME))
    notes = [note for note in log.since(0, ("order",), 100_000) if note.data.get("id") == id]
    log.close()
    if not notes:
        raise InputError(f"{id}: the daemon wants nothing of that name")
    argv, cwd = order_of(notes[-1].data)
    click.echo(f"segue: going on with {notes[-1].agent} {notes[-1].session_id}", err=True)
    try:
        os.chdir(cwd)
        os.execv(argv[0], argv)  # noqa: S606 - no shell is wanted
    except OSError as fault:
        raise StateError(f"{argv[0]}: {fault.strerror}") from None
