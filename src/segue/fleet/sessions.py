"""A task's session travels with it: the agent's own file, compressed, in the database.

It is kept whenever the tree is (`carrying`), so the two are of about the same moment. Whoever takes
the task over goes on in the same session where the agent allows that, else in a new one with the
checkpoint that rules make of the file. What an agent keeps in a database of its own does not
travel: the checkpoint is made where the session is, and that is kept.
"""

import os
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from segue import agents
from segue.agents import drives
from segue.core.handoffs.checkpoint import Checkpoint, clean, render
from segue.core.queue.types import Task
from segue.core.runs import outcomes
from segue.core.runs.types import Origin, Run
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Evidence, Stop
from segue.errors import StateError
from segue.fleet.database import FleetDatabase, plain, raw
from segue.queue import trees
from segue.runs.begin import RunRequest
from segue.runs.folders import RunFolder, read
from segue.runs.legs.snapshots import session_note
from segue.sessions import documents, find

MAX_BYTES = 64 << 20
"""A longer session does not travel; a new one begins with what is in the tree."""
_CHECKPOINT = ""
"""The name of what is no file of the agent's."""


class KeptSession(Struct, frozen=True, kw_only=True):
    """What was kept of a session. `name` "": not its file, but a checkpoint."""

    run: str
    agent: str
    session_id: str
    name: str
    at: float
    data: bytes


class SessionTooLong(StateError):  # noqa: N818 - told to the user as it is
    """It is not kept."""


def keep(db: FleetDatabase, task: Task, run: Run, env: Mapping[str, str], commit: str = "") -> bool:
    """Keeps the newest session of a task's run, as it was when the snapshot `commit` was taken;
    False if there is none yet. Raises StateError, OSError."""
    drive, session_id = drives.find(run.agent), run.session_id
    if drive is None or not session_id:
        return False
    file = drive.session_file
    path = file(session_id, env, run.cwd) if file is not None else ""
    if not path or not os.path.isfile(path):
        return False
    store = agents.stores().get(drive.agent)
    if store is not None and store.database:
        known = documents.known(drive.agent, path, session_id, run.cwd)
        made = documents.checkpoint_of(known, drive.agent, path, session_id, run.cwd)
        name, data = _CHECKPOINT, msgspec.json.encode(clean(made)[0])
    else:
        name, data = os.path.basename(path), _whole_lines(path, _size_at(run.id, commit))
    db.rows(
        "INSERT INTO segue.session (task, run, agent, session_id, name, snapshot, bytes, data)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (task) DO UPDATE"
        " SET run = excluded.run, agent = excluded.agent, session_id = excluded.session_id,"
        " name = excluded.name, snapshot = excluded.snapshot, bytes = excluded.bytes,"
        " data = excluded.data, at = now()",
        (task.id, raw(run.id), run.agent, raw(session_id), raw(name), commit, len(data),
         zlib.compress(data)),
    )  # fmt: skip
    return True


def _size_at(run_id: str, commit: str) -> int:
    """How long the session's file was at a snapshot; 0: that is not known."""
    told = read(RunFolder(run_id).path / session_note(commit)) if commit else ""
    return int(told) if told and told.isdigit() else 0


def _whole_lines(path: str, most: int = 0) -> bytes:
    """A file that may be written to just now, up to that size and without half a line at its end.
    One that is written anew each time is taken as it is."""
    handle = find.open_file(path)
    with os.fdopen(handle, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            raise SessionTooLong(
                f"its session of {size >> 20} MB is over {MAX_BYTES >> 20} MB and does not travel"
            )
        data = file.read(MAX_BYTES)
    if not path.endswith(".jsonl"):
        return data
    data = data[:most] if most else data
    return data[: data.rfind(b"\n") + 1]


def forget(db: FleetDatabase, task_id: str) -> None:
    """Of a task that is done nothing has to travel any more."""
    db.rows("DELETE FROM segue.session WHERE task = %s", (task_id,))


def kept(db: FleetDatabase, task_id: str) -> KeptSession | None:
    """What was kept last of a task's session. Raises StateError."""
    sql = (
        "SELECT run, agent, session_id, name, extract(epoch FROM at)::float, bytes, data"
        " FROM segue.session WHERE task = %s"
    )
    for run, agent, session_id, name, at, size, data in db.rows(sql, (task_id,)):
        return KeptSession(
            run=plain(run),
            agent=agent,
            session_id=plain(session_id),
            name=os.path.basename(plain(name)),
            at=at,
            data=_inflated(bytes(data), size),
        )
    return None


def _inflated(data: bytes, size: int) -> bytes:
    """Never more than was said, whoever wrote it."""
    if not 0 <= size <= MAX_BYTES:
        raise StateError(f"a session of {size} bytes is kept, which is more than travels")
    try:
        return zlib.decompressobj().decompress(data, size + 1)[:size]
    except zlib.error as fault:
        raise StateError(f"a session is kept that cannot be read: {fault}") from None


def inherit(
    found: KeptSession | None, task: Task, wanted: RunRequest, env: Mapping[str, str], former: Run
) -> RunRequest:
    """What a run is asked for that takes over from a machine that was lost: the same session if it
    can be resumed here, else a new one that is told what that one knew. Raises OSError."""
    if found is None or found.run != former.id:
        return wanted
    lost = _lost(task, former.cwd, wanted.cwd)
    if found.name == _CHECKPOINT:
        with suppress(msgspec.MsgspecError, ValueError):
            told = render(msgspec.json.decode(found.data, type=Checkpoint), with_task=False)
            text = f"{task.text}\n\n[segue, automatically: {lost}]\n\n{told}"
            return replace(wanted, task=text)
        return wanted
    is_same_agent = wanted.agent == found.agent
    place = wanted.drive.session_place if is_same_agent and wanted.drive.resumes else None
    path = place(found.name, env, wanted.cwd) if place is not None else ""
    is_same, aside = bool(path), os.path.join(trees.folder(task.id), "sessions", found.name)
    if not is_same:
        path = aside
    elif os.path.lexists(path):  # the task was here before, and has gone on elsewhere since
        os.makedirs(os.path.dirname(aside), mode=0o700, exist_ok=True)
        shutil.move(path, f"{aside}.before")
    _write(path, found.data)
    known = documents.known(wanted.drive.agent, path, found.session_id, wanted.cwd)
    profile = drives.find(found.agent)
    return replace(
        wanted,
        task=task.text,
        origin=Origin(
            agent=profile.agent if profile is not None else found.agent,
            session_id=found.session_id,
            path=path,
            stop=Stop(
                reason=StopReason.CRASH,
                confidence=1.0,
                evidence=(Evidence("fleet.machine_lost", "its machine was lost", former.id),),
                resume=StopReason.CRASH.resume,
            ),
            stopped_at=found.at,
            reading=former.reading if is_same else None,
            is_same=is_same,
            doubt=known.salvaged.last_call,
            changed=lost,
        ),
    )


def _lost(task: Task, before: str, now: str) -> str:
    """What the next session must know of the files."""
    when = outcomes.when(task.salvaged_at) if task.salvaged_at is not None else ""
    what = "none of the files that were written there are here"
    if when:
        what = (
            f"the files are as they were at {when}, committed or not; what was done after that is"
            " lost and must be done again"
        )
    moved = "" if before == now else f" (the folder is now {now}, no longer {before})"
    return f"this task was begun on another machine, which was lost; {what}{moved}"


def _write(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    aside = f"{path}.{os.getpid()}"
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(aside, path)
