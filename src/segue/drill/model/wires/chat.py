"""OpenAI Chat Completions: `POST /v1/chat/completions`, which many other providers support too."""

from collections.abc import Iterator, Mapping
from typing import Any

from segue.drill.model.answer import ModelAnswer, Refusal, Stop
from segue.drill.model.ask import Ask, Call, Part
from segue.drill.model.wires import Wire, openai
from segue.drill.model.wires import fields as f

_SYSTEM = ("system", "developer")
_STOPS: dict[Stop, str] = {
    "end": "stop",
    "tool": "tool_calls",
    "length": "length",
    "refusal": "content_filter",
    "window": "length",
}


def _takes(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/chat/completions")


def _read(path: str, query: Mapping[str, str], given: Any) -> Ask:
    body = f.body(given)
    listed = f.items(body, "messages")
    tools = f.objects(body.get("tools"))
    base, rest = f.split_base(listed, _SYSTEM)
    return Ask(
        wire="chat",
        model=f.string(body.get("model")),
        parts=tuple(map(_part, listed)),
        is_stream=body.get("stream") is True,
        tools=f.names(tools),
        base_bytes=f.size(*tools) + base,
        said_bytes=rest,
    )


def _part(message: dict[str, Any]) -> Part:
    role = message.get("role")
    words = f.text(message.get("content"))
    if role in _SYSTEM:
        return Part("system", words)
    if role == "tool":
        return f.result(message.get("tool_call_id"), words)
    if role == "assistant":
        calls = []
        for made in f.objects(message.get("tool_calls")):
            function = made.get("function")
            inner = function if isinstance(function, dict) else {}
            calls.append(f.call(made.get("id"), inner.get("name"), inner.get("arguments")))
        return Part("assistant", words, tuple(calls))
    return Part("user", words)


def _usage(answer: ModelAnswer) -> dict[str, Any]:
    spend = f.reply_of(answer).spend
    whole, cached = openai.prompt(spend)
    return {
        "prompt_tokens": whole,
        "completion_tokens": spend.output_tokens,
        "total_tokens": whole + spend.output_tokens,
        "prompt_tokens_details": cached,
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _call(call: Call, arguments: str) -> dict[str, Any]:
    function = {"name": call.name or "bash", "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _pieces(ask: Ask, answer: ModelAnswer) -> Iterator[bytes]:
    reply = f.reply_of(answer)
    head = {
        "id": f"chatcmpl-{f.mark(ask)}",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": ask.model,
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f.event({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    for piece in f.cut(reply.text):
        yield chunk({"content": piece})
    for index, call in enumerate(reply.calls):
        yield chunk({"tool_calls": [{"index": index, **_call(call, "")}]})
        for piece in f.cut(f.encode(f.arguments_of(call)).decode()):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    usage = f.event({**head, "choices": [], "usage": _usage(answer)})
    yield chunk({}, _STOPS[reply.ends_with]) + usage + b"data: [DONE]\n\n"


def _whole(ask: Ask, answer: ModelAnswer) -> bytes:
    reply = f.reply_of(answer)
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        made = [_call(c, f.encode(f.arguments_of(c)).decode()) for c in reply.calls]
        message["tool_calls"] = made
    choice = {"index": 0, "message": message, "finish_reason": _STOPS[reply.ends_with]}
    return f.encode(
        {
            "id": f"chatcmpl-{f.mark(ask)}",
            "object": "chat.completion",
            "created": 0,
            "model": ask.model,
            "choices": [choice],
            "usage": _usage(answer),
        }
    )


def _stream_refusal(refusal: Refusal, now: float) -> bytes:
    return f.event({"error": openai.error(refusal, now)[1]})


WIRE = Wire(
    name="chat",
    takes=_takes,
    read=_read,
    pieces=_pieces,
    whole=_whole,
    refuse=openai.refuse,
    stream_refusal=_stream_refusal,
)
