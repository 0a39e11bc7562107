"""Extracts what a session's records say without its agent, for the rule-made part of a checkpoint.

Todos and files come from the counters, which read the whole file; everything else comes from the
events at its end. So a session of any size takes at most seconds, and no more memory than that
end does. Damaged parts are skipped.
"""

import os
import stat
from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct

from segue import agents
from segue.agents.contracts.counter import Counter, Tally
from segue.agents.contracts.profile import Profile
from segue.agents.shared.calls import todo_lists
from segue.core.handoffs.compose import (
    CALL_CHARS,
    CALLS_KEPT,
    CallMade,
    Salvaged,
    combine,
    cut,
    merge,
)
from segue.core.handoffs.quoting import is_automatic
from segue.core.runs.progress import Tests
from segue.core.sessions.ledger import Ledger
from segue.core.sessions.remarks import Todo
from segue.core.stops.events import Event, Prompt, Reply, Started, ToolCall, ToolResult
from segue.sessions import database, find, tail

__all__ = ["Salvaged", "Salvager", "combine", "merge", "salvage"]

TAIL_BYTES = 16 << 20
_CHUNK_BYTES = 256 << 10
_LINE_BYTES = 32 << 20  # a longer line is skipped
_MESSAGES = 400  # rows of a database
_TEXT_CHARS = 4_000
_PROMPT_CHARS = 4_000
_PROMPTS = 50
_FILES = 400
_STOPPED = (129, 130, 131, 137, 143)  # exit codes of commands that were ended by a signal


def salvage(
    agent: str,
    path: str,
    *,
    session_id: str = "",
    since: float | None = None,
    known: Collection[str] = (),
    cwd: str = "",
) -> Salvaged:
    """What a session's file says, or its rows if the agent uses a database (`session_id` says
    which). `since`: only what happened from then on (but the current todos). `known`: what segue
    itself said in it, including the task; if that is unknown, the first prompt is the task. `cwd`:
    files below it get relative names. Never raises; unreadable parts count as missing."""
    profile = agents.find(agent)
    if profile is None:
        return Salvaged()
    store = agents.stores().get(profile.name)
    salvager = Salvager(cwd, since)
    if store is not None and store.database:
        _read_database(salvager, profile, path, session_id)
    else:
        _read_file(salvager, profile, path)
    return salvager.result(known)


class _Outcome(Struct, frozen=True):
    """What is stored of a tool's result: not its output."""

    exit_code: int | None
    failed: bool
    denied: bool


class Salvager:
    """Collects the events of one session, and can report on them at any time. Its memory is
    bounded, however long the session is. From a leg's output, `see_records` also takes the records:
    lists of todos are recognised by their form. `combine` merges that with the session's file."""

    def __init__(self, cwd: str = "", since: float | None = None) -> None:
        self.since, self.cwd = since, cwd
        self.is_whole = True  # the events begin at the start of the session
        self.prompts: list[str] = []
        self.calls: dict[str, CallMade] = {}
        self.results: dict[str, _Outcome] = {}
        self.open: list[str] = []  # calls after which nothing was said
        self.tests = Tests()
        self.files: dict[str, None] = {}
        self.todos: list[Todo] = []
        self.text = ""

    def see_records(self, records: Iterable[dict[str, Any]]) -> None:
        """The last list of todos in a stream that is not a sub-agent's."""
        for record in records:
            if not record.get("parent_tool_use_id"):
                self.todos = next(todo_lists(record), self.todos)

    def feed(self, events: Iterable[Event]) -> None:
        """Takes events, in their order."""
        for event in events:
            if isinstance(event, Started):
                self.cwd = self.cwd or event.cwd or ""
            elif self.since is not None and event.at is not None and event.at < self.since:
                continue
            elif isinstance(event, ToolCall):
                self.call(event)
            elif isinstance(event, ToolResult):
                self.result_of(event)
            elif isinstance(event, Reply):
                self.open.clear()
                self.text = f"{self.text}\n\n{event.text}"[-2 * _TEXT_CHARS :]
            elif isinstance(event, Prompt):
                self.prompts.append(cut(event.text.strip(), _PROMPT_CHARS))
                del self.prompts[1 : -2 * _PROMPTS]

    def call(self, event: ToolCall) -> None:
        # Some agents restart the numbers of their calls in each leg, others use none.
        key = f"{event.call_id} {len(self.calls)}"
        self.open.append(key)
        label = event.command or f"{event.name} {event.argument}".strip()
        self.calls[key] = CallMade(
            call_id=event.call_id, text=cut(label, CALL_CHARS), is_command=bool(event.command)
        )
        if len(self.calls) > 2 * CALLS_KEPT:
            for old in list(self.calls)[:-CALLS_KEPT]:
                del self.calls[old]
                self.results.pop(old, None)
        for path in event.files:
            self.write(path)

    def result_of(self, event: ToolResult) -> None:
        key = next((k for k in reversed(self.calls) if self.calls[k].call_id == event.call_id), "")
        if key:
            self.results[key] = _Outcome(event.exit_code, event.failed, event.denied)
            call = self.calls[key]
            self.tests.feed(call.text if call.is_command else "", event)

    def write(self, path: str) -> None:
        if path and (path in self.files or len(self.files) < _FILES):
            self.files[path] = None

    def take(self, tally: Tally) -> None:
        """Adds what the counters found in the whole file."""
        self.todos = self.todos or list(tally.todos.values())
        self.cwd = self.cwd or tally.cwd
        if self.since is None:
            files = dict.fromkeys(tally.files)
            self.files = dict(list({**files, **self.files}.items())[-_FILES:])

    def result(self, known: Collection[str] = ()) -> Salvaged:
        """`known`: what segue itself said in the session, including the task; if that is unknown,
        the first prompt is the task."""
        flat = {_flat(text) for text in known}
        prompts = self.prompts if flat or not self.is_whole else self.prompts[1:]
        own = dict.fromkeys(p for p in prompts if _is_users(p, flat))
        calls = []
        for key, call in list(self.calls.items())[-CALLS_KEPT:]:
            result = self.results.get(key)
            calls.append(
                CallMade(
                    call_id=call.call_id,
                    text=call.text,
                    is_command=call.is_command,
                    exit_code=result.exit_code if result else None,
                    has_result=result is not None,
                    failed=result is not None and (result.failed or result.denied),
                    in_doubt=key in self.open and _in_doubt(call, result),
                )
            )
        return Salvaged(
            instructions=tuple(own)[-_PROMPTS:],
            todos=tuple(self.todos),
            calls=tuple(calls),
            files=tuple(dict.fromkeys(_below(self.cwd, path) for path in self.files)),
            failing_tests=tuple(self.tests.failing),
            passed_tests=tuple(sorted(self.tests.passed)),
            text_tail=_last(self.text.strip(), _TEXT_CHARS),
        )


def _is_users(prompt: str, known: set[str]) -> bool:
    """Whether it was not said by segue."""
    if not prompt or is_automatic(prompt):
        return False
    flat = _flat(prompt)
    is_cut = flat.endswith("…") and any(text.startswith(flat[:-1]) for text in known)
    return flat not in known and not is_cut


def _in_doubt(call: CallMade, result: _Outcome | None) -> bool:
    """Whether the outcome is unknown: there is no result, or it was stopped on the way. Some
    clients describe a command that they stopped as refused."""
    if result is None:
        return True
    if not call.is_command or not result.failed:
        return False
    return result.exit_code is None or result.exit_code in _STOPPED or result.exit_code < 0


def _read_file(salvager: Salvager, profile: Profile, path: str) -> None:
    try:
        handle = find.open_file(path)
    except (OSError, ValueError):
        return
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return
        if path.endswith(".json"):  # one object, as older versions wrote it
            salvager.feed(profile.parse(tail.document(handle, info.st_size)))
            return
        start = max(0, info.st_size - TAIL_BYTES)
        salvager.is_whole = start == 0
        data = os.pread(handle, info.st_size - start, start)
        records = list(tail.records(data, whole=start == 0))
        salvager.feed(profile.parse(records))
        del data, records
        make = agents.counter(profile.name)
        if make is not None:
            tally = Tally()
            _count(handle, info.st_size, make(tally, Ledger()))
            salvager.take(tally)
    except OSError:
        return
    finally:
        os.close(handle)


def _count(handle: int, size: int, counter: Counter) -> None:
    """Feeds whole lines. A last one without a newline is skipped: the events have it."""
    offset, length = 0, _CHUNK_BYTES
    while offset < size:
        data = os.pread(handle, min(length, size - offset), offset)
        end = data.rfind(b"\n") + 1
        if end:
            counter.feed(data, end)
            offset, length = offset + end, _CHUNK_BYTES
        elif not data or offset + len(data) >= size:
            break
        elif length < _LINE_BYTES:
            length *= 2
        else:
            offset = _next_line(handle, offset + len(data), size)
            length = _CHUNK_BYTES
    counter.close()


def _next_line(handle: int, offset: int, size: int) -> int:
    while offset < size:
        data = os.pread(handle, min(_CHUNK_BYTES, size - offset), offset)
        if not data:
            break
        place = data.find(b"\n")
        if place >= 0:
            return offset + place + 1
        offset += len(data)
    return size


def _read_database(salvager: Salvager, profile: Profile, path: str, session_id: str) -> None:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # SQLite would block at the end of a pipe
            return
        records = database.records(path, session_id, _MESSAGES)
        salvager.is_whole = sum(r.data["table"] == "message" for r in records) < _MESSAGES
        salvager.feed(profile.parse(records))
        listed = database.todos(path, session_id)
        changed = database.files_changed(path, session_id)
    except (database.Unreadable, OSError, ValueError):
        return
    salvager.todos = [Todo(str(text), database.todo_status(state)) for text, state in listed]
    if salvager.since is None:
        for file in changed:
            salvager.write(file)


def _below(cwd: str, path: str) -> str:
    """The relative path, if the file is below the folder."""
    if not cwd:
        return path
    whole = os.path.normpath(os.path.join(cwd, path))
    base = os.path.normpath(cwd).rstrip("/") + "/"
    return whole[len(base) :] if whole.startswith(base) else whole


def _flat(text: str) -> str:
    return " ".join(text.split())


def _last(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else "…" + text[1 - max_chars :]
