"""Builds a digest from a whole session file or database, for a session that is live, dead or
unwatched. The file is read from its first byte to its last in bounded memory; damaged parts
are skipped."""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from typing import Protocol

from segue import agents
from segue.agents.contracts.profile import Profile, Record
from segue.agents.markdown.session import body
from segue.agents.shared.lines import read_line
from segue.core.stops.events import Event, Reply
from segue.sessions import database, find, tail

_CHUNK_BYTES = 1 << 20
_LINE_BYTES = 32 << 20  # a longer line is skipped
_MESSAGES = 100  # rows of a database read at once
_MARKDOWN_BYTES = 4 << 20


class Feeds(Protocol):
    """Anything that collects a session's events."""

    def feed(self, event: Event) -> None:
        """Receives the next event."""


def read_session(builder: Feeds, agent: str, path: str, session_id: str = "") -> None:
    """Feeds a session to a digest. `session_id` says which, if the agent keeps a database. Never
    raises; parts that cannot be read are skipped."""
    profile = agents.find(agent)
    if path.endswith(".md"):
        _read_markdown(builder, path)
        return
    if profile is None or not path:
        return
    store = agents.stores().get(profile.name)
    try:
        if store is not None and store.database:
            for batch in _rows(path, session_id):
                _feed(builder, profile, iter(batch))
        else:
            _read_file(builder, profile, path)
    except (OSError, ValueError, sqlite3.Error, database.Unreadable):
        return


def _feed(builder: Feeds, profile: Profile, records: Iterator[Record]) -> None:
    for event in profile.parse(records):
        builder.feed(event)


def _read_file(builder: Feeds, profile: Profile, path: str) -> None:
    handle = find.open_file(path)
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return
        if path.endswith(".json"):  # one object, as older versions wrote it
            _feed(builder, profile, iter(tail.document(handle, info.st_size)))
        else:
            _feed(builder, profile, _records(handle))
    finally:
        os.close(handle)


def _records(handle: int) -> Iterator[Record]:
    """The records of a file, in portions; including a last line without a newline."""
    rest, offset, skips = b"", 0, False
    while data := os.pread(handle, _CHUNK_BYTES, offset):
        offset += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if not skips and isinstance(value := read_line(line), dict):
                yield Record(value)
            skips = False
        if len(rest) > _LINE_BYTES:
            rest, skips = b"", True
    if not skips and isinstance(value := read_line(rest), dict):
        yield Record(value)


def _rows(path: str, session_id: str) -> Iterator[list[Record]]:
    """The messages of a database with their parts, in order, in portions."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # SQLite would block at the end of a pipe
        return
    with closing(database.connect(path)) as db:
        messages = db.execute(
            "SELECT id, time_created, data FROM message WHERE session_id = ?"
            " ORDER BY time_created, id",
            (session_id,),
        )
        while rows := messages.fetchmany(_MESSAGES):
            batch = []
            for name, created, data in rows:
                row = {"session_id": session_id, "time_created": created, "data": data}
                batch.append(Record({"table": "message", "id": name, **row}))
                for part, at, content in db.execute(
                    "SELECT id, time_created, data FROM part WHERE message_id = ? ORDER BY id",
                    (name,),
                ):
                    row = {"session_id": session_id, "time_created": at, "data": content}
                    batch.append(Record({"table": "part", "id": part, "message_id": name, **row}))
            yield batch


def _read_markdown(builder: Feeds, path: str) -> None:
    """A workflow's own notes count as the agent's words."""
    try:
        handle = find.open_file(path)
    except (OSError, ValueError):
        return
    try:
        data = os.pread(handle, _MARKDOWN_BYTES, 0)
    except OSError:
        return
    finally:
        os.close(handle)
    builder.feed(Reply(text=body(data.decode("utf-8", "replace"))))
