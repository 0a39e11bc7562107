"""Code that the APIs share: tolerant reading of JSON, events, ids. Pure."""

import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from segue.drill.model.answer import Fault, ModelAnswer, ModelReply, Refusal
from segue.drill.model.ask import Ask, Call, Part, command_in

_PIECES = 24  # per text: a long summary must not take minutes when delivered slowly
_PIECE_CHARS = 8  # at least

_UNDONE = ("aborted", "[Tool execution was interrupted]", "No result provided", "Command aborted")
"""How results of interrupted calls begin, on wires without a flag for it."""

_FAULTS: dict[int, Fault] = {
    400: "bad_request",
    401: "auth",
    402: "billing",
    403: "auth",
    413: "too_long",
    429: "rate_limit",
    503: "overloaded",
    529: "overloaded",
}


def encode(value: object) -> bytes:
    """Compact JSON."""
    return msgspec.json.encode(value)


def size(*values: object) -> int:
    """The bytes of these values as JSON; empty ones count nothing."""
    return sum(len(encode(value)) for value in values if value not in (None, "", [], {}))


def event(value: object, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encode(value) + b"\n\n"


def body(value: Any) -> dict[str, Any]:
    """The request's body. Raises ValueError unless it is an object."""
    if not isinstance(value, dict):
        raise ValueError("the body must be a JSON object")
    return value


def items(value: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects of a required list; other items are left out. Raises ValueError if there is no
    such list."""
    found = value.get(key)
    if not isinstance(found, list):
        raise ValueError(f"{key}: must be a list")
    return objects(found)


def objects(value: object) -> list[dict[str, Any]]:
    """The objects in a list; none if it is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def string(value: object) -> str:
    """The value if it is a string; "" for anything else."""
    return value if isinstance(value, str) else ""


def text(value: object) -> str:
    """The text of a content: a string, or blocks with a `text`."""
    if isinstance(value, str):
        return value
    found = (item if isinstance(item, str) else _words(item) for item in _list(value))
    return "\n".join(word for word in found if word)


def _words(item: object) -> str:
    return string(item.get("text")) if isinstance(item, dict) else ""


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def names(tools: list[dict[str, Any]]) -> tuple[str, ...]:
    """The tools' names, in Anthropic's form or either of OpenAI's."""
    inner = ((tool, *objects([tool.get("function")])) for tool in tools)
    found = (string(place.get("name")) for places in inner for place in places)
    return tuple(name for name in found if name)


def call(number: object, name: object, arguments: object) -> Call:
    """A parsed call; its arguments may be an object or JSON text."""
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (ValueError, RecursionError):
            arguments = {}
    given = arguments if isinstance(arguments, dict) else {}
    return Call(string(number), command_in(given), string(name), given)


def result(number: object, output: str, is_error: bool = False) -> Part:
    """A tool's result. Some wires show only by its text that a call was interrupted."""
    undone = is_error or output.lstrip().startswith(_UNDONE)
    return Part("tool", output, answers=string(number), is_error=undone)


def split_base(listed: list[dict[str, Any]], roles: tuple[str, ...]) -> tuple[int, int]:
    """The bytes of the messages that precede the conversation (they have these roles), and of all
    others."""
    first = 0
    while first < len(listed) and listed[first].get("role") in roles:
        first += 1
    return size(*listed[:first]), size(*listed[first:])


def arguments_of(made: Call) -> dict[str, object]:
    """The arguments for the tool; its command alone, if the call has no arguments."""
    return dict(made.arguments) or {"command": made.command}


def reply_of(answer: ModelAnswer) -> ModelReply:
    """The reply; an empty one if there is none."""
    return answer.reply or ModelReply()


def cut(words: str) -> Iterator[str]:
    """Splits a text into pieces, as a model streams it."""
    step = max(_PIECE_CHARS, -(-len(words) // _PIECES))
    for start in range(0, len(words), step):
        yield words[start : start + step]


def mark(ask: Ask) -> str:
    """A prefix that makes this request's ids unique: numbers start over after a restart, but the
    conversation differs."""
    seed = f"{ask.model}/{len(ask.parts)}/{ask.said_bytes}/{ask.last_text}"
    return f"{ask.number:08x}{zlib.crc32(seed.encode('utf-8', 'replace')):08x}"


def counted(ask: Ask | None, answer: ModelAnswer) -> int:
    """The answer to a token count; derived from the request's size if the script states none."""
    if answer.input_tokens is not None:
        return answer.input_tokens
    return (ask.base_bytes + ask.said_bytes) // 4 if ask else 0


def fault_of(refusal: Refusal) -> Fault:
    """The fault of a refusal; derived from its status if it names none."""
    if refusal.fault is not None:
        return refusal.fault
    return _FAULTS.get(refusal.status or 500, "server_error")


def used_and_window(refusal: Refusal, window: int = 200_000) -> tuple[int, int]:
    """The size of a prompt that is too long, and the window; plausible numbers for those that the
    refusal does not state."""
    window = refusal.window_tokens or window
    return refusal.used_tokens or window + window // 25, window


def seconds(wait: float) -> str:
    """Formats seconds as "3s" or "0.25s"."""
    return f"{wait:.3f}".rstrip("0").rstrip(".") + "s"


def retry_headers(refusal: Refusal) -> dict[str, str]:
    """The wait in whole seconds, rounded up, as HTTP requires; a wait with a fraction also in
    milliseconds, in a second header."""
    wait = refusal.retry_after_s
    if wait is None:
        return {}
    found = {"retry-after": str(-int(-wait // 1))}
    if wait % 1:
        found["retry-after-ms"] = str(round(wait * 1000))
    return found
