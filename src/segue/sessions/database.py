"""Reads sessions that an agent keeps in an SQLite file (opencode), while the agent writes there.

The file is opened read-only and each query is one short read transaction, so the writer never
waits for segue. Rows become the records that the agent's parser knows.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple
from urllib.parse import quote

from segue.agents.contracts.profile import Record
from segue.agents.opencode.profile import parts
from segue.agents.shared.fields import dated, number, obj, text
from segue.agents.shared.lines import decode
from segue.core.sessions.remarks import TodoStatus
from segue.core.sessions.spend import Spend

_BUSY_S = 2.0
_LAST_MESSAGES = 60
"""How many messages are read first; a turn has a few dozen at most, and more are read if
necessary."""


class Row(NamedTuple):
    """One session of a database."""

    session_id: str
    parent_id: str
    cwd: str
    model: str
    provider: str
    started_at: float
    changed_at: float


class Unreadable(Exception):  # noqa: N818 - told to the user as a note
    """Not a database, or not one with sessions in it."""


def connect(path: str) -> sqlite3.Connection:
    """Opens a database for reading only; raises Unreadable."""
    try:
        db = sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_BUSY_S)
        # one bad row must not hide the others
        db.text_factory = lambda data: data.decode("utf-8", "replace")
        return db
    except (sqlite3.Error, UnicodeError, ValueError) as fault:
        raise Unreadable(f"{path}: {fault}") from None


def sessions(path: str) -> list[Row]:
    """All sessions, the newest first."""
    with closing(connect(path)) as db:
        try:
            rows = db.execute(
                "SELECT id, parent_id, directory, model, time_created, time_updated"
                " FROM session ORDER BY time_updated DESC"
            ).fetchall()
        except sqlite3.Error as fault:
            raise Unreadable(f"{path}: {fault}") from None
    return [
        Row(
            _text(name) or repr(name)[:80],
            _text(parent),
            _text(folder),
            text(model := _object(given), "id") or text(model, "modelID"),
            text(model, "providerID"),
            _seconds(created),
            _seconds(updated),
        )
        for name, parent, folder, given, created, updated in rows
    ]


def _text(value: Any) -> str:
    """A column may contain anything, whatever its type says."""
    return value if isinstance(value, str) else ""


def _seconds(value: Any) -> float:
    found = number(value)
    return 0.0 if found is None else dated(found / 1000) or 0.0


def records(path: str, session_id: str, last: int = _LAST_MESSAGES) -> list[Record]:
    """The last messages of a session with their parts, oldest first."""
    with closing(connect(path)) as db:
        try:
            db.execute("BEGIN")
            messages = db.execute(
                "SELECT id, time_created, data FROM message WHERE session_id = ?"
                " ORDER BY time_created DESC, id DESC LIMIT ?",
                (session_id, last),
            ).fetchall()
            messages.reverse()
            found = []
            for name, _, _ in messages:
                found += db.execute(
                    "SELECT id, message_id, time_created, data FROM part WHERE message_id = ?"
                    " ORDER BY id",
                    (name,),
                ).fetchall()
        except sqlite3.Error as fault:
            raise Unreadable(f"{path}: {fault}") from None
    return [*_messages(messages, session_id), *_parts(found, session_id)]


def _messages(rows: list[tuple[Any, ...]], session_id: str) -> Iterator[Record]:
    for name, created, data in rows:
        yield Record(
            {
                "table": "message",
                "id": name,
                "session_id": session_id,
                "time_created": created,
                "data": data,
            }
        )


def _parts(rows: list[tuple[Any, ...]], session_id: str) -> Iterator[Record]:
    for name, message, created, data in rows:
        yield Record(
            {
                "table": "part",
                "id": name,
                "message_id": message,
                "session_id": session_id,
                "time_created": created,
                "data": data,
            }
        )


def changed_messages(path: str, since_ms: int) -> tuple[list[dict[str, Any]], int]:
    """Messages written at that time or later, with their session's parent, oldest first; and the
    total number of messages."""
    with closing(connect(path)) as db:
        try:
            db.execute("BEGIN")
            rows = db.execute(
                "SELECT message.id, session.parent_id, message.time_created, message.time_updated,"
                " message.data FROM message JOIN session ON session.id = message.session_id"
                " WHERE message.time_updated >= ? ORDER BY message.time_updated, message.id",
                (since_ms,),
            ).fetchall()
            (known,) = db.execute("SELECT count(*) FROM message").fetchone()
        except sqlite3.Error as fault:
            raise Unreadable(f"{path}: {fault}") from None
    names = ("id", "parent_id", "time_created", "time_updated", "data")
    return [dict(zip(names, row, strict=True)) for row in rows], known


def todos(path: str, session_id: str) -> list[tuple[str, str]]:
    """The session's todo list: items and their states."""
    with closing(connect(path)) as db:
        try:
            rows = db.execute(
                "SELECT content, status FROM todo WHERE session_id = ? ORDER BY position",
                (session_id,),
            ).fetchall()
        except sqlite3.Error:
            return []  # an older version without the table
    return [(_text(content), _text(status)) for content, status in rows]


def todo_status(content: str) -> TodoStatus:
    """The list has more states than segue."""
    if content == "in_progress":
        return "in_progress"
    return "completed" if content in ("completed", "cancelled") else "pending"


def spend_by_model(path: str, session_id: str) -> list[tuple[str, Spend]]:
    """Tokens by model over a session and its sub-agents."""
    found: dict[str, Spend] = {}
    for message in _assistant(path, session_id):
        model, spend = text(message, "modelID"), parts(obj(message, "tokens"))
        if spend.total_tokens:
            found[model] = found.get(model, Spend()) + spend
    return list(found.items())


def compactions(path: str, session_id: str) -> int:
    """How often the session was compacted."""
    return sum(
        message.get("summary") is True and text(message, "finish") == "stop"
        for message in _assistant(path, session_id)
    )


def _assistant(path: str, session_id: str) -> list[dict[str, Any]]:
    with closing(connect(path)) as db:
        try:
            rows = db.execute(
                "SELECT data FROM message WHERE session_id IN"
                " (SELECT id FROM session WHERE id = ? OR parent_id = ?) ORDER BY id",
                (session_id, session_id),
            ).fetchall()
        except sqlite3.Error as fault:
            raise Unreadable(f"{path}: {fault}") from None
    messages = [_object(data) for (data,) in rows]
    return [message for message in messages if text(message, "role") == "assistant"]


def files_changed(path: str, session_id: str) -> list[str]:
    """The files that its tools wrote to, in order."""
    with closing(connect(path)) as db:
        try:
            rows = db.execute(
                "SELECT data FROM part WHERE session_id = ? AND json_valid(data) AND"
                " json_extract(data, '$.tool') IN ('edit', 'write', 'patch', 'apply_patch',"
                " 'multiedit') ORDER BY id",
                (session_id,),
            ).fetchall()
        except sqlite3.Error:
            return []
    found = [text(_object(data), "state", "input", "filePath") for (data,) in rows]
    return list(dict.fromkeys(filter(None, found)))


def _object(value: Any) -> dict[str, Any]:
    try:
        return obj(decode(value)) if isinstance(value, str) else {}
    except ValueError:
        return {}
