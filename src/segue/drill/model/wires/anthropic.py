"""Anthropic Messages: `POST /v1/messages`, and `/v1/messages/count_tokens`."""

from collections.abc import Iterator, Mapping
from typing import Any

from segue.drill.model.answer import Fault, ModelAnswer, Refusal, Stop
from segue.drill.model.ask import Ask, Kind, Part
from segue.drill.model.wires import Http, Wire
from segue.drill.model.wires import fields as f

_COUNT = "/messages/count_tokens"
_STOPS: dict[Stop, str] = {
    "end": "end_turn",
    "tool": "tool_use",
    "length": "max_tokens",
    "refusal": "refusal",
    "window": "model_context_window_exceeded",
}
_LIMIT = (
    "This request would exceed your organization's rate limit of 50,000 input tokens per minute."
)
_FAULTS: dict[Fault, tuple[int, str, str]] = {
    "too_long": (400, "invalid_request_error", "prompt is too long: {} tokens > {} maximum"),
    "rate_limit": (429, "rate_limit_error", _LIMIT),
    "plan_limit": (429, "rate_limit_error", _LIMIT),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "server_error": (500, "api_error", "Internal server error"),
    "auth": (401, "authentication_error", "invalid x-api-key"),
    "billing": (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing"
        " to upgrade or purchase credits.",
    ),
    "bad_request": (400, "invalid_request_error", "messages: the request is not valid"),
}


def _takes(method: str, path: str) -> bool:
    return method == "POST" and path.endswith(("/v1/messages", _COUNT))


def _read(path: str, query: Mapping[str, str], given: Any) -> Ask:
    body = f.body(given)
    listed = f.items(body, "messages")
    tools = f.objects(body.get("tools"))
    system = f.text(body.get("system"))
    parts = [Part("system", system)] if system else []
    for message in listed:
        parts += _parts(message)
    return Ask(
        wire="anthropic",
        model=f.string(body.get("model")),
        parts=tuple(parts),
        kind=Kind.COUNT if path.endswith(_COUNT) else Kind.MAIN,
        is_stream=body.get("stream") is True,
        tools=f.names(tools),
        base_bytes=f.size(body.get("system"), *tools),
        said_bytes=f.size(*listed),
    )


def _parts(message: dict[str, Any]) -> Iterator[Part]:
    content = message.get("content")
    blocks = f.objects(content)
    words = f.text(content)
    role = message.get("role")
    if role == "assistant":
        calls = [b for b in blocks if b.get("type") == "tool_use"]
        made = tuple(f.call(b.get("id"), b.get("name"), b.get("input")) for b in calls)
        yield Part("assistant", words, made)
        return
    # Results come before the text of the same message, wherever the agent put them: the API orders
    # them so, and the text beside them is a reminder.
    for block in blocks:
        if block.get("type") == "tool_result":
            output = f.text(block.get("content"))
            yield f.result(block.get("tool_use_id"), output, block.get("is_error") is True)
    if words or not blocks:
        yield Part("system" if role == "system" else "user", words)


def _message(ask: Ask, answer: ModelAnswer) -> dict[str, Any]:
    spend = f.reply_of(answer).spend
    return {
        "id": f"msg_{f.mark(ask)}",
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": spend.input_tokens,
            "cache_creation_input_tokens": spend.cache_write_tokens,
            "cache_read_input_tokens": spend.cache_read_tokens,
            "output_tokens": min(1, spend.output_tokens),  # the first event cannot know more
        },
    }


def _pieces(ask: Ask, answer: ModelAnswer) -> Iterator[bytes]:
    reply = f.reply_of(answer)
    message = _message(ask, answer)
    yield _event({"type": "message_start", "message": message})
    index = 0
    if reply.text or not reply.calls:
        start: dict[str, Any] = {"type": "text", "text": ""}
        deltas = ({"type": "text_delta", "text": piece} for piece in f.cut(reply.text))
        yield from _block(index, start, deltas)
        index += 1
    for call in reply.calls:
        start = {"type": "tool_use", "id": call.id, "name": call.name or "Bash", "input": {}}
        words = f.encode(f.arguments_of(call)).decode()
        deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in f.cut(words))
        yield from _block(index, start, deltas)
        index += 1
    usage = {**message["usage"], "output_tokens": reply.spend.output_tokens}
    stop = {"stop_reason": _STOPS[reply.ends_with], "stop_sequence": None}
    # One piece: a stream that breaks before it has not stated a stop reason, which is what matters.
    yield _event({"type": "message_delta", "delta": stop, "usage": usage}) + _event(
        {"type": "message_stop"}
    )


def _block(index: int, start: dict[str, Any], deltas: Iterator[dict[str, str]]) -> Iterator[bytes]:
    yield _event({"type": "content_block_start", "index": index, "content_block": start})
    for delta in deltas:
        yield _event({"type": "content_block_delta", "index": index, "delta": delta})
    yield _event({"type": "content_block_stop", "index": index})


def _event(value: dict[str, Any]) -> bytes:
    return f.event(value, value["type"])


def _whole(ask: Ask, answer: ModelAnswer) -> bytes:
    if ask.kind is Kind.COUNT:
        return f.encode({"input_tokens": f.counted(ask, answer)})
    reply = f.reply_of(answer)
    message = _message(ask, answer)
    content: list[dict[str, Any]] = []
    if reply.text or not reply.calls:
        content.append({"type": "text", "text": reply.text})
    content += [
        {"type": "tool_use", "id": c.id, "name": c.name or "Bash", "input": f.arguments_of(c)}
        for c in reply.calls
    ]
    message["content"] = content
    message["stop_reason"] = _STOPS[reply.ends_with]
    message["usage"]["output_tokens"] = reply.spend.output_tokens
    return f.encode(message)


def _error(refusal: Refusal) -> tuple[int, dict[str, Any]]:
    status, kind, words = _FAULTS[f.fault_of(refusal)]
    message = refusal.message or words.format(*f.used_and_window(refusal))
    return status, {"type": "error", "error": {"type": kind, "message": message}}


def _refuse(ask: Ask | None, refusal: Refusal, now: float) -> Http:
    status, error = _error(refusal)
    number = f"req_{f.mark(ask)}" if ask else "req_0"
    error["request_id"] = number
    headers = {"request-id": number, **f.retry_headers(refusal)}
    if refusal.fault == "plan_limit":
        headers |= _plan_headers(refusal)
    body = f.encode(error) if refusal.body is None else refusal.body.encode()
    return Http(refusal.status or status, {**headers, **refusal.headers}, body)


def _plan_headers(refusal: Refusal) -> dict[str, str]:
    found = {
        "status": "rejected",
        "representative-claim": "five_hour",
        "overage-status": "rejected",
        "overage-disabled-reason": "org_level_disabled",
        "5h-status": "rejected",
        "5h-utilization": "1.0",
    }
    if refusal.resets_at is not None:
        found["reset"] = found["5h-reset"] = str(-int(-refusal.resets_at // 1))
    return {f"anthropic-ratelimit-unified-{name}": value for name, value in found.items()}


def _stream_refusal(refusal: Refusal, now: float) -> bytes:
    return f.event(_error(refusal)[1], "error")


WIRE = Wire(
    name="anthropic",
    takes=_takes,
    read=_read,
    pieces=_pieces,
    whole=_whole,
    refuse=_refuse,
    stream_refusal=_stream_refusal,
)
