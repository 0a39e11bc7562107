"""Goose: the JSON stream of `goose run`. Known from published streams only, nothing was measured:
`message` (one piece of the reply each), `notification`, `error`, and `complete` at the end.
"""

from collections.abc import Iterable, Iterator

from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared.fields import JSON, instant, items, joined, obj, text
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

_COMPLAINT = "Ran into this error"


def parse(records: Iterable[Record]) -> Iterator[Event]:
    """Events of a stream. Errors appear as the model's words, and `complete` follows all the
    same."""
    failed = False
    for record in records:
        data, kind = record.data, text(record.data, "type")
        mark: JSON = {"where": record.where, "at": instant(obj(data, "message").get("created"))}
        match kind:
            case "message":
                for event in _message(obj(data, "message"), mark):
                    failed = isinstance(event, Failure)
                    yield event
            case "error":
                failed = True
                yield Failure(message=text(data, "error") or text(data, "message"), **mark)
            case "complete":
                yield Ended(ok=not failed, code=kind, **mark)
            case _:
                yield Other(kind=kind, known=kind == "notification", **mark)


def _message(message: JSON, mark: JSON) -> Iterator[Event]:
    content = items(message, "content")
    kinds = {text(block, "type") for block in content}
    if text(message, "role") == "user":
        words = joined(content)
        yield ToolResult(**mark) if "toolResponse" in kinds else Prompt(text=words, **mark)
        return
    if "toolRequest" in kinds:
        yield ToolCall(**mark)
    elif (words := joined(content)).startswith(_COMPLAINT):
        yield Failure(message=words, **mark)
    elif words:
        yield Reply(text=words, **mark)


def knows(record: JSON) -> bool:
    """Whether this is certainly a record of goose."""
    if text(record, "type") == "complete":
        return "total_tokens" in record
    metadata = obj(record, "message", "metadata")
    return text(record, "type") == "message" and "agentVisible" in metadata


PROFILE = Profile(name="goose", knows=knows, parse=parse)
