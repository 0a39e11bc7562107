"""GitHub Copilot CLI: what the records of its JSON stream say.

Known from published streams only, nothing was measured: `user.message`, `assistant.message`,
`tool.execution_complete`, `session.task_complete`, and `result` with the exit code at the end.
`assistant.turn_end` ends one round of the model, not the run: autopilot continues after it.
"""

from collections.abc import Iterable, Iterator

from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared.fields import JSON, instant, items, obj, text, whole
from segue.core.stops.events import (
    Ended,
    Event,
    Failure,
    Other,
    Prompt,
    Reply,
    ToolCall,
    ToolResult,
)

_KNOWN = {
    "assistant.turn_start",
    "assistant.turn_end",
    "assistant.message_start",
    "assistant.message_delta",
    "tool.execution_start",
    "session.info",
    "session.mcp_server_status_changed",
    "session.mcp_servers_loaded",
    "session.skills_loaded",
    "session.tools_updated",
}


def parse(records: Iterable[Record]) -> Iterator[Event]:
    """Events of a stream."""
    incomplete = False  # the agent itself reported that the task failed
    for record in records:
        data, kind = obj(record.data, "data"), text(record.data, "type")
        mark: JSON = {"where": record.where, "at": instant(record.data.get("timestamp"))}
        match kind:
            case "user.message" if data.get("isAutopilotContinuation") is not True:
                incomplete = False
                yield Prompt(text=text(data, "content"), **mark)
            case "assistant.message":
                yield from _reply(data, mark)
            case "tool.execution_complete":
                yield ToolResult(
                    call_id=text(data, "toolCallId"),
                    printed=text(data, "result", "content"),
                    **mark,
                )
            case "session.task_complete":
                incomplete = data.get("success") is False
                yield Ended(ok=not incomplete, **mark)
            case "session.error":
                yield Failure(message=text(data, "message"), **mark)
            case "result":
                code = whole(record.data, "exitCode")
                yield Ended(ok=code == 0 and not incomplete, **mark)
            case _:
                known = kind in _KNOWN or kind == "user.message"
                yield Other(kind=kind or "record", known=known, **mark)


def _reply(data: JSON, mark: JSON) -> Iterator[Event]:
    if words := text(data, "content"):
        yield Reply(text=words, **mark)
    for call in items(data, "toolRequests"):
        yield ToolCall(name=text(call, "name"), call_id=text(call, "toolCallId"), **mark)


def knows(record: JSON) -> bool:
    """Whether this is certainly a record of Copilot CLI."""
    kind = text(record, "type")
    if kind == "result":
        return {"sessionId", "exitCode"} <= record.keys()
    family = kind.partition(".")[0]
    return (
        "." in kind
        and family in ("session", "assistant", "user", "tool")
        and {"data", "id", "timestamp"} <= record.keys()
    )


PROFILE = Profile(name="copilot", knows=knows, parse=parse)
