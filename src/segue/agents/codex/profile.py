"""Codex CLI: what its records say.

Forms read, alone or mixed:

- `codex exec --json`: `thread.started`, `turn.*`, `item.*`, `error`
- the session file (rollout): `{timestamp, type, payload}`, and bare payloads of its events, such
  as `{"type": "turn_aborted", "reason": "interrupted"}`
- notifications of `codex app-server`: `{method, params}`, and the older `{id, msg}` stream
- what `notify` programs get: `{"type": "agent-turn-complete", …}`

All of them report the same events in different spellings, so names and keys are converted to one
spelling first. The exec stream never says how full the context is; the session file and the server
do.

All in one file, because one reader reads all forms.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from segue.agents.codex.spelling import snake, snake_keys, time_of, unwrap
from segue.agents.codex.tools import Put, item_call, item_outcome, wire_call, wire_result
from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared.calls import todos_of
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
from segue.agents.shared.lines import decode
from segue.core.sessions.spend import Spend, split_prompt
from segue.core.stops.events import (
    Compaction,
    Ended,
    Event,
    Failure,
    Limit,
    Other,
    Prompt,
    Reply,
    Retry,
    Started,
    Summary,
    TodoList,
    Usage,
)
from segue.core.stops.reasons import StopReason


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


# `codex_error_info`. Names that are missing here ("other", "bad_request", …) say nothing; the
# message does. "usage_limit_exceeded" also stands for an empty quota, where the sentence wins.
_REASONS = {
    "context_window_exceeded": StopReason.CONTEXT_EXHAUSTED,
    "session_budget_exceeded": StopReason.MAX_BUDGET,
    "usage_limit_exceeded": StopReason.RATE_LIMIT,
    "rate_limit_exceeded": StopReason.RATE_LIMIT,
    "server_overloaded": StopReason.OVERLOADED,
    "internal_server_error": StopReason.OVERLOADED,
    "unauthorized": StopReason.AUTH,
    "cyber_policy": StopReason.REFUSAL,
}
# These have an HTTP status that says more (401, 429); without one, the connection failed.
_CONNECTION = _words(
    "http_connection_failed response_stream_connection_failed response_stream_disconnected "
    "response_too_many_failed_attempts"
)
_ABORTED = {
    "interrupted": StopReason.USER_EXIT,
    "replaced": StopReason.USER_EXIT,
    "budget_limited": StopReason.MAX_BUDGET,
}
_CANCELLED = re.compile(r"(?i)user (?:cancel|interrupt|abort)")
_PLAN_WINDOWS = {300: "five_hour", 10080: "seven_day"}
_TOOL_ITEMS = _words(
    "command_execution file_change mcp_tool_call dynamic_tool_call collab_tool_call "
    "collab_agent_tool_call web_search image_view image_generation"
)
_SHELLS = _words("exec_command shell shell_command local_shell_call container.exec")
# An item of type "error" is a warning (unknown model, hook trust), never a failure.
_QUIET_ITEMS = {"error", "reasoning", "todo_list", "plan", "hook_prompt", "sub_agent_activity"}


class _State:
    """What the parser remembers between records."""

    def __init__(self) -> None:
        self.window: int | None = None
        self.size: tuple[int, int | None] | None = None  # the last Usage, because records repeat it
        self.total = 0  # tokens of the thread so far; never decreases by itself
        self.unspent = 0  # the part of `total` that a full window added to the sum
        self.model = ""
        self.limits: dict[str, Limit] = {}
        self.resets_at: float | None = None  # of a plan window that was used up in this turn
        self.failed = False  # there was an error in this turn, and no reply after it
        self.summarising = False
        self.compacted = False  # reported already: up to three records describe one compaction
        self.running: set[str] = set()
        self.children: set[str] = set()  # threads of sub-agents
        self.shells: set[str] = set()  # shell calls without a result yet
        self.sandbox = ""  # the sandbox mode of this turn

    def begin(self) -> None:
        self.failed = self.summarising = self.compacted = False
        self.size = self.resets_at = None

    def on(self) -> None:
        self.failed = self.compacted = False


Handler = Callable[[_State, JSON, Put], Iterable[Event]]


def parse(records: Iterable[Record]) -> Iterator[Event]:
    """Events of one exec stream, session file or server connection."""
    state = _State()
    for record in records:
        kind, payload = unwrap(record.data)
        if text(payload, "thread_id") in state.children:
            continue
        put: Put = {"where": record.where, "at": time_of(record.data)}
        handler = _HANDLERS.get(kind)
        if handler is not None:
            yield from handler(state, payload, put)
        elif kind not in _QUIET and not kind.endswith(("_delta", "_begin", "_end", "/delta")):
            yield Other(kind=kind, known=False, **put)


def _thread(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    thread = obj(payload, "thread") or payload  # the server nests it
    ident = text(thread, "thread_id") or text(thread, "id") or text(thread, "session_id")
    if text(thread, "parent_thread_id"):
        state.children.add(ident)
        return
    state.begin()
    yield Started(
        session_id=ident or None,
        model=text(thread, "model") or None,
        cwd=text(thread, "cwd") or None,
        **put,
    )


def _turn(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    state.begin()
    state.window = whole(payload, "model_context_window") or state.window
    yield Started(**put)


def _context(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    """The settings of a turn, including the model. Repeated in the middle of a turn after a
    compaction."""
    state.sandbox = text(payload, "sandbox_policy", "type") or state.sandbox
    model = text(payload, "model") or text(payload, "thread_settings", "model")
    if model and model != state.model:
        state.model = model
        yield Started(model=model, **put)
    else:
        yield Other(kind="turn_context", **put)


def _prompt(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    state.on()
    content = payload.get("content")
    named = tuple(name for name in items(payload, "local_images") if isinstance(name, str))
    words = text(payload, "message") or joined(content)
    yield Prompt(text=words, images=named or images(content), **put)


def _reply(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    state.on()
    words = text(payload, "text") or text(payload, "message") or joined(payload.get("content"))
    yield Reply(text=words, **put)


def _item_started(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    item = obj(payload, "item")
    kind, ident = snake(text(item, "type")), text(item, "id")
    if kind in _TOOL_ITEMS:
        state.on()
        state.running.add(ident)
        yield item_call(kind, item, put)
    elif kind == "context_compaction":
        state.summarising, state.compacted = True, False
        yield Compaction(phase="started", **put)
    else:
        yield from _item_todos(state, payload, put)


def _item_todos(_: _State, payload: JSON, put: Put) -> Iterator[Event]:
    item = obj(payload, "item")
    if todos := todos_of(snake(text(item, "type")), item):
        yield TodoList(todos=todos, **put)


def _item_completed(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    item = obj(payload, "item")
    kind, ident = snake(text(item, "type")), text(item, "id")
    if kind == "context_compaction":
        yield from _compacted(state, payload, put)
        return
    if kind not in _TOOL_ITEMS:
        yield from _item_todos(state, payload, put)
        yield from _file_item(state, payload, put)
        return
    state.on()
    if ident not in state.running:  # file changes and searches may only be recorded when done
        yield item_call(kind, item, put)
    state.running.discard(ident)
    yield item_outcome(kind, item, state.sandbox, put)


def _file_item(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    item = obj(payload, "item")
    kind = snake(text(item, "type"))
    if kind == "user_message":
        yield from _prompt(state, item, put)
    elif kind == "agent_message":
        yield from _reply(state, item, put)
    elif kind == "context_compaction":
        return  # the file has a record for it, and its new size is between the two
    elif kind not in _TOOL_ITEMS and kind not in _QUIET_ITEMS:
        yield Other(kind=f"item {kind}", known=False, **put)


def _response_item(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    """Items of the API. Events report messages too, and without inserted text."""
    kind = text(payload, "type")
    call = text(payload, "call_id") or text(payload, "id")
    if kind in ("function_call", "custom_tool_call", "local_shell_call"):
        state.on()
        name = text(payload, "name") or kind
        if name in _SHELLS:
            state.shells.add(call)
        yield wire_call(name, call, payload, put)
        if todos := todos_of(name, obj(decode(text(payload, "arguments")))):
            yield TodoList(todos=todos, **put)
    elif kind in ("function_call_output", "custom_tool_call_output"):
        state.on()
        is_shell = call in state.shells
        state.shells.discard(call)
        yield wire_result(state.sandbox, call, payload.get("output"), put, is_shell=is_shell)
    elif obj(payload, "metadata").get("compaction_output") is True:
        state.summarising, state.compacted = True, False
        yield Compaction(phase="started", **put)


def _compacted(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    if not state.compacted:
        state.compacted, state.summarising, state.size = True, False, None
        yield Compaction(phase="done", **put)
        if words := text(payload, "message"):
            yield Summary(text=words, **put)


def _token_count(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    info = obj(payload, "info") or obj(payload, "token_usage")  # null until the first reply
    window = whole(info, "model_context_window") or state.window
    last = obj(info, "last_token_usage") or obj(info, "last")
    total = obj(info, "total_token_usage") or obj(info, "total")
    used, spent = amount(last, "total_tokens"), amount(total, "total_tokens")
    known = _measured(last) or _measured(total)
    if spent and spent == window and not known:
        # After "ran out of room" the sum is set to the window, and `last` is only the difference to
        # what was used before (0 at worst): the context is full.
        used = spent
        state.unspent += spent - state.total if state.total else 0
    elif state.summarising and _measured(last):
        used = 0  # the size of the summary request, not of the context
    if not (known and 0 < spent < state.total):  # otherwise a copy of an earlier record
        state.total = spent or state.total
        parts = split_parts(last) if _measured(last) else None
        yield from _usage(state, used, window, put, parts)
    yield from _rate_limits(state, payload, put)


def split_parts(usage: JSON) -> Spend:
    """The four parts of a usage. Codex's input includes what was read from and written to the
    cache; its output includes the reasoning."""
    return split_prompt(
        amount(usage, "input_tokens"),
        amount(usage, "cached_input_tokens"),
        amount(usage, "output_tokens"),
        amount(usage, "cache_write_input_tokens"),
    )


def _measured(usage: JSON) -> bool:
    """Whether this is a real measurement; numbers made up by the client have a total without
    parts."""
    return bool(whole(usage, "input_tokens") or whole(usage, "output_tokens"))


def _token_usage_record(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    """The size after a reply. This record is written as soon as the reply arrives; the token count
    follows only after the tools."""
    if not state.summarising:
        used = whole(payload, "usage", "total_tokens") or 0
        spent = amount(payload, "thread_token_usage", "total_tokens")
        total = spent + state.unspent if spent else state.total
        if total >= state.total:
            state.total = total
            parts = split_parts(obj(payload, "usage"))
            yield from _usage(state, used, state.window, put, parts)


def _usage(
    state: _State, used: int, window: int | None, put: Put, parts: Spend | None
) -> Iterator[Event]:
    state.window = window
    if used > 0 and state.size != (used, window):
        state.size = (used, window)
        model = state.model or None
        yield Usage(used_tokens=used, window_tokens=window, parts=parts, model=model, **put)


def _rate_limits(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    """The plan's limits. After a reply without the headers they are null, and skipped."""
    limits = obj(payload, "rate_limits")
    reached = bool(text(limits, "rate_limit_reached_type"))
    for place in ("primary", "secondary"):
        plan = obj(limits, place)
        used = number(plan, "used_percent")
        if used is None:
            continue
        minutes = whole(plan, "window_minutes") or whole(plan, "window_duration_mins")
        resets_at = instant(plan.get("resets_at"))
        after_s = number(plan, "resets_in_seconds")
        if resets_at is None and after_s is not None and put["at"] is not None:
            resets_at = put["at"] + after_s
        limit = Limit(
            rejected=reached and used >= 100,
            scope=_PLAN_WINDOWS.get(minutes, f"{minutes}_minutes") if minutes else place,
            resets_at=resets_at,
            used_percent=used,
        )
        if used >= 100:
            state.resets_at = max(resets_at or 0, state.resets_at or 0) or None
        if state.limits.get(place) != limit:
            state.limits[place] = limit
            yield replace(limit, **put)


def _error(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    """An error, which is not final by itself: retries report "error" too, and the turn's end
    follows."""
    why = _why(state, obj(payload, "error") or payload)
    if payload.get("will_retry") is True or why["message"].startswith("Reconnecting..."):
        yield Retry(message=why["message"], status=why["status"], **put)
        return
    state.failed = True
    yield Failure(**why, **put)


def _retry(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    yield Retry(message=text(payload, "message"), **put)


def _why(state: _State, error: JSON) -> dict[str, Any]:
    info = error.get("codex_error_info")
    name, status = "", None
    if isinstance(info, str):
        name = snake(info)
    elif isinstance(info, dict) and info:
        first = next(iter(info))
        name = snake(str(first))
        status = whole(snake_keys(obj(info, first)), "http_status_code")
    reason = _REASONS.get(name)
    if name in _CONNECTION and status is None:
        reason = StopReason.OVERLOADED
    return {
        "message": text(error, "message"),
        "reason": reason,
        "code": name or None,
        "status": status,
        "resets_at": state.resets_at if name == "usage_limit_exceeded" else None,
    }


def _complete(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    error = obj(payload, "error")
    # Older versions write the error as a separate event, and an end that does not mention it.
    silent = state.failed and not text(payload, "last_agent_message")
    yield Ended(ok=not error and not silent, **_why(state, error), **put)


def _failed(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    yield Ended(ok=False, **_why(state, obj(payload, "error")), **put)


def _aborted(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    reason = text(payload, "reason") or "interrupted"
    by_user = StopReason.USER_EXIT if _CANCELLED.match(reason) else None
    yield Ended(
        ok=False, reason=_ABORTED.get(reason, by_user), code=f"turn_aborted: {reason}", **put
    )


def _server_turn(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    turn = obj(payload, "turn")
    match text(turn, "status"):
        case "completed":
            yield Ended(ok=True, **put)
        case "interrupted":
            yield from _aborted(state, {"reason": "interrupted"}, put)
        case "failed":
            yield from _failed(state, turn, put)


def _turn_completed(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    # The usage of `turn.completed` is the thread's sum, not a size. `notify` only reports success.
    yield Ended(ok=True, **put)


def _asks(state: _State, payload: JSON, put: Put) -> Iterator[Event]:
    """The agent waits for an approval or an answer; nothing follows until it gets one."""
    yield Failure(reason=StopReason.NEEDS_USER, code="approval_requested", **put)


_NAMES: dict[Handler, str] = {
    _thread: "thread.started session_meta session_configured thread/started",
    _turn: "turn.started task_started turn_started turn/started",
    _context: "turn_context thread_settings_applied",
    _prompt: "user_message",
    _reply: "agent_message",
    _item_started: "item.started item_started item/started",
    _item_todos: "item.updated",
    _item_completed: "item.completed item_completed item/completed",
    _file_item: "file_item",
    _response_item: "response_item",
    _token_count: "token_count thread/tokenUsage/updated",
    _token_usage_record: "token_usage_record",
    _rate_limits: "account/rateLimits/updated",
    _compacted: "compacted context_compacted thread/compacted",
    _error: "error",
    _retry: "stream_error",
    _complete: "task_complete turn_complete",
    _failed: "turn.failed",
    _turn_completed: "turn.completed agent-turn-complete",
    _aborted: "turn_aborted",
    _server_turn: "turn/completed",
    _asks: "exec_approval_request apply_patch_approval_request request_permissions "
    "request_user_input elicitation_request item/commandExecution/requestApproval "
    "item/fileChange/requestApproval item/permissions/requestApproval item/tool/requestUserInput",
}
_HANDLERS = {name: handler for handler, names in _NAMES.items() for name in names.split()}
_QUIET = _words(
    "response world_state warning configWarning "
    "deprecationNotice deprecation_notice background_event agent_reasoning "
    "agent_reasoning_raw_content agent_reasoning_section_break plan_update turn_diff "
    "shutdown_complete thread/status/changed thread/goal/cleared thread/name/updated "
    "turn/diff/updated turn/plan/updated serverRequest/resolved remoteControl/status/changed"
)
_FILE_TYPES = _words(
    "session_meta event_msg response_item turn_context world_state token_usage_record compacted"
)
_OWN_TYPES = _words(
    "turn.started turn.completed turn.failed task_started task_complete turn_aborted token_count "
    "agent-turn-complete"
)


def knows(record: JSON) -> bool:
    """Whether this is certainly Codex's record."""
    kind = text(record, "type")
    if isinstance(record.get("method"), str):
        return record["method"] in _HANDLERS and bool(text(record, "params", "threadId"))
    if isinstance(record.get("msg"), dict):
        return text(record, "msg", "type") in _HANDLERS
    if kind in _FILE_TYPES:
        return isinstance(record.get("payload"), dict)
    if kind == "thread.started":
        return bool(text(record, "thread_id"))
    if kind in ("item.started", "item.updated", "item.completed"):
        return bool(text(record, "item", "type"))
    if kind == "error":
        return text(record, "message").startswith("Reconnecting...")
    return kind in _OWN_TYPES


PROFILE = Profile(
    name="codex",
    knows=knows,
    parse=parse,
    zero_means_done=True,
    # SIGINT: exits with 1 and says nothing; every failure with exit code 1 has reported
    # `turn.failed`.
    cut_exit_reasons={1: StopReason.USER_EXIT},
    # 95% of what its catalogue says, mostly of 272,000; the same for models it does not know.
    windows={"gpt-": 258_400, "gpt-6.1-terra": 475_000, "": 258_400},
    enforced=lambda window: window * 90 // 95,
)
