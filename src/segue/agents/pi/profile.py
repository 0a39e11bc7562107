"""pi (0.73 of @mariozechner, 0.87 of @earendil-works): what its records say.

Forms read:
- the event stream of `--mode json` and `--mode rpc` (there also the responses to commands);
- the session file (`<time>_<uuid>.jsonl`): a header, then entries with id and parentId;
- single messages inside turn_end and agent_end, when the input begins there.

pi exits 0 after every API error in these modes: only the last assistant message's `stopReason`
tells. A run of 0.73 continues unseen after `compaction_start`, which is then the last record.

All in one file, because one reader reads the messages of stream and session file.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared.calls import argument_of, command_of, todos_of, written_by
from segue.agents.shared.fields import (
    JSON,
    amount,
    images,
    instant,
    items,
    joined,
    number,
    obj,
    text,
    whole,
)
from segue.core.runs.failing_tests import failing_tests
from segue.core.sessions.spend import Spend
from segue.core.stops.codes import PROVIDER_CODES
from segue.core.stops.events import (
    Compaction,
    Ended,
    Event,
    Failure,
    Other,
    Prompt,
    Reply,
    Retry,
    Started,
    Summary,
    TodoList,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.core.stops.reasons import StopReason

# The providers' codes are inside errorMessage.
REASONS = {**PROVIDER_CODES, "aborted": StopReason.USER_EXIT}

_WORD = re.compile(r'"(?:type|code|status)"\s*:\s*"([A-Za-z]+(?:_[A-Za-z]+)*)"')
_STATUS = re.compile(r'^\s*([1-5]\d\d)\b|"code"\s*:\s*([1-5]\d\d)\b')

# 0.87 records an abort by the user or the driver as stopReason "error" with this message.
_ABORTED = "This operation was aborted"

_SHELLS = ("bash", "powershell")
_EXIT_CODE = re.compile(r"Command exited with code (\d{1,9})\s*$")
_CODE_CHARS = 100
_DIALOGS = ("select", "confirm", "input", "editor")  # these block until they are answered

_KNOWN = {
    *("queue_update", "branch_summary", "label", "session_info", "custom", "custom_message"),
    "pause",  # of the live parser: it tells nothing
}


class _State:
    """What must be remembered to judge the closing records, which say nothing themselves."""

    def __init__(self) -> None:
        self.last: JSON = {}  # the last assistant message
        self.window: int | None = None
        self.compaction_error = ""
        self.is_turn_over = False  # and nothing was started since
        self.entries: set[str] = set()  # of the session file, by id


def parse(records: Iterable[Record]) -> Iterator[Event]:
    """Events of a stream or a session file."""
    state = _State()
    for record in records:
        kind = text(record.data, "type")
        mark: JSON = {"where": record.where, "at": instant(record.data.get("timestamp"))}
        was_over = state.is_turn_over and kind not in _SHAPES
        state.is_turn_over = kind == "turn_end" or was_over
        if read := _READ.get(kind):
            yield from read(record.data, mark, state)
        else:
            is_known = kind in _KNOWN or kind in _SHAPES
            yield Other(kind=kind or "record", known=is_known, **mark)
            if was_over and not is_known and _stop(state.last) == "stop":
                yield from _ended(mark, state)  # the end of a run, under an unknown name


def _session(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    state.last = {}
    yield Started(session_id=text(data, "id") or None, cwd=text(data, "cwd") or None, **mark)


def _agent_start(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    """A prompt, a retry or the continuation after a compaction starts."""
    state.last = {}
    state.compaction_error = ""
    yield Started(**mark)


def _model(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    """The model, which is named before the first message; a later change does not start a turn."""
    if state.entries or state.last:
        yield Other(kind="model_change", **mark)
    else:
        yield Started(model=text(data, "modelId") or None, **mark)


# Messages


def _message_end(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    yield from _message(obj(data, "message"), mark, state)


def _entry(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    """A message of the session file, which has no closing records: `stopReason` decides.

    An error is not an end there, because a retry may follow.
    """
    message, name = obj(data, "message"), text(data, "id")
    if name and name in state.entries:  # a copy, which says nothing about the present
        return
    state.entries.add(name)
    yield from _message(message, mark, state)
    if message.get("role") == "assistant" and _stop(message) not in ("error", "toolUse", ""):
        yield from _ended(mark, state)


def _message(message: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    at = instant(message.get("timestamp"))
    mark = {**mark, "at": at if at is not None else mark["at"]}
    match message.get("role"):
        case "assistant":
            yield from _assistant(message, mark, state)
        case "user":
            content = message.get("content")
            yield Prompt(text=joined(content), images=images(content), **mark)
        case "toolResult":
            yield _result(message, mark)
        case role:
            known = role in ("system", "custom", "bashExecution", "branchSummary")
            yield Other(kind=f"message:{role}", known=known, **mark)


def _assistant(message: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    state.last = message
    if words := joined(message.get("content")):
        yield Reply(text=words, **mark)
    for block in items(message, "content"):
        if text(block, "type") == "toolCall":
            yield _call(block, mark)
            if todos := todos_of(text(block, "name"), obj(block, "arguments")):
                yield TodoList(todos=todos, **mark)
    if _stop(message) in ("error", "aborted"):  # these have zeros as usage
        yield Failure(**_why(text(message, "errorMessage"), _stop(message)), **mark)
    elif used := _size(obj(message, "usage")):
        yield Usage(
            used_tokens=used,
            window_tokens=state.window,
            parts=parts(obj(message, "usage")),
            model=text(message, "model") or None,
            **mark,
        )


def _call(block: JSON, mark: JSON) -> ToolCall:
    name, given = text(block, "name"), obj(block, "arguments")
    return ToolCall(
        name=name,
        call_id=text(block, "id"),
        command=command_of(given.get("command")) if name in _SHELLS else "",
        argument=argument_of(given),
        files=written_by(name, given),
        given=given,
        **mark,
    )


def _result(message: JSON, mark: JSON) -> ToolResult:
    """A tool's result. The exit code of a failed command is at the end of its output."""
    failed, is_shell = message.get("isError") is True, text(message, "toolName") in _SHELLS
    output = joined(message.get("content"))
    code = _EXIT_CODE.search(output[-_CODE_CHARS:]) if is_shell else None
    exit_code = int(code[1]) if code and failed else None
    return ToolResult(
        call_id=text(message, "toolCallId"),
        exit_code=0 if is_shell and not failed else exit_code,
        failed=failed,
        failing_tests=failing_tests(output) if is_shell else (),
        printed=output,
        **mark,
    )


def _stop(message: JSON) -> str:
    stop = text(message, "stopReason")
    return "aborted" if text(message, "errorMessage") == _ABORTED else stop


def parts(usage: JSON) -> Spend:
    """`input` excludes the cache."""
    return Spend(
        input_tokens=amount(usage, "input"),
        output_tokens=amount(usage, "output"),
        cache_read_tokens=amount(usage, "cacheRead"),
        cache_write_tokens=amount(usage, "cacheWrite"),
    )


def _size(usage: JSON) -> int:
    """`totalTokens` is the sum of all four."""
    return amount(usage, "totalTokens") or parts(usage).total_tokens


# The ends of turns and runs


def _turn_end(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    yield from _unless_repeated(obj(data, "message"), mark, state)


def _agent_end(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    replies = [m for m in items(data, "messages") if obj(m).get("role") == "assistant"]
    if replies:
        yield from _unless_repeated(replies[-1], mark, state)
    if data.get("willRetry") is True:
        yield Retry(message=text(state.last, "errorMessage"), **mark)
    else:
        yield from _ended(mark, state)


def _settled(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    """The end of a run, the only one in 0.87: a compaction and a retry may follow an agent_end."""
    yield from _ended(mark, state)


def _unless_repeated(message: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    """The message in a turn_end or agent_end. Both repeat messages, which count only if the input
    began after the original."""
    same = state.last and message.get("timestamp") == state.last.get("timestamp")
    if message.get("role") == "assistant" and not same:
        yield from _message(message, mark, state)


def _ended(mark: JSON, state: _State) -> Iterator[Event]:
    stop = _stop(state.last)
    if not stop:  # no reply was seen, so nothing can be said
        yield Other(kind="end", **mark)
    elif stop == "stop":
        yield Ended(ok=True, **mark)
    elif stop in ("error", "aborted"):
        yield Ended(**_why(text(state.last, "errorMessage"), stop), **mark)
    else:  # length: half an answer; toolUse: the run broke off between two turns
        yield Ended(code=stop, message=state.compaction_error, **mark)


# Retries and compaction


def _retry_start(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    why = _why(text(data, "errorMessage"))
    delay = number(data, "delayMs")
    wait = None if delay is None else delay / 1000
    yield Retry(message=why["message"], status=why["status"], wait_s=wait, **mark)


def _retry_end(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    if data.get("success") is False and (final := text(data, "finalError")):
        yield Failure(**_why(final), **mark)
    else:
        yield Other(kind="auto_retry_end", **mark)


def _compaction_start(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    if data.get("reason") == "manual":  # a command after the run, which is not part of how it ended
        yield Other(kind="compaction_start", **mark)
    else:
        yield Compaction(phase="started", **mark)


def _compaction_end(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    if obj(data, "result"):
        size = whole(data, "result", "estimatedTokensAfter")
        summary = text(data, "result", "summary")
        # It also compacts when it is done. After a reply that called tools it is not.
        is_last = data.get("willRetry") is not True and _stop(state.last) != "toolUse"
        yield Compaction(phase="done", used_tokens=size, ends_turn=is_last, **mark)
        yield Summary(text=summary, **mark)
    elif data.get("reason") == "manual":
        yield Other(kind="compaction_end", **mark)
    else:
        state.compaction_error = text(data, "errorMessage")
        yield Compaction(phase="failed", message=state.compaction_error, **mark)


def _compaction(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    """A compaction in the session file, which has only finished ones; `tokensBefore` is not the new
    size."""
    yield Compaction(phase="done", ends_turn=True, **mark)
    yield Summary(text=text(data, "summary"), **mark)


def _response(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    """The answer to a command, in RPC mode."""
    found = obj(data, "data")
    window = whole(found, "model", "contextWindow") or whole(found, "contextUsage", "contextWindow")
    state.window = window or state.window
    used = whole(found, "contextUsage", "tokens")
    if data.get("command") == "get_state" and not state.last and text(found, "sessionId"):
        model = text(found, "model", "id") or None
        yield Started(session_id=text(found, "sessionId"), model=model, **mark)
    elif data.get("command") == "prompt" and data.get("success") is False:
        yield Failure(**_why(text(data, "error")), **mark)
    elif used:
        yield Usage(used_tokens=used, window_tokens=state.window, **mark)
    else:
        yield Other(kind="response", **mark)


def is_question(data: JSON) -> bool:
    """Whether an extension asks the user and waits for the answer."""
    return text(data, "method") in _DIALOGS and not number(data, "timeout")


def _ui_request(data: JSON, mark: JSON, state: _State) -> Iterator[Event]:
    if is_question(data):
        asked = text(data, "title") or text(data, "message")
        yield Failure(reason=StopReason.NEEDS_USER, code="dialog", message=asked, **mark)
    else:
        yield Other(kind="extension_ui_request", **mark)


_READ = {
    "session": _session,
    "agent_start": _agent_start,
    "message_end": _message_end,
    "message": _entry,
    "model_change": _model,
    "turn_end": _turn_end,
    "agent_end": _agent_end,
    "agent_settled": _settled,
    "auto_retry_start": _retry_start,
    "auto_retry_end": _retry_end,
    "compaction_start": _compaction_start,
    "compaction_end": _compaction_end,
    "compaction": _compaction,
    "response": _response,
    "extension_ui_request": _ui_request,
}


def _why(message: str, stop: str = "") -> dict[str, Any]:
    """The fields of a failure, e.g. of `429 {"type":"error","error":{"type":"rate_limit_error"…`"""
    words = [word for word in (stop, *_WORD.findall(message)) if word not in ("", "error")]
    telling = next((word for word in words if word in REASONS), "")
    status = _STATUS.search(message)
    return {
        "message": message,
        "reason": REASONS.get(telling),
        "code": telling or (words[-1] if words else None),
        "status": int(status[1] or status[2]) if status else None,
    }


_BARE = frozenset({"type"})
_ENTRY = frozenset({"id", "parentId", "timestamp"})
_TOOL = frozenset({"toolCallId", "toolName"})
_SHAPES: dict[str, frozenset[str] | set[str]] = {
    "session": {"version", "id", "cwd"},
    "message_start": {"message"},
    "message_update": {"assistantMessageEvent"},
    "message_end": {"message"},
    "turn_end": {"message", "toolResults"},
    "agent_end": {"messages"},
    "auto_retry_start": {"attempt", "delayMs"},
    "auto_retry_end": {"attempt", "success"},
    "compaction_start": {"reason"},
    "compaction_end": {"reason", "aborted"},
    "entry_appended": {"entry"},
    "response": {"command", "success"},
    "extension_ui_request": {"id", "method"},
    **dict.fromkeys(("agent_start", "turn_start", "agent_settled"), _BARE),
    **dict.fromkeys((f"tool_execution_{step}" for step in ("start", "update", "end")), _TOOL),
    **dict.fromkeys(("message", "compaction", "context_edit", "model_change"), _ENTRY),
    "thinking_level_change": _ENTRY,
}


def knows(record: JSON) -> bool:
    """Whether this is certainly pi's record."""
    kind = record.get("type")
    shape = _SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None or not shape <= record.keys():
        return False
    return shape is not _BARE or len(record) == 1


def _window_in(config: JSON, model: str) -> int | None:
    """`providers.<name>.models[].{id, contextWindow}`."""
    for provider in obj(config, "providers").values():
        for known in items(provider, "models"):
            if text(known, "id") == model and (found := amount(known, "contextWindow")):
                return found
    return None


PROFILE = Profile(
    name="pi",
    knows=knows,
    parse=parse,
    # In text mode, it prints nothing and exits with 0 if a full window could not be compacted.
    silent_exit_reasons={0: StopReason.CONTEXT_EXHAUSTED},
    zero_means_done=True,
    window_in=_window_in,
    enforced=lambda window: window - 16_384,
)
