"""What a session's records tell without its agent: for the rule-made part of a checkpoint.

Todos and files come from the counters, which read the whole file; all else comes from the events of
its end. So a session of any size takes seconds at most, and no more memory than that end does.
Whatever is damaged is passed over."""

import os
import stat
from collections.abc import Collection, Iterable

from segue import agents
from segue.agents.contracts.counter import Counter, Tally
from segue.agents.contracts.profile import Profile, Record
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
from segue.core.runs.progress import Tests
from segue.core.sessions.ledger import Ledger
from segue.core.sessions.remarks import Todo
from segue.core.stops.events import Event, Prompt, Reply, Started, ToolCall, ToolResult
from segue.sessions import database, find, tail

__all__ = ["Salvaged", "combine", "merge", "salvage", "salvage_stream"]

TAIL_BYTES = 16 << 20
_CHUNK_BYTES = 256 << 10
_LINE_BYTES = 32 << 20  # a longer one is passed over
_MESSAGES = 400  # of a database
_TEXT_CHARS = 4_000
_PROMPT_CHARS = 4_000
_PROMPTS = 50
_FILES = 400
_AUTOMATIC = "This message is automatic"  # in all prompts of ours; users may have their own
_STOPPED = (129, 130, 131, 137, 143)  # exit codes of commands that a signal ended


def salvage(
    agent: str,
    path: str,
    *,
    session_id: str = "",
    since: float | None = None,
    told: Collection[str] = (),
    cwd: str = "",
) -> Salvaged:
    """What a session's file tells, or its rows if the agent keeps a database (`session_id` says
    which). `since`: only what happened from then on (but the todos as they are now). `told`: what
    segue itself said in it, the task too; if that is not known, the first prompt is the task.
    `cwd`: files below it are named from there. Never raises; nothing is known of what cannot be
    read."""
    profile = agents.find(agent)
    if profile is None:
        return Salvaged()
    store = agents.stores().get(profile.name)
    seen = _Seen(since, told, cwd)
    if store is not None and store.database:
        _read_database(seen, profile, path, session_id)
    else:
        _read_file(seen, profile, path, is_stream=False)
    return seen.result()


def salvage_stream(
    agent: str,
    path: str,
    *,
    since: float | None = None,
    told: Collection[str] = (),
    cwd: str = "",
) -> Salvaged:
    """The same from what a leg printed: `combine` adds it to what its session's file tells."""
    profile = agents.find(agent)
    if profile is None:
        return Salvaged()
    seen = _Seen(since, told, cwd)
    _read_file(seen, profile, path, is_stream=True)
    return seen.result()


class _Seen:
    """Takes in the events of one session."""

    def __init__(self, since: float | None, told: Collection[str], cwd: str) -> None:
        self.since, self.cwd = since, cwd
        self.told = {_flat(text) for text in told}
        self.is_whole = True  # the events begin where the session does
        self.prompts: list[str] = []
        self.calls: dict[str, CallMade] = {}
        self.results: dict[str, ToolResult] = {}
        self.open: list[str] = []  # calls after which nothing was said
        self.tests = Tests()
        self.files: dict[str, None] = {}
        self.todos: list[Todo] = []
        self.text = ""

    def feed(self, events: Iterable[Event]) -> None:
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
        # Some agents number their calls anew in each leg, others give them no name.
        key = f"{event.call_id} {len(self.calls)}"
        self.open.append(key)
        said = event.command or f"{event.name} {event.argument}".strip()
        self.calls[key] = CallMade(
            call_id=event.call_id, text=cut(said, CALL_CHARS), is_command=bool(event.command)
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
            self.results[key] = event
            call = self.calls[key]
            self.tests.feed(call.text if call.is_command else "", event)

    def write(self, path: str) -> None:
        if path and (path in self.files or len(self.files) < _FILES):
            self.files[path] = None

    def take(self, tally: Tally) -> None:
        """What the whole file told."""
        self.todos = self.todos or list(tally.todos.values())
        self.cwd = self.cwd or tally.cwd
        if self.since is None:
            files = dict.fromkeys(tally.files)
            self.files = dict(list({**files, **self.files}.items())[-_FILES:])

    def result(self) -> Salvaged:
        prompts = self.prompts if self.told or not self.is_whole else self.prompts[1:]
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
            instructions=tuple(dict.fromkeys(p for p in prompts if self.is_users(p)))[-_PROMPTS:],
            todos=tuple(self.todos),
            calls=tuple(calls),
            files=tuple(dict.fromkeys(_below(self.cwd, path) for path in self.files)),
            failing_tests=tuple(self.tests.failing),
            passed_tests=tuple(sorted(self.tests.passed)),
            text_tail=_last(self.text.strip(), _TEXT_CHARS),
        )

    def is_users(self, prompt: str) -> bool:
        return bool(prompt) and _AUTOMATIC not in prompt[:500] and not self.is_told(prompt)

    def is_told(self, prompt: str) -> bool:
        flat = _flat(prompt)
        return flat in self.told or (
            flat.endswith("…") and any(text.startswith(flat[:-1]) for text in self.told)
        )


def _in_doubt(call: CallMade, result: ToolResult | None) -> bool:
    """Whether nobody saw how it ended: there is no result, or it was stopped on the way. Some
    clients say of a command that they stopped that it was refused."""
    if result is None:
        return True
    if not call.is_command or not result.failed:
        return False
    return result.exit_code is None or result.exit_code in _STOPPED or result.exit_code < 0


def _read_file(seen: _Seen, profile: Profile, path: str, *, is_stream: bool) -> None:
    try:
        handle = find.open_file(path)
    except (OSError, ValueError):
        return
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return
        if path.endswith(".json") and not is_stream:  # one object, as older versions wrote it
            seen.feed(profile.parse(tail.document(handle, info.st_size)))
            return
        start = max(0, info.st_size - TAIL_BYTES)
        seen.is_whole = start == 0
        data = os.pread(handle, info.st_size - start, start)
        records = list(tail.records(data, whole=start == 0))
        seen.feed(profile.parse(records))
        if is_stream:
            seen.todos = _todos(records)
        del data, records
        make = agents.counter(profile.name)
        if make is not None:
            tally = Tally()
            _count(handle, info.st_size, make(tally, Ledger()))
            seen.take(tally)
    except OSError:
        return
    finally:
        os.close(handle)


def _count(handle: int, size: int, counter: Counter) -> None:
    """Feeds whole lines. A last one without its end is passed over: the events have it."""
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


def _read_database(seen: _Seen, profile: Profile, path: str, session_id: str) -> None:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # SQLite would wait at a pipe's end
            return
        records = database.records(path, session_id, _MESSAGES)
        seen.is_whole = sum(r.data["table"] == "message" for r in records) < _MESSAGES
        seen.feed(profile.parse(records))
        listed = database.todos(path, session_id)
        changed = database.files_changed(path, session_id)
    except (database.Unreadable, OSError, ValueError):
        return
    seen.todos = [Todo(str(text), database.todo_status(state)) for text, state in listed]
    if seen.since is None:
        for file in changed:
            seen.write(file)


def _todos(records: list[Record]) -> list[Todo]:
    """The last list in a stream that is not a sub-agent's."""
    for record in reversed(records):
        if record.data.get("parent_tool_use_id"):
            continue
        for found in todo_lists(record.data):
            return found
    return []


def _below(cwd: str, path: str) -> str:
    """From the folder on, if the file is below it."""
    if not cwd:
        return path
    whole = os.path.normpath(os.path.join(cwd, path))
    base = os.path.normpath(cwd).rstrip("/") + "/"
    return whole[len(base) :] if whole.startswith(base) else whole


def _flat(text: str) -> str:
    return " ".join(text.split())


def _last(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else "…" + text[1 - max_chars :]
