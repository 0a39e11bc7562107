"""Whether a session received what was typed into it, read the document it was pointed to, and
continued: according to its own records, from their end."""

import os
import stat
from collections.abc import Callable, Iterable
from typing import Literal, TypeVar

from msgspec import Struct

from segue import agents
from segue.agents.contracts.profile import Profile, Record
from segue.core.stops.events import (
    Ended,
    Event,
    Failure,
    Prompt,
    Reply,
    Started,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.core.stops.reasons import StopReason
from segue.sessions import database, find, tail

_SLACK_S = 1.0  # an agent truncates its records' times
_MESSAGES = (60, 400)  # rows of a database

T = TypeVar("T")


class MessageEvidence(Struct, frozen=True, kw_only=True):
    """What the records show about one of segue's messages. Times are the records' own."""

    prompt_at: float | None = None  # None: it is not there
    read_at: float | None = None  # after it, a tool was called with the document's name
    went_on: bool = False  # and something was done or said after that
    spoken_at: float | None = None  # the newest prompt since then that does not name it
    session_id: str = ""


class LatestTurn(Struct, frozen=True, kw_only=True):
    """The last turn, from the records alone."""

    turn: Literal["", "open", "over", "interrupted"] = ""  # "": the records do not say
    ended_at: float | None = None  # by the record's own time
    spoken_at: float | None = None  # the newest prompt, as far as it was searched
    tool_runs: bool = False  # a call has no result yet
    may_continue: bool = False
    """It has ended, unless the agent is about to continue: its records do not show that yet."""


def latest(agent: str, path: str, session_id: str) -> LatestTurn:
    """The state of a session's last turn. Never raises."""
    profile = agents.find(agent)
    if profile is None:
        return LatestTurn()
    return _read(
        profile,
        path,
        session_id,
        lambda records: latest_in(profile.parse(records)),
        lambda found: bool(found.turn),
        LatestTurn(),
    )


def latest_in(events: Iterable[Event]) -> LatestTurn:
    """The state of the last turn according to these events."""
    turn: Literal["", "open", "over", "interrupted"] = ""
    ended_at: float | None = None
    spoken_at: float | None = None
    calls: set[str] = set()
    may_continue = False
    for event in events:
        if isinstance(event, Prompt | Reply | ToolCall | ToolResult | Usage):
            # What an agent writes about an interrupted tool comes after the end of its turn.
            if turn not in ("over", "interrupted") or isinstance(event, Prompt | Reply | ToolCall):
                turn = "open"
            if isinstance(event, Prompt):
                spoken_at = event.at
                calls.clear()
            elif isinstance(event, ToolCall):
                calls.add(event.call_id)
            elif isinstance(event, ToolResult):
                calls.discard(event.call_id)
        elif isinstance(event, Failure) and (isinstance(event, Ended) or event.reason is not None):
            by_user = event.reason is StopReason.USER_EXIT
            turn, ended_at = ("interrupted" if by_user else "over"), event.at
            may_continue = isinstance(event, Ended) and event.may_continue
            calls.clear()
    return LatestTurn(
        turn=turn,
        ended_at=ended_at,
        spoken_at=spoken_at,
        tool_runs=bool(calls),
        may_continue=may_continue,
    )


def recent(agent: str, path: str, session_id: str, count: int = 1) -> list[Event]:
    """The last prompts, replies, tool calls and errors of a session, oldest first: at least
    `count`, if there are that many. Never raises."""
    profile = agents.find(agent)
    if profile is None or not path:
        return []

    def shown(records: list[Record]) -> list[Event]:
        return [
            event
            for event in profile.parse(records)
            if isinstance(event, Prompt | ToolCall | Failure)
            or (isinstance(event, Reply) and event.text.strip())
        ]

    return _read(profile, path, session_id, shown, lambda found: len(found) >= count, [])


def look(agent: str, path: str, session_id: str, marker: str, since: float) -> MessageEvidence:
    """Searches a session's file, or a database for that session, for the newest prompt that
    contains `marker` (the document's file name) and was written since then. Never raises;
    unreadable parts count as missing."""
    profile = agents.find(agent)
    if profile is None or not marker:
        return MessageEvidence(session_id=session_id)

    return _read(
        profile,
        path,
        session_id,
        lambda records: evidence_in(profile.parse(records), marker, since, session_id),
        lambda evidence: evidence.prompt_at is not None,
        MessageEvidence(session_id=session_id),
    )


def _read(
    profile: Profile,
    path: str,
    session_id: str,
    view: Callable[[list[Record]], T],
    is_enough: Callable[[T], bool],
    nothing: T,
) -> T:
    """What the end of a session's file, or of its rows in a database, shows."""
    store = agents.stores().get(profile.name)
    try:
        if store is not None and store.database:
            return _in_database(path, session_id, view, is_enough, nothing)
        handle = find.open_file(path)
    except (OSError, ValueError, database.Unreadable):
        return nothing
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return nothing
        if path.endswith(".json"):  # one object, as older versions wrote it
            return view(tail.document(handle, info.st_size))
        return tail.read_back(handle, info.st_size, view, is_enough)[0]
    except OSError:
        return nothing
    finally:
        os.close(handle)


def _in_database(
    path: str,
    session_id: str,
    view: Callable[[list[Record]], T],
    is_enough: Callable[[T], bool],
    nothing: T,
) -> T:
    found = nothing
    if not stat.S_ISREG(os.stat(path).st_mode):  # SQLite would block at the end of a pipe
        return found
    for last in _MESSAGES:
        found = view(database.records(path, session_id, last))
        if is_enough(found):
            break
    return found


def evidence_in(
    events: Iterable[Event], marker: str, since: float, session_id: str
) -> MessageEvidence:
    """What these events show about the newest prompt with `marker` since then."""
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
    return MessageEvidence(
        prompt_at=prompt_at,
        read_at=read_at,
        went_on=went_on,
        spoken_at=spoken_at,
        session_id=session_id,
    )


def _names(call: ToolCall, marker: str) -> bool:
    return any(marker in text for text in (call.command, call.argument, *call.files))
