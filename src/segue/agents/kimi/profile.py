"""Kimi Code: what the records of its JSON stream mean.

Known only from published streams; nothing was measured. Messages have a `role`, and at the end
there is a hint how to resume. Errors are next to the stream as plain text ("error: failed to run
prompt: provider.rate_limit: …"). So the hint is a successful end only right after an answer without
tool calls.
"""

from collections.abc import Iterable, Iterator

from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared.fields import JSON, items, joined, text
from segue.core.stops.events import Ended, Event, Other, Prompt, Reply, ToolCall, ToolResult


def parse(records: Iterable[Record]) -> Iterator[Event]:
    """Events of a stream."""
    answered = False
    for record in records:
        data = record.data
        mark: JSON = {"where": record.where}
        match data.get("role"):
            case "assistant":
                words, calls = joined(data.get("content")), items(data, "tool_calls")
                answered = bool(words) and not calls
                yield from _reply(words, calls, record.where)
            case "tool":
                answered = False
                yield ToolResult(
                    call_id=text(data, "tool_call_id"), printed=joined(data.get("content")), **mark
                )
            case "user":
                answered = False
                yield Prompt(text=joined(data.get("content")), **mark)
            case "meta" if data.get("type") == "session.resume_hint":
                yield Ended(ok=True, **mark) if answered else Other(kind="resume_hint", **mark)
            case role:
                yield Other(kind=str(role or "record")[:40], known=False, **mark)


def _reply(words: str, calls: list[object], where: str) -> Iterator[Event]:
    if words:
        yield Reply(text=words, where=where)
    for call in calls:
        yield ToolCall(name=text(call, "function", "name"), call_id=text(call, "id"), where=where)


def knows(record: JSON) -> bool:
    """Whether this is certainly Kimi's record. Its messages look like those of other agents; only
    its session records are distinctive."""
    return record.get("role") == "meta" and text(record, "type").startswith("session.")


PROFILE = Profile(name="kimi", knows=knows, parse=parse)
