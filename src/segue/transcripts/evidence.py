"""Whether a session heard what was typed into it, read the document it was told of, and went on: by
its own records, from their end."""

import os
import stat
from collections.abc import Iterable

from msgspec import Struct

from segue import agents
from segue.agents.profile import Profile, Record
from segue.core.event import Event, Prompt, Reply, Started, ToolCall
from segue.transcripts import database, find, tail

_SLACK_S = 1.0  # a record's time is cut to what its agent counts in
_MESSAGES = (60, 400)  # of a database


class Heard(Struct, frozen=True, kw_only=True):
    """What the records show of one message of segue's. Times are the records' own."""

    prompt_at: float | None = None  # None: it is not there
    read_at: float | None = None  # a tool was called with the document's name, after it
    went_on: bool = False  # and something was done or said after that
    spoken_at: float | None = None  # the newest prompt that does not name it, since then
    session_id: str = ""


def look(agent: str, path: str, session_id: str, marker: str, since: float) -> Heard:
    """Looks in a session's file, or in a database for that session, for the newest prompt that
    holds `marker` (the document's file name) and was written since then. Never raises; nothing is
    heard of what cannot be read."""
    profile = agents.find(agent)
    if profile is None or not marker:
        return Heard(session_id=session_id)

    def view(records: list[Record]) -> Heard:
        return _heard(profile.parse(records), marker, since, session_id)

    store = agents.stores().get(profile.name)
    try:
        if store is not None and store.database:
            return _in_database(profile, path, session_id, marker, since)
        handle = find.open_file(path)
    except (OSError, ValueError, database.Unreadable):
        return Heard(session_id=session_id)
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return Heard(session_id=session_id)
        if path.endswith(".json"):  # one object, as older versions wrote it
            return view(tail.document(handle, info.st_size))
        return tail.read_back(handle, info.st_size, view, lambda h: h.prompt_at is not None)[0]
    except OSError:
        return Heard(session_id=session_id)
    finally:
        os.close(handle)


def _in_database(profile: Profile, path: str, session_id: str, marker: str, since: float) -> Heard:
    heard = Heard(session_id=session_id)
    if not stat.S_ISREG(os.stat(path).st_mode):  # SQLite would wait at a pipe's end
        return heard
    for last in _MESSAGES:
        records = database.records(path, session_id, last)
        heard = _heard(profile.parse(records), marker, since, session_id)
        if heard.prompt_at is not None:
            break
    return heard


def _heard(events: Iterable[Event], marker: str, since: float, session_id: str) -> Heard:
    prompt_at: float | None = None
    read_at: float | None = None
    spoken_at: float | None = None
    went_on = False
    for event in events:
        at = since if event.at is None else event.at
        if isinstance(event, Started):
            session_id = event.session_id or session_id
        elif at < since - _SLACK_S:
            continue
        elif isinstance(event, Prompt):
            if marker in event.text:
                prompt_at, read_at, went_on = at, None, False
            elif event.text.strip():
                spoken_at = at
        elif prompt_at is None:
            continue
        elif isinstance(event, ToolCall) and read_at is None:
            read_at = at if _names(event, marker) else None
        elif read_at is not None and isinstance(event, ToolCall | Reply):
            went_on = True
    return Heard(
        prompt_at=prompt_at,
        read_at=read_at,
        went_on=went_on,
        spoken_at=spoken_at,
        session_id=session_id,
    )


def _names(call: ToolCall, marker: str) -> bool:
    return any(marker in said for said in (call.command, call.argument, *call.files))
