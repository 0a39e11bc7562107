"""`segue back ID`: the command that the daemon types into a shell or runs in a window. Its process
becomes the agent."""

import os
import re
import time
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from segue.errors import InputError, SegueError, StateError
from segue.system.files import state
from segue.views import printing

if TYPE_CHECKING:
    from segue.watch.log import Log, Note

_ID = re.compile(r"w-[a-z0-9]{1,32}")


class BackOrder(Struct):
    """What to start, and where. `writes`: the session that it continues, which needs its lease;
    `relay_to`: the agent that takes over from another one."""

    argv: list[str]
    cwd: str
    writes: str = ""
    relay_to: str = ""


@click.command(hidden=True)
@click.argument("id")
@click.option("--state", "folder", metavar="FOLDER", help="Where the daemon keeps its log.")
def command(id: str, folder: str | None) -> None:
    """Start the agent whose session the daemon resumes.

    The daemon's log has the command and the folder under ID. It works once, because a session
    has only one writer.
    """
    if not _ID.fullmatch(id):
        raise InputError(f"{id!r} is not one of the daemon's ids; `segue notes` lists what it did")
    if folder is not None:
        os.environ["SEGUE_HOME"] = folder  # the started agent must see the same environment
    from segue.watch.log import LOG_NAME, open_log

    log, _ = open_log(os.path.join(state.state_folder(), LOG_NAME))
    try:
        note, order = _order(log, id)
        try:
            _take(note, order)
            _note(log, note, {"id": id, "order": note.seq, "pid": os.getpid()})
            whose = f"{note.agent} {note.session_id}"
            took_over = f"{order.relay_to} takes over from {whose}"
            printing.complain(took_over if order.relay_to else f"resuming {whose}")
            os.chdir(order.cwd)
            os.execv(order.argv[0], order.argv)  # noqa: S606 - no shell is wanted
        except (OSError, ValueError) as fault:
            why = getattr(fault, "strerror", None) or str(fault)
            raise _failed(log, note, id, StateError(f"{order.argv[0]}: {why}")) from None
        except SegueError as fault:
            raise _failed(log, note, id, fault) from None
    finally:
        log.close()


def _order(log: "Log", id: str) -> tuple["Note", BackOrder]:
    import msgspec

    notes = [n for n in log.since(0, ("order", "back"), 1_000_000) if n.data.get("id") == id]
    orders = [note for note in notes if note.kind == "order"]
    if not orders:
        raise InputError(f"{id}: the daemon has nothing to start under this id")
    note = orders[-1]
    if any(n.kind == "back" and n.seq > note.seq for n in notes):
        raise InputError(f"{id}: already started; its session is {note.session_id}")
    try:
        order = msgspec.convert(note.data, BackOrder)
    except msgspec.ValidationError as fault:
        raise StateError(f"{id}: the daemon's entry cannot be read: {fault}") from None
    if not order.argv:
        raise StateError(f"{id}: the daemon's entry names no program")
    return note, order


def _take(note: "Note", order: BackOrder) -> None:
    """Takes the session's lease, because a session has only one writer. The agent that this process
    becomes keeps it as long as it lives. Raises SegueError if another process uses the session."""
    if not order.writes:
        return
    from segue.runs import conflicts
    from segue.runs.store import leases, open_store

    with open_store() as store:
        store.acquire(f"session:{note.agent}:{order.writes}", leases.me("segue back"), time.time())
    other = conflicts.working_on(note.agent, order.writes, "", order.cwd, os.environ)
    if other is not None:
        raise StateError(f"process {other.pid} has session {order.writes} open")


def _failed(log: "Log", note: "Note", id: str, fault: SegueError) -> SegueError:
    _note(log, note, {"id": id, "order": note.seq, "error": str(fault)})
    return fault


def _note(log: "Log", note: "Note", data: dict[str, object]) -> None:
    log.append(
        "back",
        at=time.time(),
        agent=note.agent,
        session_id=note.session_id,
        project=note.project,
        data=data,
    )
