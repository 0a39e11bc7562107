"""What the claude form prints and writes: each event goes to the stream and to the file."""

import json
import sys
import time
from typing import Any

from segue import __version__
from segue.drill.rehearsal.claude_file import (
    CUT_CALL,
    FILLER,
    SessionFile,
    new_id,
    stamp,
    told_by_hook,
)
from segue.drill.rehearsal.inbox import JSON
from segue.drill.rehearsal.messages_api import FailedError, Reply, Retry
from segue.drill.rehearsal.settings import Settings

_NOTHING = {
    "input_tokens": 0,
    "output_tokens": 0,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 0,
}
_COUNTS = {  # usage fields, and their names in the totals per model
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_input_tokens": "cacheReadInputTokens",
    "cache_creation_input_tokens": "cacheCreationInputTokens",
}


class TurnUsage:
    """Usage of a turn (`usage`) and of the whole session, by model (`models`)."""

    def __init__(self, window: int, models: dict[str, JSON]) -> None:
        self.window, self.models = window, models
        self.usage = dict(_NOTHING)

    def take(self, reply: Reply, *, is_main: bool = True) -> None:
        """Adds a reply's usage. That of a request for a summary (not `is_main`) counts only for
        the session, as with the real agent."""
        model = self.models.setdefault(reply.model, dict.fromkeys(_COUNTS.values(), 0))
        for name, total in _COUNTS.items():
            amount = int(reply.usage.get(name) or 0)
            model[total] = int(model.get(total) or 0) + amount
            if is_main:
                self.usage[name] += amount
        model.update(costUSD=0, contextWindow=self.window, maxOutputTokens=32_000)


class Voice:
    """Writes each event to the stream and to the session file. In text and json mode, only the end
    is printed."""

    def __init__(self, settings: Settings, file: SessionFile) -> None:
        self.settings, self.file = settings, file
        self.results = 0

    def emit(self, event: JSON) -> None:
        """One event of the stream."""
        if self.settings.output == "stream-json":
            event = {**event, "session_id": self.file.session, "uuid": event.get("uuid", new_id())}
            print(json.dumps(event, ensure_ascii=False, separators=(",", ":")), flush=True)

    def init(self) -> None:
        source = "none" if self.settings.is_plan else "ANTHROPIC_API_KEY"
        self.emit(
            {
                "type": "system",
                "subtype": "init",
                "cwd": self.settings.cwd,
                "tools": ["Bash"],
                "mcp_servers": [],
                "model": self.settings.model,
                "permissionMode": "bypassPermissions",
                "apiKeySource": source,
                "rehearsal_version": __version__,
                "slash_commands": [],
            }
        )

    def prompt(self, text: str) -> None:
        """Writes the user's prompt, to the file only."""
        self.file.note("queue-operation", operation="enqueue", timestamp=stamp(), content=text)
        self.file.note("queue-operation", operation="dequeue", timestamp=stamp())
        message = {"role": "user", "content": text}
        self.file.add({"type": "user", "message": message, "promptSource": "sdk"})

    def tell_back(self, line: JSON) -> None:
        """Repeats the user's input line in the stream, if the settings ask for that."""
        if self.settings.tells_back and line:
            record = {"type": "user", "message": line.get("message"), "parent_tool_use_id": None}
            uuid = {"uuid": line["uuid"]} if line.get("uuid") else {}
            self.emit({**record, **uuid, "timestamp": stamp(), "isReplay": True})

    def said_between(self, text: str) -> None:
        """Writes a user's message that arrived while a tool was running, to the file only."""
        attachment = {"type": "queued_command", "prompt": text, "commandMode": "prompt"}
        self.file.add({"type": "attachment", "attachment": attachment})

    def told_by_hook(self, text: str) -> str:
        """Writes what a hook added to the conversation; returns it as the model sees it."""
        attachment = {"type": "hook_additional_context", "content": [text]}
        self.file.add({"type": "attachment", "attachment": attachment})
        return told_by_hook([text])

    def reply(self, reply: Reply, *, cut: bool = False) -> None:
        """Writes a reply, one record per block. The stream reports the usage as of the beginning,
        the file the final one. `cut`: it was interrupted."""
        self.file.recent = []
        request = reply.request or f"req_{new_id()[:12]}"
        for block in reply.content:
            ident = new_id()
            base = {
                "id": reply.id,
                "type": "message",
                "role": "assistant",
                "model": reply.model,
                "content": [block],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": reply.first_usage,
            }
            final = base if cut else {**base, "stop_reason": reply.stop_reason}
            record: JSON = {
                "message": final if cut else {**final, "usage": reply.usage},
                "requestId": request,
                "type": "assistant",
            }
            self.file.add({**record, "isAbortedMidStream": True} if cut else record, ident)
            event = {"type": "assistant", "message": base, "parent_tool_use_id": None}
            self.emit({**event, "uuid": ident, "timestamp": stamp(), "request_id": request})

    def result_of(
        self, call: str, text: str, *, is_error: bool, denied: bool = False, is_kept: bool = True
    ) -> JSON:
        """Writes a tool's result; returns it as a block of the conversation."""
        block = {
            "tool_use_id": call,
            "type": "tool_result",
            "content": text,
            "is_error": is_error,
        }
        ident = self.user(
            [block], is_kept=is_kept, **({"toolDenialKind": "user-rejected"} if denied else {})
        )
        meta = [{"id": call, "non_execution_kind": "user-rejected"}] if denied else []
        event = {"type": "user", "message": {"role": "user", "content": [block]}, "uuid": ident}
        more = {"tool_result_meta": meta} if denied else {}
        self.emit({**event, "parent_tool_use_id": None, "timestamp": stamp(), **more})
        return block

    def user(self, content: str | list[JSON], *, is_kept: bool = True, **more: object) -> str:
        """Writes a user's message that the client creates, to the file only; returns its id."""
        if not is_kept:
            return new_id()
        return self.file.add(
            {"type": "user", "message": {"role": "user", "content": content}, **more}
        )

    def interrupted(self, text: str) -> None:
        """Writes that the user interrupted the turn."""
        content = [{"type": "text", "text": text}]
        ident = self.user(content)
        event = {"type": "user", "message": {"role": "user", "content": content}, "uuid": ident}
        self.emit({**event, "parent_tool_use_id": None, "timestamp": stamp()})

    def repaired(self, calls: list[str]) -> list[JSON]:
        """Adds results for the tool calls of a session that was killed; returns the blocks."""
        blocks = [
            {"tool_use_id": call, "type": "tool_result", "content": CUT_CALL, "is_error": True}
            for call in calls
        ]
        self.user(blocks)
        message = {**_synthetic(FILLER), "stop_reason": "end_turn"}
        self.file.add({"type": "assistant", "message": message})
        return blocks

    def retry(self, retry: Retry) -> None:
        """Reports a wait before the next try."""
        wait_ms, most = int(retry.wait_s * 1000), self.settings.max_retries
        self.emit(
            {
                "type": "system",
                "subtype": "api_retry",
                "attempt": retry.attempt,
                "max_retries": most,
                "retry_delay_ms": wait_ms,
                "error_status": retry.status,
                "error": retry.name,
            }
        )
        message = (
            "Connection error." if retry.is_connection else str(getattr(retry.cause, "body", ""))
        )
        formatted = (
            f"{retry.status} {getattr(retry.cause, 'message', '')}" if retry.status else message
        )
        error: JSON = {"message": message, "formatted": formatted}
        if retry.status:
            error["status"] = retry.status
        self.file.add(
            {
                "type": "system",
                "subtype": "api_error",
                "level": "error",
                "error": error,
                "retryInMs": wait_ms,
                "retryAttempt": retry.attempt,
                "maxRetries": most,
            }
        )

    def limits(self, info: JSON) -> None:
        """Reports the state of the plan."""
        self.emit({"type": "rate_limit_event", "rate_limit_info": info})

    def failed(self, failed: FailedError) -> None:
        """Writes what the client says about a request that failed for good."""
        event: JSON = {"error": failed.name, "is_api_error_message": True}
        record: JSON = {"error": failed.name, "isApiErrorMessage": True}
        if failed.status:
            event |= {"api_error_status": failed.status, "api_error_type": failed.type}
            record |= {"apiErrorStatus": failed.status, "apiErrorType": failed.type}
        if failed.is_too_long:
            record["errorDetails"] = failed.details
        if failed.limits:
            record |= {"apiError": "usage_limit_reached", "quotaLimits": failed.limits}
        self.client_says(failed.text, event, record)

    def client_says(self, text: str, event: JSON, record: JSON) -> None:
        """Writes the client's own text in place of a reply."""
        message = _synthetic(text)
        ident = self.file.add({"type": "assistant", "message": message, **record})
        fields = {"type": "assistant", "message": message, "parent_tool_use_id": None, **event}
        self.emit({**fields, "uuid": ident, "timestamp": stamp()})

    def compacting(self) -> None:
        self.emit({"type": "system", "subtype": "status", "status": "compacting"})

    def not_compacted(self, why: str) -> None:
        result = {"compact_result": "failed", "compact_error": why}
        self.emit({"type": "system", "subtype": "status", "status": None, **result})

    def compacted(
        self, summary: str, before: int, after: int, seconds: float, *, keeps: bool
    ) -> None:
        """Writes the boundary and the summary after it. `keeps`: the last exchange follows the
        summary unchanged."""
        preserved = {"preservedMessages": {"uuids": self.file.recent}} if keeps else {}
        self.emit(
            {"type": "system", "subtype": "status", "status": None, "compact_result": "success"}
        )
        spent_ms = int(seconds * 1000)
        metadata = {"preTokens": before, "postTokens": after, "durationMs": spent_ms}
        last, self.file.parent = self.file.parent, None
        self.file.recent = []
        ident = self.file.add(
            {
                "logicalParentUuid": last,
                "type": "system",
                "subtype": "compact_boundary",
                "content": "Conversation compacted",
                "level": "info",
                "compactMetadata": {"trigger": "auto", **metadata, **preserved},
            }
        )
        sizes = {"pre_tokens": before, "post_tokens": after, "duration_ms": spent_ms}
        event: JSON = {"type": "system", "subtype": "compact_boundary", "uuid": ident}
        self.emit({**event, "compact_metadata": {"trigger": "auto", **sizes}})
        ident = self.user(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)
        if keeps:
            self.file.recent = preserved["preservedMessages"]["uuids"]
        message = {"role": "user", "content": [{"type": "text", "text": summary}]}
        event = {"type": "user", "uuid": ident, "message": message, "isSynthetic": True}
        self.emit({**event, "parent_tool_use_id": None, "timestamp": stamp()})

    def result(
        self, spent: TurnUsage, text: str, began: float, api_s: float, **fields: Any
    ) -> None:
        """Reports the end of a turn. `fields` has what differs between the endings."""
        self.file.note("last-prompt", leafUuid=self.file.parent)
        self.file.note("cost-state", totalCostUSD=0, modelUsage=spent.models)
        event = {
            "type": "result",
            "duration_api_ms": int(api_s * 1000),
            "duration_ms": int((time.monotonic() - began) * 1000),
            "total_cost_usd": 0,
            "usage": spent.usage,
            "modelUsage": spent.models,
            "permission_denials": [],
            "session_id": self.file.session,
            "uuid": new_id(),
            "result_index": self.results,
            **fields,
        }
        self.results += 1
        if self.settings.output == "json":
            print(json.dumps(event, ensure_ascii=False), flush=True)
        elif self.settings.output == "text" and text:
            print(text, flush=True)
        self.emit(event)
        spent.usage = dict(_NOTHING)


def _synthetic(text: str) -> JSON:
    return {
        "id": new_id(),
        "model": "<synthetic>",
        "role": "assistant",
        "type": "message",
        "stop_reason": "stop_sequence",
        "stop_sequence": "",
        "usage": _NOTHING,
        "content": [{"type": "text", "text": text}],
    }


def complain(text: str) -> None:
    """Prints one line for people."""
    print(text, file=sys.stderr, flush=True)
