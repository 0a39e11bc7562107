"""Reads records in the form of Claude Code, which other agents have adopted, into events.

- the live stream of `-p --output-format stream-json` (also with partial messages, also two-way),
- the one result object of `--output-format json`,
- the transcript, `projects/<slug>/<session>.jsonl`,
- StopFailure hook input, also shortened ones ({"session_id", "error_type", "error"}).

`Reader` takes any mixture of them, one stream or file each. Agents that differ in details derive
theirs from it: they may rely on `errors`, `is_error`, `status`, `parts` and on each kind of record
having a method of its own.

Result records are judged by `is_error` and `terminal_reason`, never by `subtype`: an API error has
the subtype "success". Transcripts have no result at all: there, a main-thread reply that ended its
turn is the end, and is held back until it is certain that nothing of the turn follows.

All in one file, because one state machine reads a mixture of all forms.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from segue.agents.contracts.profile import Record
from segue.agents.shared.calls import argument_of, todos_of, written_by
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
from segue.core.sessions.remarks import Todo, TodoStatus
from segue.core.sessions.spend import Spend
from segue.core.stops import events as ev
from segue.core.stops.reasons import StopReason as R
from segue.core.stops.types import UserExitType

Events = Iterator[ev.Event]

TERMINAL = {
    "blocking_limit": R.CONTEXT_EXHAUSTED,
    "prompt_too_long": R.CONTEXT_EXHAUSTED,
    "rapid_refill_breaker": R.CONTEXT_EXHAUSTED,  # "Autocompact is thrashing"
    "max_turns": R.MAX_TURNS,
    "budget_exhausted": R.MAX_BUDGET,
    "aborted_streaming": R.USER_EXIT,
    "aborted_tools": R.USER_EXIT,
    "hook_stopped": R.USER_EXIT,  # the user's own hook ended it during work; exit code 0, no error
    "tool_deferred": R.NEEDS_USER,
    "tool_deferred_unavailable": R.ERROR,
    "malformed_tool_use_exhausted": R.ERROR,
    "structured_output_retry_exhausted": R.ERROR,
    "turn_setup_failed": R.ERROR,
    # none for api_error, model_error, image_error (also a 413): status and message say more
    "error_max_turns": R.MAX_TURNS,  # subtypes, for versions without terminal_reason
    "error_max_budget_usd": R.MAX_BUDGET,
    "error_max_structured_output_retries": R.ERROR,
}
_BY_HOOK = UserExitType.TERMINATED  # the user's own hook, not a key
# "stop_hook_prevented": a hook stopped it after the model had already ended its turn
WELL = {"", "completed", "stop_hook_prevented"}

_CODES = (  # `error`, `apiError`, `api_error_type`; invalid_request and unknown say nothing
    (R.RATE_LIMIT, "rate_limit", "rate_limit_error", "usage_limit_reached"),
    (R.OVERLOADED, "overloaded", "overloaded_error", "server_error", "api_error"),
    (R.OVERLOADED, "connection_failed"),
    (R.TIMEOUT, "timeout_error"),
    (R.AUTH, "authentication_failed", "authentication_error", "permission_error"),
    (R.AUTH, "oauth_org_not_allowed", "account_on_hold", "verification_required"),
    (R.AUTH, "cloud_credential_error"),
    (R.BILLING, "billing_error"),
    (R.CONTEXT_EXHAUSTED, "context_window_exceeded", "request_too_large"),
    (R.ERROR, "max_output_tokens", "model_not_found", "not_found_error", "tool_history_mismatch"),
)
ERRORS: dict[str, R] = {code: reason for reason, *codes in _CODES for code in codes}

_TASK_STATES: dict[str, TodoStatus] = {
    "pending": "pending", "in_progress": "in_progress", "completed": "completed",
}  # fmt: skip
_TASK_MADE = re.compile(r"Task #(\S{1,80}) created")
_EXIT = re.compile(r"Exit code (-?\d{1,10})\b")
_PERMISSION = re.compile(r"(?i)\bpermissions?\b|\bapproval\b|\b(?:allow|approve|grant)(?:ed)?\b")
_WORDS_CHARS = 400
_SAVED = "<persisted-output>"
_PREVIEW = re.compile(
    r"(Exit code -?\d+\n)?<persisted-output>\s*(?:Output [^\n]*\n\s*)?(?:Preview \([^\n]*\n)?"
    r"(.*?)(?:\n\.\.\.)?\s*(?:</persisted-output>|\Z)",
    re.DOTALL,
)
_CLEARED = "[Old tool result content cleared]"
# commands that the client ran, not the model
_LOCAL = ("<local-command-", "<command-", "<bash-", "Caveat:")
_IDLE = re.compile(  # record types that do not matter: of the stream, then of the transcript
    "control_cancel_request|command_lifecycle|keep_alive|tool_progress|auth_status|"
    "tool_use_summary|prompt_suggestion|streamlined_text|"
    "summary|queue-operation|last-prompt|cost-state|tools-used|mode|permission-mode|progress|"
    "file-history-snapshot|atis-latch|api-request.*|.*-title|agent-(name|setting)|pr-link|tag|"
    "content-replacement|worktree-state"
)
_IDLE_SYSTEM = re.compile(
    "hook_.*|task_.*|background_tasks_changed|notification|informational|thinking_tokens|status|"
    "session_state_changed|stop_hook_summary|turn_duration|local_command(_output)?|"
    "microcompact_boundary|files_persisted|session_writes_lost|away_summary|bridge_status|"
    "memory_saved|plugin_install|elicitation_complete|post_turn_summary|scheduled_task_fire"
)


class _Recent:
    """Remembers the last ids, at least `least` of them, and not all, because a stream may run for
    days."""

    def __init__(self, least: int = 2_000) -> None:
        self._least = least
        self._new: set[str] = set()
        self._old: set[str] = set()

    def add(self, key: str) -> None:
        if len(self._new) >= self._least:
            self._old, self._new = self._new, set()
        self._new.add(key)

    def __contains__(self, key: str) -> bool:
        return key in self._new or key in self._old


class Reader:
    """Reads one stream or file. It remembers the context that single records do not have."""

    errors: ClassVar[dict[str, R]] = ERRORS

    def __init__(self) -> None:
        self.here: JSON = {}  # the place and time of the current record
        self.compacted = False  # in the stream, the client's next words are the summary
        self.held: ev.Ended | None = None  # a transcript's end of turn, unless something follows
        self.session = self.model = self.cwd = ""
        self.used: int | None = None
        self.window: int | None = None
        self.counted = ("", 0)  # message id and tokens of the last reported usage
        self.replies = _Recent()  # message ids that were reported
        self.has_replied = False  # the model has said something in this turn
        self.failed = ""  # the client's last error in this turn
        self.making: dict[str, str] = {}  # tasks without a number yet, by call
        self.tasks: dict[str, str] = {}  # by the client's number
        self.commands: dict[str, str] = {}  # shell calls without a result yet, and the shell's name

    def parse(self, records: Iterable[Record]) -> Events:
        for record in records:
            self.here = {"where": record.where, "at": instant(record.data.get("timestamp"))}
            yield from self.read(record.data)
        yield from self.release()

    def read(self, data: JSON) -> Events:
        kind = text(data, "type")
        if data.get("isSidechain") is True:
            return  # a sub-agent's: its errors and tokens are not the session's
        if data.get("parent_tool_use_id") and text(data, "parent_tool_use_id"):
            return  # also a sub-agent's, in the stream
        session = cwd = ""
        if "sessionId" in data:
            session, cwd = text(data, "sessionId"), text(data, "cwd")
        if session and (session != self.session or (cwd and not self.cwd)):
            # A transcript has no opening record, and its first records do not name the folder.
            self.cwd = cwd
            yield from self.begin(session, "", cwd)
        match kind:
            case "assistant":
                yield from self.assistant(data)
            case "user":
                yield from self.user(data)
            case "result":
                yield from self.result(data)
            case "system":
                yield from self.system(data)
            case "attachment":
                yield from self.attachment(obj(data, "attachment"))
            case "rate_limit_event":
                yield self.limit(obj(data, "rate_limit_info"))
            case "stream_event":  # the only place in the stream with the final output count
                if text(data, "event", "type") == "message_delta":
                    key = text(data, "api_message_id") or self.counted[0]
                    yield from self.count(self.parts(obj(data, "event", "usage")), key)
            case "control_request":
                if text(data, "request", "subtype") == "can_use_tool":
                    yield self.awaiting("can_use_tool", text(data, "request", "tool_name"))
            case "control_response":  # the response to get_context_usage, or to something else
                meter = obj(data, "response", "response")
                self.window = whole(meter, "maxTokens") or self.window
                yield from self.count(None, "meter", whole(meter, "totalTokens"))
            case "conversation_reset":
                self.used = None
                yield from self.begin(text(data, "new_conversation_id"))
            case "error":  # agents of the same form: {"type": "error", "message"} or the API's body
                message = text(data, "message") or text(data, "error", "message")
                yield from self.client_error(data, message, text(data, "error", "type"))
            case "":
                yield from self.untyped(data)
            case _ if is_result(data):  # a result whose type has another name
                yield from self.result(data)
            case _ if not _IDLE.fullmatch(kind):
                yield ev.Other(kind=kind, known=False, **self.here)

    def begin(self, session: str = "", model: str = "", cwd: str = "") -> Events:
        yield from self.release()
        self.has_replied, self.failed = False, ""
        self.session, self.model = session or self.session, model or self.model
        known = self.session or None
        yield ev.Started(session_id=known, model=model or None, cwd=cwd or None, **self.here)

    def prompt(self, words: str, pictures: tuple[str, ...] = ()) -> Events:
        yield from self.release()
        self.has_replied, self.failed = False, ""
        yield ev.Prompt(text=words, images=pictures, **self.here)

    def release(self) -> Events:
        if self.held is not None:
            yield self.held
        self.held = None

    def leave(self) -> Events:
        """The user typed /exit: the end of the session, unless its turn had already ended."""
        if self.held is None and not self.failed:
            exit_type = UserExitType.EXIT_COMMAND
            yield ev.Ended(
                reason=R.USER_EXIT, code="exit_command", exit_type=exit_type, **self.here
            )

    def awaiting(self, code: str, message: str = "") -> ev.Failure:
        return ev.Failure(reason=R.NEEDS_USER, code=code, message=message, **self.here)

    def assistant(self, data: JSON) -> Events:
        self.held, self.compacted = None, False
        message = obj(data, "message")
        words, stop = joined(message.get("content")), text(message, "stop_reason")
        code, model = "", text(message, "model")
        if "error" in data or "error" in message:
            code = text(data, "error") or text(message, "error") or text(data, "error", "type")
            words = words or text(data, "error", "message")
        error = data.get("isApiErrorMessage", data.get("is_api_error_message"))
        if model == "<synthetic>" and error is None:
            # Not the model's words: the output of a local command, a filler on resume ("No response
            # requested."), and in old versions also errors that are not marked as such.
            error = words not in ("", "No response requested.") and stop != "end_turn"
        if code or error or self.is_error(words):
            yield from self.client_error(data, words, code)
        elif error is None:
            self.model = model or self.model
            yield from self.blocks(items(message, "content"))
            yield from self.count(self.parts(obj(message, "usage")), text(message, "id"))
            if stop == "refusal":  # the client may continue once by itself; then a reply follows
                yield ev.Failure(reason=R.REFUSAL, code=stop, **self.here)
            elif stop in ("end_turn", "stop_sequence") and words.strip() and "sessionId" in data:
                self.held = ev.Ended(ok=True, code=stop, **self.here)

    def blocks(self, content: list[Any]) -> Events:
        for block in content:
            if words := text(block, "text").strip():
                yield ev.Reply(text=words, **self.here)
            elif text(block, "type").endswith("tool_use"):  # also server_ and mcp_
                name, given = text(block, "name"), obj(block, "input")
                yield self.called(name, text(block, "id"), given)
                yield from self.planned(name, text(block, "id"), given)
            else:
                continue
            self.has_replied, self.failed = True, ""

    def called(self, name: str, call: str, given: JSON) -> ev.ToolCall:
        """The event for a tool call; calls of a shell are remembered, so that their results can be
        searched for failing tests."""
        command = text(given, "command")
        if command:
            self.commands[call] = name
        return ev.ToolCall(
            name=name,
            call_id=call,
            command=command,
            argument=argument_of(given),
            files=written_by(name, given),
            given=given,
            **self.here,
        )

    def planned(self, name: str, call: str, given: JSON) -> Events:
        """What a call changes in the todo list. Newer versions create and change single tasks,
        whose numbers the client returns as the result."""
        listed = todos_of(name, given)
        if name == "TaskCreate":
            self.making[call] = text(given, "subject") or text(given, "description")
            listed = (Todo(self.making[call]),)
        elif name == "TaskUpdate" and text(given, "status") in _TASK_STATES:
            number = text(given, "taskId")
            # Of a session that was resumed, the beginning is in the stream of an earlier leg.
            task = self.tasks.get(number) or f"task {number} of {self.session}"
            listed = (Todo(task), Todo(task, _TASK_STATES[text(given, "status")]))
        if listed:
            yield ev.TodoList(todos=listed, **self.here)

    def answered_by(self, data: JSON, block: JSON) -> ev.ToolResult:
        """A tool's result. The output of a shell is searched for failing tests."""
        call, wrong = text(block, "tool_use_id"), block.get("is_error") is True
        result = data.get("tool_use_result", data.get("toolUseResult"))
        if task := self.making.pop(call, ""):
            named = _TASK_MADE.search(joined(block.get("content")))
            self.tasks[text(result, "task", "id") or (named[1] if named else "")] = task
        shell = self.commands.pop(call, "Bash" if "stdout" in obj(result) else "")
        code: int | None = None
        tests: tuple[str, ...] = ()
        output = joined(block.get("content"))
        if shell:
            found = _EXIT.match(output) if wrong else None
            if found is not None:
                code = int(found[1])
            elif shell == "Bash" and not wrong and not _goes_on(result, output):
                code = 0
            tests = failing_tests(output)
        return ev.ToolResult(
            call_id=call,
            denied=_denied(data, call),
            exit_code=code,
            failed=wrong,
            failing_tests=tests,
            printed=_printed_text(output),
            **self.here,
        )

    def parts(self, usage: JSON) -> Spend:
        return Spend(
            input_tokens=_tokens(usage, "input_tokens"),
            output_tokens=_tokens(usage, "output_tokens"),
            cache_read_tokens=_tokens(usage, "cache_read_input_tokens"),
            cache_write_tokens=_tokens(usage, "cache_creation_input_tokens"),
            hour_write_tokens=_tokens(obj(usage, "cache_creation"), "ephemeral_1h_input_tokens"),
        )

    def count(self, parts: Spend | None, key: str, used: int | None = None) -> Events:
        """The size after a message. One message is several records with one id and one usage, of
        which only the output grows; it is reported once. A copy of an earlier message later on says
        nothing about the context now."""
        used = parts.total_tokens if parts is not None else used
        last, counted = self.counted
        stale = key in self.replies and (key != last or (used or 0) < counted) and key != "meter"
        if used and used > 0 and (key, used) != self.counted and not stale:
            self.counted, self.used = (key, used), used
            if key:
                self.replies.add(key)
            yield self.usage(used, parts)

    def usage(self, used: int, parts: Spend | None = None) -> ev.Usage:
        model = self.model or None
        return ev.Usage(
            used_tokens=used, window_tokens=self.window, parts=parts, model=model, **self.here
        )

    def is_error(self, words: str) -> bool:
        """Whether this text can only be the client's own error."""
        return False

    def status(self, data: JSON, words: str) -> int | None:
        number = whole(data, "apiErrorStatus") or whole(data, "api_error_status")
        return number or whole(data, "error", "status")

    def name(self, *codes: str) -> tuple[str | None, R | None]:
        """The first code that names a reason, otherwise the first code."""
        known = next((code for code in codes if code in self.errors), "")
        return known or next(filter(None, codes), None), self.errors.get(known)

    def client_error(self, data: JSON, words: str, code: str) -> Events:
        limits = obj(data, "quotaLimits") or obj(data, "apiErrorParams", "rate_limit_info")
        if limits:
            yield self.limit(limits)
        kind = text(data, "apiErrorType") or text(data, "api_error_type")
        named, reason = self.name(text(data, "apiError"), code, kind)
        self.failed = words
        yield ev.Failure(
            message="\n".join(filter(None, (words, text(data, "errorDetails")))),
            reason=reason,
            code=named,
            status=self.status(data, words),
            resets_at=instant(limits.get("resetsAt")),
            **self.here,
        )

    def limit(self, info: JSON) -> ev.Limit:
        # "overageStatus: rejected" next to "allowed" is not a rejection; neither is a rejected plan
        # window while paid overage continues.
        carried = info.get("isUsingOverage") is True and text(info, "overageStatus") != "rejected"
        scope = text(info, "rateLimitType")
        used = number(info, "utilization")
        if used is None:
            used = number(info, "unifiedWindows", scope, "utilization")
        return ev.Limit(
            rejected=text(info, "status") == "rejected" and not carried,
            scope=scope or None,
            resets_at=instant(info.get("resetsAt")),
            used_percent=None if used is None else used * 100,
            **self.here,
        )

    def user(self, data: JSON) -> Events:
        content = obj(data, "message").get("content")
        results = [block for block in items(content) if text(block, "type") == "tool_result"]
        if results:
            self.held = None
            for block in results:
                yield self.answered_by(data, block)
            return
        words, typed = joined(content).strip(), "promptSource" in data
        if words.startswith("[Request interrupted by user") and not typed:
            self.held = None
            yield ev.Ended(reason=R.USER_EXIT, code="interrupted", message=words, **self.here)
        elif data.get("isCompactSummary") is True or (
            self.compacted and data.get("isSynthetic") is True
        ):
            self.compacted = False
            yield ev.Summary(text=words, **self.here)
        elif words.startswith(_LOCAL) and not typed:
            if re.search("<command-name>/(exit|quit)<", words):
                yield from self.leave()
        elif data.get("isMeta") is True or data.get("isSynthetic") is True:
            self.held = None  # the client makes it continue: stop hook, cut output, empty reply
        elif text(data, "origin", "kind") not in ("", "human") or words.startswith("<task-notif"):
            yield from self.begin()  # a turn that the client starts by itself
        elif content:
            yield from self.prompt(words, images(content))
        else:
            yield ev.Other(kind="user", known=False, **self.here)

    def system(self, data: JSON) -> Events:
        match text(data, "subtype"):
            case "init":
                names = (text(data, key) for key in ("session_id", "model", "cwd"))
                yield from self.begin(*names)
            case "api_retry":
                yield self.retry(text(data, "error"), data, "error_status", "retry_delay_ms")
            case "api_error":  # the transcript's counterpart of api_retry
                error = obj(data, "error")
                message = text(error, "formatted") or text(error, "message")
                if number(data, "retryInMs") is None:
                    yield ev.Failure(message=message, status=whole(error, "status"), **self.here)
                else:
                    yield self.retry(message, {**error, **data}, "status", "retryInMs")
            case "compact_boundary":
                after = whole(data, "compact_metadata", "post_tokens")
                after = after or whole(data, "compactMetadata", "postTokens")
                before = whole(data, "compact_metadata", "pre_tokens")
                before = before or whole(data, "compactMetadata", "preTokens")
                self.used, self.counted, self.compacted = after, ("", 0), True
                trigger = text(data, "compact_metadata", "trigger")
                trigger = trigger or text(data, "compactMetadata", "trigger")
                yield ev.Compaction(
                    phase="done",
                    used_tokens=after,
                    before_tokens=before,
                    ends_turn=trigger == "manual",
                    **self.here,
                )
            case "status" if text(data, "status") == "compacting":
                yield ev.Compaction(phase="started", **self.here)
            case "status" if text(data, "compact_result") == "failed":
                why = text(data, "compact_error")
                yield ev.Compaction(phase="failed", message=why, **self.here)
            case "session_state_changed" if text(data, "state") == "requires_action":
                yield self.awaiting("requires_action")
            case "permission_denied":  # nobody granted it; a reply shows that it went on without
                yield self.awaiting("permission_denied", text(data, "message"))
            case subtype if not _IDLE_SYSTEM.fullmatch(subtype):
                yield ev.Other(kind=f"system/{subtype}", known=False, **self.here)

    def retry(self, message: str, data: JSON, status: str, delay: str) -> ev.Retry:
        wait = None if (ms := number(data, delay)) is None else ms / 1000
        return ev.Retry(message=message, status=whole(data, status), wait_s=wait, **self.here)

    def attachment(self, data: JSON) -> Events:
        at_stop = text(data, "hookEvent") == "Stop"
        match text(data, "type"):
            case "max_turns_reached" as code:
                self.held = None
                yield ev.Ended(reason=R.MAX_TURNS, code=code, **self.here)
            case "hook_stopped_continuation" as code if not at_stop:
                reason, message = TERMINAL["hook_stopped"], text(data, "message")
                yield ev.Ended(
                    reason=reason, code=code, message=message, exit_type=_BY_HOOK, **self.here
                )
            case "hook_blocking_error" | "hook_additional_context" if at_stop:
                self.held = None  # a stop hook sends it back to work
            case "queued_command" if text(data, "commandMode") == "prompt":
                yield from self.prompt(joined(data.get("prompt")))

    def result(self, data: JSON) -> Events:
        words, wrong = text(data, "result"), data.get("is_error") is True
        ending, subtype = text(data, "terminal_reason"), text(data, "subtype")
        code, reason = self.name(text(data, "api_error_type") or text(data, "error", "type"))
        for known in (subtype, ending):
            if known in TERMINAL:
                code, reason = known, TERMINAL[known]
        # The client's own words in a "success": an error it has just shown, or one it gave without
        # asking the model ("Unknown skill: …").
        own = bool(words) and (words == self.failed or self.is_error(words) or _unasked(data))
        if reason is None and text(data, "stop_reason") == "refusal":
            code, reason = "refusal", R.REFUSAL
        elif reason is None and not wrong and _asks_for_permission(data, words):
            code, reason = "permission_denials", R.NEEDS_USER
        ok = not (wrong or own or reason) and ending in WELL and subtype in ("", "success")
        message = "" if ok else _complaint(data, words if wrong or own else "")
        yield from self.measure(data)
        if ok and words and not self.has_replied and not data.get("local_command"):
            yield ev.Reply(text=words, **self.here)  # in json mode, the answer is nowhere else
        yield ev.Ended(
            ok=ok,
            reason=reason,
            code=code or ending or (None if subtype == "success" else subtype or None),
            message=message,
            status=self.status(data, message),
            exit_type=_BY_HOOK if code == "hook_stopped" else None,
            **self.here,
        )
        self.has_replied = False

    def measure(self, data: JSON) -> Events:
        """The window, which is only reported here. `usage` is a sum: only its last iteration is a
        size."""
        models = obj(data, "modelUsage") or obj(data, "model_usage")
        mine = models.get(self.model, *models.values() if len(models) == 1 else ())
        window = whole(mine, "contextWindow")
        steps = items(data, "usage", "iterations")
        parts = self.parts(obj(steps[-1])) if steps and not self.used else None
        used = self.used or (parts.total_tokens if parts is not None else 0)
        if used > 0 and (window or not self.used):
            self.window = window or self.window
            yield self.usage(used, parts)

    def untyped(self, data: JSON) -> Events:
        """Hook input, or a result whose type was lost on the way (logs, SDK dumps)."""
        hook = text(data, "hook_event_name")
        if hook not in ("", "StopFailure") or data.get("agent_id"):
            return  # other hooks; those of a sub-agent
        if is_stop_failure(data):
            error = text(data, "error")
            enum = error if re.fullmatch("[a-z_]+", error) else ""
            code, reason = self.name(text(data, "error_type"), enum)
            texts = (text(data, "last_assistant_message"), text(data, "error_details"))
            message = "\n".join(filter(None, (*texts, "" if enum else error)))
            yield ev.Failure(message=message, reason=reason, code=code, **self.here)
        elif is_result(data):
            yield from self.result(data)
        else:
            yield ev.Other(known=False, **self.here)


def _tokens(usage: JSON, name: str) -> int:
    """Like `amount`, but faster for the usual case."""
    found = usage.get(name)
    if found is None:
        return 0
    return found if type(found) is int and 0 <= found < 10**18 else amount(usage, name)


def _denied(data: JSON, call: str) -> bool:
    if "toolDenialKind" not in data and "tool_result_meta" not in data:
        return False
    kinds = [text(data, "toolDenialKind")]
    for meta in items(data, "tool_result_meta"):
        if text(meta, "id") == call:
            kinds += text(meta, "non_execution_kind"), text(meta, "permission_decision", "decision")
    return any(kind not in ("", "accept", "allow", "interrupted") for kind in kinds)


def _printed_text(words: str) -> str:
    """A tool's output, without what the client adds to the beginning of a long text, or shows
    instead of an old one."""
    if words.startswith(_CLEARED):
        return ""
    if _SAVED not in words[:100]:
        return words
    found = _PREVIEW.match(words)
    return words if found is None else (found[1] or "") + found[2]


def _goes_on(outcome: Any, words: str) -> bool:
    """Whether a shell command continues in the background, or was stopped."""
    result = obj(outcome)
    if result.get("interrupted") is True or text(result, "backgroundTaskId"):
        return True
    return words.startswith("Command running in background")


def _unasked(data: JSON) -> bool:
    """Whether the client answered without the model: a "success" with turns, but without API time
    and a stop reason."""
    silent = data.get("stop_reason", "") is None and number(data, "duration_api_ms") == 0
    return silent and (whole(data, "num_turns") or 0) > 0


def _asks_for_permission(data: JSON, words: str) -> bool:
    """Whether a tool was denied, and the agent's last words are about that or there are none;
    otherwise the agent continued without the tool."""
    asks = not words or _PERMISSION.search(words[:_WORDS_CHARS] + "\n" + words[-_WORDS_CHARS:])
    return bool(asks and items(data, "permission_denials"))


def _complaint(data: JSON, words: str) -> str:
    error = text(data, "error") or text(data, "error", "message")
    listed = (line for line in items(data, "errors") if isinstance(line, str))
    return "\n".join(dict.fromkeys(filter(None, (words, error, *listed))))


def is_stop_failure(data: JSON) -> bool:
    """Whether this is the input of a StopFailure hook, complete or shortened."""
    error = text(data, "error_type") or text(data, "error")
    return bool(text(data, "session_id") and error) and "is_error" not in data


def is_result(data: JSON) -> bool:
    """Whether this record is the end of a turn, whatever its type is called: it states whether the
    turn failed."""
    if data.get("type") == "result":
        return True
    tells = isinstance(data.get("is_error"), bool) and ("subtype" in data or "result" in data)
    if "type" not in data:
        return tells
    return tells and ("num_turns" in data or "duration_ms" in data)


def resembles(record: JSON) -> bool:
    """Whether this has the format that droid, grok and others share with Claude Code."""
    if text(record, "type") in ("user", "assistant"):
        return isinstance(record.get("message"), dict) or "isApiErrorMessage" in record
    if "type" not in record:
        return isinstance(record.get("is_error"), bool) and "subtype" in record
    return text(record, "type") in ("result", "system") and bool(text(record, "subtype"))
