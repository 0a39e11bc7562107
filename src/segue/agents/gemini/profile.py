"""Gemini CLI: what its records say.

Forms read:
- the live stream (`-o stream-json`): init, message, tool_use, tool_result, error, result;
- the object of `-o json`: on stdout `{session_id, response, stats}`, on stderr (after a stack
  trace) `{session_id, error}`;
- the session file (`chats/session-*.jsonl`), a log: a header for each process, messages (a later
  record with the same id replaces the earlier one), `$set`, `$rewindTo`; older versions wrote one
  object with all `messages`.

The session file has no closing record: a reply is written before its tool calls are, so the last
text may be an answer or the words before a tool that never returned. It is read as a log, not for
the history that it results in: `$set.messages` drops failed prompts and errors, which matter here.

All in one file, because one reader reads the messages of all forms.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared.calls import argument_of, todos_of, written_by
from segue.agents.shared.fields import (
    JSON,
    amount,
    images,
    instant,
    items,
    joined,
    obj,
    text,
    whole,
)
from segue.core.runs.failing_tests import failing_tests
from segue.core.sessions.spend import Spend, split_prompt
from segue.core.stops.codes import PROVIDER_CODES
from segue.core.stops.events import (
    Compaction,
    Ended,
    Event,
    Failure,
    Other,
    Prompt,
    Reply,
    Started,
    Summary,
    TodoList,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import UserExitType

EXITS = {
    41: StopReason.AUTH,
    42: StopReason.ERROR,  # bad input, or a session that cannot be resumed
    53: StopReason.MAX_TURNS,
    55: StopReason.NEEDS_USER,  # the folder is not trusted
    130: StopReason.USER_EXIT,
}

REASONS = {
    **PROVIDER_CODES,
    "TerminalQuotaError": StopReason.RATE_LIMIT,
    "RetryableQuotaError": StopReason.RATE_LIMIT,
    "FatalAuthenticationError": StopReason.AUTH,
    "FatalTurnLimitedError": StopReason.MAX_TURNS,
    "FatalUntrustedWorkspaceError": StopReason.NEEDS_USER,
    "FatalCancellationError": StopReason.USER_EXIT,
}

# The provider's body is inside the message, often as JSON in JSON, so quotes may be escaped.
_WORD = re.compile(r'"(?:status|reason)\\*"\s*:\s*\\*"([A-Z]+(?:_[A-Z]+)*)\b')
_STATUS = re.compile(r'"code\\*"\s*:\s*([1-5]\d\d)\b')
_DELAY = re.compile(r'"retryDelay\\*"\s*:\s*\\*"(\d{1,9}(?:\.\d+)?)s')

_EXIT = re.compile(r"\nExit Code: (-?\d{1,10})(?:\n|$)")
_END_CHARS = 400  # of what the client says after a command's output
_SHOWN = re.compile(r"Command exited with code: (-?\d{1,10})\s*$")

_NOT_THE_USER = (
    "<session_context>",
    "<state_snapshot>",
    "<hook_context>",
    "[System: ",
    "System: Potential loop",
)
_HOOK_STOP = "Agent execution stopped by hook"

# The client saw that the next request would not fit, and stopped silently.
_GUARD: JSON = {"reason": StopReason.CONTEXT_EXHAUSTED, "code": "context_guard"}
# One of the user's hooks returned `continue: false`.
_BY_HOOK: JSON = {
    "reason": StopReason.USER_EXIT,
    "code": "stop_execution",
    "exit_type": UserExitType.TERMINATED,
}
_CANCELLED: JSON = {"reason": StopReason.USER_EXIT, "code": "cancelled"}


_NEEDS_YES = frozenset({"run_shell_command", "write_file", "replace", "web_fetch"})
"""Tools that need approval."""


class _State:
    """What must be remembered about a turn to judge how it ended."""

    def __init__(self) -> None:
        self.model = ""
        self.words: list[str] = []  # deltas of one reply
        self.words_mark: JSON = {}
        self.side = False  # a sub-agent's session file
        self.sizes: dict[str, int] = {}  # tokens reported for each message id
        self.called: set[str] = set()
        self.answered: set[str] = set()
        self.commands: set[str] = set()  # shell calls without a result yet
        self.asking: set[str] = set()  # calls that need approval and have no result yet
        self.summaries: set[str] = set()
        self.new_turn()
        # The input may start in the middle of a turn, which is no reason to doubt a success.
        self.spoke = True

    def new_turn(self) -> None:
        self.spoke = False  # there was text since the last tool result
        self.failed = False
        self.loop = ""
        self.hook_stop = False
        self.result_chars = 0  # of tool results that no reply has followed yet
        self.size = 0
        self.unsent: JSON = {}  # a reply whose tool results were not sent
        self.unsent_mark: JSON = {}

    def take_reply(self) -> Iterator[Event]:
        """The reply that its deltas make up."""
        if self.words:
            yield Reply(text="".join(self.words), **self.words_mark)
            self.words = []

    def full(self, tokens: int, chars: int) -> bool:
        """Whether the client's own guard could have stopped here.

        It compares an estimate (4 characters a token) with its constant for the model's window. A
        tenth is left as a margin for the estimate.
        """
        window = 256_000 if "gemma" in self.model else 1_048_576
        return tokens + chars // 4 >= window * 0.9


def parse(records: Iterable[Record]) -> Iterator[Event]:
    """Events of a stream, a result object or a session file."""
    state = _State()
    for record in records:
        data = record.data
        mark: JSON = {"where": record.where, "at": instant(data.get("timestamp"))}
        if data.get("type") != "message":
            yield from state.take_reply()
        yield from _record(data, mark, state)
    yield from state.take_reply()
    yield from _cut_off(state)


def _record(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    kind = text(data, "type")
    if _is_message(data):
        yield from _message(data, mark, state)
    elif kind in _STREAM:
        yield from _STREAM[kind](data, mark, state)
    elif "$set" in data:
        yield from _set(obj(data, "$set"), mark, state)
    elif "$rewindTo" in data:  # the user took back what came after
        state.new_turn()
        yield Started(**mark)
    elif "sessionId" in data and ("projectHash" in data or "startTime" in data):
        yield from _header(data, mark, state)
    elif "response" in data or ("error" in data and not kind):
        yield from _object(data, mark, state)
    else:
        yield Other(kind=kind or "record", known=False, **mark)


# The live stream


def _init(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    state.new_turn()
    state.model = text(data, "model")
    yield Started(session_id=text(data, "session_id") or None, model=state.model or None, **mark)


def _speech(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    words = joined(data.get("content"))
    if data.get("role") == "user":
        yield from state.take_reply()
        state.new_turn()
        yield Prompt(text=words, **mark)
    elif data.get("role") == "assistant":
        if not data.get("delta"):
            yield from state.take_reply()
        if not state.words:
            state.words_mark = mark
        state.words.append(words)
        state.spoke = state.spoke or bool(words.strip())
        state.result_chars = 0
    else:
        yield Other(kind="message", known=False, **mark)


def _tool_use(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    yield from _called(
        text(data, "tool_name"), text(data, "tool_id"), obj(data, "parameters"), mark, state
    )


def _tool_result(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    error = text(data, "error", "type")
    state.spoke = False
    state.hook_stop = state.hook_stop or error == "stop_execution"
    output = text(data, "output")
    state.result_chars += len(output)
    name = text(data, "tool_id")
    is_shell = name in state.commands
    state.commands.discard(name)
    # Without anybody to ask, a tool that needs approval does not exist.
    is_withheld = error == "tool_not_registered" and name in state.asking
    state.asking.discard(name)
    # The stream shows the output, and the exit code only if there was none.
    code = _SHOWN.match(output) if is_shell else None
    yield ToolResult(
        call_id=name,
        denied=error == "policy_violation" or is_withheld,
        exit_code=int(code[1]) if code else None,
        failed=data.get("status") == "error" or code is not None,
        failing_tests=failing_tests(output) if is_shell else (),
        printed=output or text(data, "error", "message"),
        **mark,
    )


def _error(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    message = text(data, "message")
    if data.get("severity") == "warning":
        # A loop is a stop that calls itself a success; other warnings (a hook's block) are not
        # stops.
        if message.startswith("Loop detected"):
            state.loop = message
        yield Other(kind="warning", **mark)
    else:
        state.failed = True
        yield Failure(**_why(message), **mark)


def _result(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    error = obj(data, "error")
    if data.get("status") == "success" and not error:
        tokens = whole(data, "stats", "input_tokens") or 0
        yield _success(tokens, mark, state)
    else:
        # Status "error" without an error (exit code 0): the `error` event before it says why.
        yield Ended(**_why(text(error, "message"), error), **mark)


def _success(tokens: int, mark: JSON, state: _State) -> Ended:
    """The end of a turn. Status "success" and exit code 0 prove nothing: the turn must have ended
    with text.

    `tokens` is the sum over all requests, so it can only rule out the guard; the session file's
    last size is exact.
    """
    if state.failed:
        return Ended(**mark)
    if state.loop:
        return Ended(reason=StopReason.ERROR, code="loop_detected", message=state.loop, **mark)
    if state.spoke:
        return Ended(ok=True, **mark)
    if state.hook_stop:
        return Ended(**_BY_HOOK, **mark)
    if state.full(tokens, state.result_chars):
        return Ended(**_GUARD, **mark)
    return Ended(code="no_final_text", **mark)


_STREAM = {
    "init": _init,
    "message": _speech,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "error": _error,
    "result": _result,
}


# The object of -o json


def _object(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    state.new_turn()
    models = obj(data, "stats", "models")
    state.model = next(iter(models), "")
    yield Started(session_id=text(data, "session_id") or None, model=state.model or None, **mark)
    if error := obj(data, "error"):
        yield Ended(**_why(text(error, "message"), error), **mark)
        return
    # Sums over all requests: the size of the context only if there was one request.
    sums = [obj(stats, "tokens") for stats in models.values()]
    requests = sum(whole(stats, "api", "totalRequests") or 0 for stats in models.values())
    if requests == 1 and (used := sum(whole(s, "total") or 0 for s in sums)):
        yield Usage(used_tokens=used, **mark)
    if answer := text(data, "response"):
        state.spoke = True
        yield Reply(text=answer, **mark)
    yield _success(sum(whole(s, "prompt") or 0 for s in sums), mark, state)


# The session file


def _is_message(data: JSON) -> bool:
    return "id" in data and "content" in data and "type" in data and "role" not in data


def _header(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    state.new_turn()
    state.side = data.get("kind", "main") != "main"
    mark = {**mark, "at": instant(data.get("startTime"))}
    yield Started(session_id=text(data, "sessionId") or None, **mark)
    for message in items(data, "messages"):
        if isinstance(message, dict):
            at = instant(message.get("timestamp"))
            yield from _message(message, {**mark, "at": at}, state)


def _set(change: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    """A new history, which only a compression causes.

    A resumed session repeats its summary, so only a summary that was not there before is new.
    """
    mark = {**mark, "at": instant(change.get("lastUpdated"))}
    for message in items(change, "messages"):
        state.sizes.setdefault(text(message, "id"), 0)
        words = joined(obj(message).get("content"))
        if words.startswith("<state_snapshot>") and words not in state.summaries:
            state.summaries.add(words)
            state.size = 0
            yield Compaction(phase="done", **mark)
            yield Summary(text=words, **mark)


def _message(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    kind = text(data, "type")
    if state.side:
        yield Other(kind="subagent", **mark)
    elif kind == "gemini":
        yield from _reply(data, mark, state)
    elif kind == "user":
        yield from _user(data, mark, state)
    elif kind == "error":
        yield Failure(**_why(joined(data.get("content"))), **mark)
    elif kind == "info" and data.get("content") == "Request cancelled.":
        yield Ended(message="Request cancelled.", **_CANCELLED, **mark)
    else:
        yield Other(kind=kind, known=kind in ("info", "warning"), **mark)


def _reply(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    """A reply, or the same reply again with its tool calls and their results."""
    name = text(data, "id")
    words = joined(data.get("content"))
    state.model = text(data, "model") or state.model
    if name not in state.sizes and words:
        yield Reply(text=words, **mark)
    used = _size(obj(data, "tokens"))
    if used and state.sizes.get(name) != used:
        yield Usage(
            used_tokens=used,
            parts=parts(obj(data, "tokens")),
            model=state.model or None,
            **mark,
        )
    state.size = used or state.size
    state.sizes[name] = used
    calls = [call for call in items(data, "toolCalls") if isinstance(call, dict)]
    state.unsent, state.unsent_mark = (data, mark) if calls else ({}, {})
    for call in calls:
        yield from _call(call, mark, state)
    if any(call.get("status") == "cancelled" for call in calls):
        yield Ended(**_CANCELLED, **mark)


def _call(call: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    name = text(call, "id")
    if name not in state.called:
        state.called.add(name)
        yield from _called(text(call, "name"), name, obj(call, "args"), mark, state)
    if call.get("result") and name not in state.answered:
        state.answered.add(name)
        status = text(call, "status")
        responses = [obj(part, "functionResponse") for part in items(call, "result")]
        yield _answered(name, responses[0] if responses else {}, mark, state, status)


def _called(name: str, call: str, given: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    command = text(given, "command")
    if command:
        state.commands.add(call)
    if name in _NEEDS_YES:
        state.asking.add(call)
    yield ToolCall(
        name=name,
        call_id=call,
        command=command,
        argument=argument_of(given),
        files=written_by(name, given),
        given=given,
        **mark,
    )
    if todos := todos_of(name, given):
        yield TodoList(todos=todos, **mark)


def _answered(name: str, response: JSON, mark: JSON, state: _State, status: str = "") -> ToolResult:
    """A tool's result as the model gets it: with the exit code, unless that is 0."""
    output = text(response, "response", "output")
    failed = status in ("error", "cancelled") or "error" in obj(response, "response")
    code: int | None = None
    tests: tuple[str, ...] = ()
    if name in state.commands:
        state.commands.discard(name)
        end = output[-_END_CHARS:]
        if found := _EXIT.search(end):
            code = int(found[1])
        elif "Output: " in output[:100] and not failed and "\nSignal: " not in end:
            code = 0
        tests = failing_tests(output)
    failed = failed or code not in (0, None)
    return ToolResult(
        call_id=name,
        exit_code=code,
        failed=failed,
        failing_tests=tests,
        printed=_printed(output) or text(response, "response", "error"),
        **mark,
    )


def _printed(output: str) -> str:
    """A command's output, without what the client adds to it."""
    if not output.startswith("<untrusted_context>"):
        return output
    body = output.removeprefix("<untrusted_context>\n").removesuffix("\n</untrusted_context>")
    body = body.removeprefix("Output: ")
    end = body.rfind("\nProcess Group PGID: ")
    return body[:end] if end >= 0 and "\n" not in body[end + 1 :] else body


def _user(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    content = data.get("content")
    for part in items(content):
        if response := obj(part, "functionResponse"):
            state.unsent = {}
            name = text(response, "id")
            if name not in state.answered:
                state.answered.add(name)
                yield _answered(name, response, mark, state)
    words, pictures = joined(content), images(content)
    if words.startswith(_NOT_THE_USER):
        yield Other(kind="note", **mark)
    elif words or pictures:
        state.unsent = {}
        yield Prompt(text=words, images=pictures, **mark)


def _cut_off(state: _State) -> Iterator[Event]:
    """The end of a session file with tool results that were never sent.

    If the window is nearly full, the client's guard stopped it, otherwise a hook; a killed client
    leaves no results.
    """
    calls = items(state.unsent, "toolCalls")
    if not calls or not all(obj(call).get("result") for call in calls):
        return
    if state.full(state.size, sum(len(str(obj(call).get("result"))) for call in calls)):
        yield Ended(**_GUARD, **state.unsent_mark)
    elif any(
        obj(call).get("status") == "error" and text(call, "resultDisplay").startswith(_HOOK_STOP)
        for call in calls
    ):
        yield Ended(**_BY_HOOK, **state.unsent_mark)


def parts(tokens: JSON) -> Spend:
    """The parts of a request's tokens. The prompt includes the cached part; the output is answer
    and thoughts."""
    output = amount(tokens, "output") + amount(tokens, "thoughts")
    return split_prompt(amount(tokens, "input"), amount(tokens, "cached"), output)


def _size(tokens: JSON) -> int:
    return amount(tokens, "total") or parts(tokens).total_tokens


def _why(message: str, error: JSON | None = None) -> dict[str, Any]:
    """The fields of a failure; `error.code` is an HTTP status or the coming exit code."""
    kind, value = text(error, "type"), whole(error, "code")
    words = [
        word for word in (kind, *_WORD.findall(message)) if word not in ("", "unknown", "Error")
    ]
    telling = next((word for word in words if word in REASONS), "")
    found = _STATUS.search(message)
    status = value if value and 100 <= value < 600 and value != 130 else None
    delay = _DELAY.search(message)
    return {
        "message": message,
        "reason": REASONS.get(telling) or EXITS.get(value or 0),
        "code": telling or (words[-1] if words else None),
        "status": status or (int(found[1]) if found else None),
        "retry_after_s": float(delay[1]) if delay else None,
    }


_SHAPES = {
    "init": {"session_id", "model", "timestamp"},
    "message": {"role", "content", "timestamp"},
    "tool_use": {"tool_name", "tool_id", "parameters"},
    "tool_result": {"tool_id", "status"},
    "error": {"severity", "message"},
    "result": {"status", "stats"},
    "gemini": {"id", "timestamp", "content"},
}
_UNTYPED = (
    {"$set"},
    {"$rewindTo"},
    {"sessionId", "projectHash"},
    {"response", "stats"},
)
_NOTE = {"id", "timestamp", "type", "content"}


def knows(record: JSON) -> bool:
    """Whether this is certainly a record of Gemini CLI."""
    keys, kind = record.keys(), record.get("type")
    if kind is None:
        bare = keys == {"session_id", "error"} and whole(record, "error", "code") is not None
        return bare or any(shape <= keys for shape in _UNTYPED)
    if kind in ("user", "error", "info", "warning") and keys == _NOTE:
        return True
    shape = _SHAPES.get(kind) if isinstance(kind, str) else None
    return shape is not None and shape <= keys


PROFILE = Profile(
    name="gemini",
    knows=knows,
    parse=parse,
    zero_means_done=True,
    exit_reasons=EXITS,
    exit_is_http_status=True,  # 400 -> 144, 429 -> 173, 503 -> 247; not in text mode
    # INT, TERM and HUP all end with exit code 0 and without a result event.
    cut_exit_reasons={0: StopReason.USER_EXIT},
    windows={"gemma": 256_000, "": 1_048_576},  # constants in the client
)
