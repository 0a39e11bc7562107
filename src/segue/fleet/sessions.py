"""A task's session travels with it: the agent's own file, compressed, in the database.

It is stored together with each snapshot of the tree (`carrying`), as it was at that moment, and a
takeover uses the session that belongs to the tree it finds. Calls in progress while the tree was
read are reported as doubtful. The task continues in the same session if the agent allows that,
otherwise in a new one with a checkpoint made from the file. A session that the agent keeps in its
own database does not travel: its checkpoint is made on its machine and stored instead.
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
from segue.core.handoffs.prompts import doubt_note
from segue.core.queue.types import Task
from segue.core.runs import outcomes
from segue.core.runs.types import Origin, Run
from segue.core.secrets.redact import redact
from segue.core.stops.events import ToolCall, ToolResult
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Evidence, Stop
from segue.errors import StateError
from segue.fleet.database import FleetDatabase, plain, raw
from segue.queue import trees
from segue.runs.folders import RunFolder, read, read_json, write
from segue.runs.legs.snapshots import Marked, session_note
from segue.runs.starting.run_request import RunRequest
from segue.sessions import documents, find, tail
from segue.system.files import tree
from segue.system.git import git

MAX_BYTES = 64 << 20
"""A longer session does not travel; the new session starts from what is in the tree."""
_MAX_DOUBT = 3
_NOTES_KEPT = 2
_CHECKPOINT = ""
"""The name under which a checkpoint is stored, which no file of an agent has."""


class StoredSession(Struct, frozen=True, kw_only=True):
    """What is stored of a session: its file, or a checkpoint if `name` is ""."""

    run: str
    agent: str
    session_id: str
    name: str
    at: float
    data: bytes
    before: int = 0  # size of its file before the snapshot began; 0 if unknown
    doubt: tuple[str, ...] = ()  # calls whose work may or may not be in the snapshot
    is_apart: bool = False  # it is not from the same moment as the tree


class _Doubt(Struct, frozen=True, kw_only=True):
    """The format of the column."""

    snapshot: str = ""
    before: int = 0
    calls: tuple[str, ...] = ()


class SessionTooLong(StateError):  # noqa: N818 - told to the user as it is
    """The session is too long to be stored."""


class _Rows(Struct, frozen=True, kw_only=True):
    """What is recorded with a snapshot about a session in a database."""

    session_id: str
    checkpoint: Checkpoint
    doubt: tuple[str, ...] = ()


def mark_rows(run: Run, env: Mapping[str, str]) -> Marked | None:
    """Records, for the snapshot that is taken next, what the session knew at that time. None unless
    the agent keeps sessions in a database. Call it before the tree is read, and what it returns
    afterwards."""
    drive, session_id = drives.find(run.agent), run.session_id
    path = _path(run, env)
    if drive is None or not path or not _is_database(drive.agent):
        return None
    agent, cwd = drive.agent, run.cwd
    before = documents.known_work(agent, path, session_id, cwd).salvaged.calls
    done = {call.call_id for call in before if call.has_result}

    def marked(commit: str) -> None:
        known = documents.known_work(agent, path, session_id, cwd)
        made = documents.checkpoint_of(known, agent, path, session_id, cwd)
        calls = [call for call in known.salvaged.calls if call.call_id not in done or call.in_doubt]
        note = _Rows(
            session_id=session_id,
            checkpoint=clean(made)[0],
            doubt=tuple(redact(call.text)[0] for call in calls[-_MAX_DOUBT:]),
        )
        folder = RunFolder(run.id).path
        older = sorted(folder.glob(_rows_note("*")), key=lambda file: file.stat().st_mtime)
        write(folder / _rows_note(commit), msgspec.json.encode(note).decode())
        for file in older[:-_NOTES_KEPT]:
            file.unlink(missing_ok=True)

    def quietly(commit: str) -> None:
        with suppress(OSError):
            marked(commit)

    return quietly


def _rows_note(commit: str) -> str:
    return f"{session_note(commit)}.json"


def _is_database(agent: str) -> bool:
    store = agents.stores().get(agent)
    return store is not None and bool(store.database)


def _path(run: Run, env: Mapping[str, str]) -> str:
    """The file of a run's newest session; "" if there is none."""
    drive = drives.find(run.agent)
    if drive is None or drive.session_file is None or not run.session_id:
        return ""
    path = drive.session_file(run.session_id, env, run.cwd)
    return path if path and os.path.isfile(path) else ""


def keep(db: FleetDatabase, task: Task, run: Run, env: Mapping[str, str], commit: str = "") -> bool:
    """Stores the newest session of a task's run as it was when the snapshot `commit` was taken,
    next to the one of the previous snapshot. Returns False if there is none yet. Raises StateError,
    OSError."""
    drive, path = drives.find(run.agent), _path(run, env)
    if drive is None or not path:
        return False
    doubt = _Doubt(snapshot=commit)
    session_id = run.session_id
    if _is_database(drive.agent):
        noted = _rows_at(run.id, commit)
        # another process took the snapshot: store it as it is now, which may be later
        if noted is None:
            known = documents.known_work(drive.agent, path, session_id, run.cwd)
            made = documents.checkpoint_of(known, drive.agent, path, session_id, run.cwd)
            noted = _Rows(session_id=session_id, checkpoint=clean(made)[0], doubt=("",))
        session_id, doubt = noted.session_id, replace(doubt, calls=noted.doubt)
        name, data = _CHECKPOINT, msgspec.json.encode(noted.checkpoint)
    else:
        before, after = _sizes_at(run.id, commit)
        doubt = replace(doubt, before=before)
        name, data = os.path.basename(path), _whole_lines(path, after)
    with db.alone():
        db.rows("DELETE FROM segue.session_before b USING segue.session s WHERE b.task = %s"
                " AND s.task = b.task AND s.is_pushed", (task.id,))  # fmt: skip
        db.rows(
            "INSERT INTO segue.session_before SELECT * FROM segue.session WHERE task = %s"
            " AND is_pushed ON CONFLICT DO NOTHING",
            (task.id,),
        )
        db.rows(
            "INSERT INTO segue.session (task, run, agent, session_id, name, snapshot, bytes, data,"
            " doubt, is_pushed) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, false)"
            " ON CONFLICT (task) DO UPDATE"
            " SET run = excluded.run, agent = excluded.agent, session_id = excluded.session_id,"
            " name = excluded.name, snapshot = excluded.snapshot, bytes = excluded.bytes,"
            " data = excluded.data, doubt = excluded.doubt, is_pushed = false, at = now()",
            (task.id, raw(run.id), run.agent, raw(session_id), raw(name), commit, len(data),
             zlib.compress(data), msgspec.json.encode(doubt)),
        )  # fmt: skip
    return True


def pushed(db: FleetDatabase, task_id: str, commit: str) -> None:
    """Records that the repository has this snapshot now. Raises StateError."""
    sql = "UPDATE segue.session SET is_pushed = true WHERE task = %s AND snapshot = %s"
    db.rows(sql, (task_id, commit))


def _rows_at(run_id: str, commit: str) -> _Rows | None:
    text = read(RunFolder(run_id).path / _rows_note(commit)) if commit else None
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(text, type=_Rows) if text else None
    return None


def _sizes_at(run_id: str, commit: str) -> tuple[int, int]:
    """The size of the session's file before and after a snapshot; 0 if unknown."""
    sizes = read_json(RunFolder(run_id).path / session_note(commit)) if commit else None
    match sizes:
        case [int(before), int(after)]:
            return before, after
        case int(after):  # from an older segue
            return 0, after
    return 0, 0


def _whole_lines(path: str, most: int = 0) -> bytes:
    """A file that may be growing, up to that size and without half a line at its end. A file that
    is rewritten each time is returned whole."""
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
    """Deletes the sessions of a task that is done."""
    for table in ("session", "session_before"):
        db.rows(f"DELETE FROM segue.{table} WHERE task = %s", (task_id,))  # noqa: S608 - our own


def stored_session(db: FleetDatabase, task_id: str, snapshot: str = "") -> StoredSession | None:
    """The stored session of a task that belongs to this snapshot; otherwise the newest one, with
    `is_apart` set. Raises StateError."""
    sql = (
        "SELECT run, agent, session_id, name, extract(epoch FROM at)::float, bytes, data,"
        " snapshot, doubt FROM (SELECT * FROM segue.session UNION ALL SELECT * FROM"
        " segue.session_before) s WHERE task = %s ORDER BY snapshot = %s DESC, at DESC LIMIT 1"
    )
    for run, agent, session_id, name, at, size, data, of, doubt in db.rows(
        sql, (task_id, snapshot)
    ):
        doubted = _Doubt()
        with suppress(msgspec.MsgspecError):
            found = msgspec.json.decode(bytes(doubt), type=_Doubt)
            doubted = found if found.snapshot == of else doubted
        return StoredSession(
            run=plain(run),
            agent=agent,
            session_id=plain(session_id),
            name=os.path.basename(plain(name)),
            at=at,
            data=_inflated(bytes(data), size),
            before=doubted.before,
            doubt=doubted.calls,
            is_apart=bool(snapshot) and of != snapshot,
        )
    return None


def _inflated(data: bytes, size: int) -> bytes:
    """Never inflates to more than the stated size, whoever wrote it."""
    if not 0 <= size <= MAX_BYTES:
        raise StateError(f"the stored session has {size} bytes, which is more than segue transfers")
    try:
        return zlib.decompressobj().decompress(data, size + 1)[:size]
    except zlib.error as fault:
        raise StateError(f"the stored session cannot be read: {fault}") from None


def inherit(
    found: StoredSession | None, task: Task, wanted: RunRequest, env: Mapping[str, str], former: Run
) -> RunRequest:
    """The request for a run that takes over from a lost machine: in the same session if it can be
    resumed here, otherwise in a new one that gets what the old one knew. Raises OSError."""
    if found is None or found.run != former.id:
        return wanted
    lost = _lost_files(task, former.cwd, wanted.cwd)
    if found.is_apart:
        lost += "; they may contain more than this session knows about, so look at them first"
    if found.name == _CHECKPOINT:
        with suppress(msgspec.MsgspecError, ValueError):
            made = _as_it_is_here(msgspec.json.decode(found.data, type=Checkpoint), wanted.cwd)
            calls = found.doubt or (("",) if found.is_apart else ())
            parts = (
                task.text,
                f"[segue, automatically: {lost}]",
                doubt_note("\n".join(calls) if calls else None),
                render(made, with_task=False),
            )
            return replace(wanted, task="\n\n".join(filter(None, parts)))
        return wanted
    is_same_agent = wanted.agent == found.agent
    place = wanted.drive.session_place if is_same_agent and wanted.drive.resumes else None
    path = place(found.name, env, wanted.cwd) if place is not None else ""
    is_same, aside = bool(path), os.path.join(trees.folder(task.id), "sessions", found.name)
    if not is_same:
        path = aside
    elif os.path.lexists(path):  # the task was here before and has continued elsewhere since
        os.makedirs(os.path.dirname(aside), mode=0o700, exist_ok=True)
        shutil.move(path, f"{aside}.before")
    _write(path, found.data)
    known = documents.known_work(wanted.drive.agent, path, found.session_id, wanted.cwd)
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
            doubt=_in_doubt(found, known.salvaged.last_call),
            changed=lost,
        ),
    )


def _as_it_is_here(made: Checkpoint, cwd: str) -> Checkpoint:
    """The checkpoint with the state of the files that came along."""
    here = git.status(cwd)
    return replace(
        made,
        files=tuple(tree.files_now([each.path for each in made.files], cwd)),
        git_status=here.status if here is not None else "",
        git_diff_stat=here.diff_stat if here is not None else "",
    )


def _in_doubt(found: StoredSession, last_call: str | None) -> str | None:
    """The calls that had not finished when the snapshot of the tree began. The snapshot may or may
    not have their work, whatever the session says. None if there are none."""
    profile = agents.find(found.agent)
    calls: list[str] = []
    if profile is not None and 0 < found.before < len(found.data):
        before = profile.parse(tail.records(found.data[: found.before], whole=True))
        done = {each.call_id for each in before if isinstance(each, ToolResult)}
        calls = [
            each.command or f"{each.name} {each.argument}".strip()
            for each in profile.parse(tail.records(found.data, whole=True))
            if isinstance(each, ToolCall) and each.call_id not in done
        ]
    if not calls:
        return "" if last_call is None and found.is_apart else last_call
    return redact("\n".join(calls[-_MAX_DOUBT:]))[0]


def _lost_files(task: Task, before: str, now: str) -> str:
    """What the next session must know about the files."""
    when = outcomes.when(task.salvaged_at) if task.salvaged_at is not None else ""
    what = "the files that were written there are not here"
    if when:
        what = (
            f"the files are as they were at {when}, committed or not; what was done after that is"
            " lost and must be done again"
        )
    moved = "" if before == now else f" (the folder is now {now}, no longer {before})"
    return f"this task was started on another machine, which was lost; {what}{moved}"


def _write(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    aside = f"{path}.{os.getpid()}"
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(aside, path)
