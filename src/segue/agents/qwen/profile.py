"""Qwen Code: a stream in Claude Code's words, a session file in Gemini's.

- the live stream of `--output-format stream-json` and the result object of `json` mode,
- the session file, `~/.qwen/projects/<slug>/chats/<id>.jsonl`: messages with `parts`, and
  "system" records of which the client's telemetry holds the API errors.

Its client reports errors as words of the assistant ("[API Error: …]"), and such a run may even end
with "success" and exit code 0. Older versions write no `turn_result`, so their session files have
no closing record: a reply without a tool call is the end there, held back until it is certain that
nothing follows.
"""

import re
from collections.abc import Iterable
from typing import Any, ClassVar

from segue.agents.claude import records as claude_form
from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared.fields import JSON, amount, images, items, obj, text, whole
from segue.core.sessions.spend import Spend, split_prompt
from segue.core.stops import events as ev
from segue.core.stops.reasons import StopReason as R

_ERROR = re.compile(r"\s*\[API Error: (\d{3}\b)?")

SDK_ERRORS = {  # class names of the SDKs in `error_type`, after which ":ECONNREFUSED" may follow
    "RateLimitError": R.RATE_LIMIT,
    "AuthenticationError": R.AUTH,
    "PermissionDeniedError": R.AUTH,
    "InternalServerError": R.OVERLOADED,
    "APIConnectionError": R.OVERLOADED,
    "APIConnectionTimeoutError": R.TIMEOUT,
    "NotFoundError": R.ERROR,
}
STOPS = {  # `stopReason` and `state` of a turn_result
    "cancelled": R.USER_EXIT,
    "refusal": R.REFUSAL,
    "max_turn_requests": R.MAX_TURNS,
}
_IDLE_SYSTEM = re.compile(
    "attribution_snapshot|session_.*|agent_.*|goal_.*|at_command|custom_title|parent_session|"
    "file_history_snapshot|branch_checkpoint|user_text_elements|omni_recall|rewind|notification|"
    "background_task_completed|managed_session_.*|ui_telemetry|slash_command"
)


def split_usage(usage: JSON) -> Spend:
    """The session file's usage: the prompt includes the cached part, the total includes
    thoughts."""
    prompt, total = amount(usage, "promptTokenCount"), amount(usage, "totalTokenCount")
    cached = amount(usage, "cachedContentTokenCount")
    return split_prompt(prompt, cached, max(total - prompt, 0))


class Reader(claude_form.Reader):
    """Claude's reader for the stream, with additional methods for the session file's records."""

    errors: ClassVar[dict[str, R]] = {**claude_form.ERRORS, **SDK_ERRORS}

    def parts(self, usage: JSON) -> Spend:
        # input_tokens includes the cached ones; a text block before a tool call says 0
        prompt, cached = amount(usage, "input_tokens"), amount(usage, "cache_read_input_tokens")
        total, output = amount(usage, "total_tokens"), amount(usage, "output_tokens")
        return split_prompt(prompt, cached, max(total - prompt, output))

    def is_error(self, words: str) -> bool:
        return _ERROR.match(words) is not None

    def status(self, data: JSON, words: str) -> int | None:
        found = _ERROR.match(words)
        return int(found[1]) if found and found[1] else None

    def read(self, data: JSON) -> claude_form.Events:
        if "sessionId" not in data or data.get("isSidechain") is True:
            yield from super().read(data)
            return
        if self.session != text(data, "sessionId"):
            yield from self.begin(text(data, "sessionId"), text(data, "model"), text(data, "cwd"))
        match text(data, "type"):
            case "user":
                yield from self.user_record(data)
            case "assistant":
                yield from self.answered(data)
            case "tool_result":
                yield from self.tool_result(data)
            case "system":
                yield from self.noted(text(data, "subtype"), obj(data, "systemPayload"))
            case kind:
                yield ev.Other(kind=kind, known=False, **self.here)

    def system(self, data: JSON) -> claude_form.Events:
        if text(data, "subtype") == "retry":
            why = obj(data, "data")
            yield self.retry(text(why, "reason"), why, "status", "delayMs")
        else:
            yield from super().system(data)

    def user_record(self, data: JSON) -> claude_form.Events:
        if text(data, "subtype") in ("notification", "cron", "goal_runtime"):
            yield from self.begin()  # a turn that the client starts by itself
        else:
            yield from self.prompt(_visible_text(data), images(obj(data, "message").get("parts")))

    def answered(self, data: JSON) -> claude_form.Events:
        self.held = None
        words = _visible_text(data)
        self.window = whole(data, "contextWindowSize") or self.window
        if self.is_error(words):
            yield from self.client_error(data, words, "")
            return
        calls = [part for part in items(data, "message", "parts") if obj(part, "functionCall")]
        if words.strip():
            yield ev.Reply(text=words, **self.here)
        for part in calls:
            call = obj(part, "functionCall")
            yield self.called(text(call, "name"), text(call, "id"), obj(call, "args"))
            yield from self.planned(text(call, "name"), text(call, "id"), obj(call, "args"))
        self.model = text(data, "model") or self.model
        yield from self.count(split_usage(obj(data, "usageMetadata")), text(data, "uuid"))
        if words.strip() and not calls:
            self.held = ev.Ended(ok=True, **self.here)

    def tool_result(self, data: JSON) -> claude_form.Events:
        self.held = None
        result = obj(data, "toolCallResult")
        denied = text(result, "errorType") == "execution_denied"
        response = next((r for p in items(data, "message", "parts") if (r := _response(p))), {})
        yield ev.ToolResult(
            call_id=text(result, "callId"),
            denied=denied,
            failed="error" in response or text(result, "status") == "error",
            printed=text(response, "output") or text(response, "error"),
            **self.here,
        )
        if text(result, "status") == "cancelled":  # by the user or a signal; otherwise it continues
            yield ev.Failure(reason=R.USER_EXIT, code="cancelled", **self.here)

    def noted(self, subtype: str, note: JSON) -> claude_form.Events:
        match subtype:
            case "ui_telemetry" if text(note, "uiEvent", "event.name").endswith(".api_error"):
                yield from self.api_error(obj(note, "uiEvent"))
            case "chat_compression":
                after = whole(note, "info", "newTokenCount")
                if whole(note, "info", "compressionStatus") in (None, 1):
                    self.used, self.counted = after, ("", 0)
                    yield ev.Compaction(phase="done", used_tokens=after, **self.here)
                else:
                    yield ev.Compaction(phase="failed", **self.here)
            case "turn_result":
                yield from self.turn_result(note)
            case "mid_turn_user_message":
                yield from self.prompt(text(note, "displayText"))
            case "slash_command" if text(note, "rawCommand").strip() in ("/quit", "/exit"):
                yield from self.leave()
            case _ if not _IDLE_SYSTEM.fullmatch(subtype):
                yield ev.Other(kind=f"system/{subtype}", known=False, **self.here)

    def api_error(self, error: JSON) -> claude_form.Events:
        """Takes an API error. Each failed try leaves one; those of side requests (memory) end
        nothing."""
        side = text(error, "subagent_name") or "########" not in text(error, "prompt_id")
        if side:
            return
        self.held = None
        self.failed = text(error, "error_message")
        code, reason = self.name(text(error, "error_type").partition(":")[0])
        status = whole(error, "status_code")
        yield ev.Failure(message=self.failed, reason=reason, code=code, status=status, **self.here)

    def turn_result(self, note: JSON) -> claude_form.Events:
        self.held = None
        state, stop = text(note, "state"), text(note, "stopReason")
        reason = STOPS.get(stop) or STOPS.get(state)
        code = text(note, "error", "code") or stop or state or None
        ok = state == "completed" and stop in ("", "end_turn")
        message = text(note, "error", "message")
        yield ev.Ended(ok=ok, reason=reason, code=code, message=message, **self.here)


def _response(part: Any) -> JSON:
    return obj(part, "functionResponse", "response")


def _visible_text(data: JSON) -> str:
    parts = items(data, "message", "parts")
    shown = (text(part, "text") for part in parts if obj(part).get("thought") is not True)
    return "\n".join(filter(None, shown))


def knows(record: JSON) -> bool:
    """Whether the record has what Claude Code's nearly identical stream lacks."""
    if "qwen_code_version" in record:
        return True
    message = obj(record, "message")
    match text(record, "type"):
        case "user" | "assistant" | "tool_result" | "system" if "sessionId" in record:
            return "parts" in message or "provenance" in record or "systemPayload" in record
        case "assistant":
            own = text(message, "id")
            return bool(own) and own == text(record, "uuid") and "parent_tool_use_id" in record
        case "result":
            theirs = {"total_cost_usd", "terminal_reason", "modelUsage", "stop_reason"}
            return {"is_error", "permission_denials"} <= set(record) and theirs.isdisjoint(record)
        case "stream_event":
            return text(record, "event", "type") == "goal_state"
        case "system":
            return text(record, "subtype") == "retry" and "delayMs" in obj(record, "data")
    return False


def parse(records: Iterable[Record]) -> claude_form.Events:
    """Stream, result object or session file, oldest first."""
    return Reader().parse(records)


PROFILE = Profile(
    name="qwen",
    knows=knows,
    parse=parse,
    exit_reasons={  # 130 was measured (INT and TERM alike); the others are from its source
        41: R.AUTH,
        42: R.ERROR,
        44: R.ERROR,
        52: R.ERROR,
        53: R.MAX_TURNS,
        54: R.ERROR,
        55: R.MAX_BUDGET,
        130: R.USER_EXIT,
    },
)
