"""OpenAI Responses: `POST /v1/responses`."""

from collections.abc import Iterator, Mapping
from typing import Any

from segue.drill.model.answer import ModelAnswer, Refusal
from segue.drill.model.ask import Ask, Call, Part
from segue.drill.model.wires import Wire, openai
from segue.drill.model.wires import fields as f

_TOO_LONG = (
    "Your input exceeds the context window of this model. Please adjust your input and try again."
)
_SYSTEM = ("system", "developer")
_CUT_SHORT = {"length": "max_output_tokens", "window": "max_output_tokens"}
_CUT_SHORT["refusal"] = "content_filter"


def _takes(method: str, path: str) -> bool:
    return method == "POST" and path.endswith("/responses")


def _read(path: str, query: Mapping[str, str], given: Any) -> Ask:
    body = f.body(given)
    asked = body.get("input")
    listed = [{"role": "user", "content": asked}] if isinstance(asked, str) else None
    if listed is None:
        listed = f.items(body, "input")
    tools = f.objects(body.get("tools"))
    rules = f.string(body.get("instructions"))
    parts = [Part("system", rules)] if rules else []
    parts += [part for part in map(_part, listed) if part is not None]
    base, rest = f.split_base(listed, _SYSTEM)
    return Ask(
        wire="responses",
        model=f.string(body.get("model")),
        parts=tuple(parts),
        is_stream=body.get("stream") is True,
        tools=f.names(tools),
        base_bytes=f.size(rules, *tools) + base,
        said_bytes=rest,
    )


def _part(item: dict[str, Any]) -> Part | None:
    kind = f.string(item.get("type")) or "message"
    if kind == "message":
        role = item.get("role")
        words = f.text(item.get("content"))
        if role in _SYSTEM:
            return Part("system", words)
        return Part("assistant" if role == "assistant" else "user", words)
    if kind in ("function_call", "custom_tool_call"):
        given = item.get("arguments", item.get("input"))
        return Part("assistant", calls=(f.call(item.get("call_id"), item.get("name"), given),))
    if kind in ("function_call_output", "custom_tool_call_output"):
        output = item.get("output")
        is_error = False
        if isinstance(output, dict):
            is_error = output.get("success") is False
            output = output.get("content")
        return f.result(item.get("call_id"), f.text(output), is_error)
    return None  # reasoning, and unknown types


def _usage(answer: ModelAnswer) -> dict[str, Any]:
    spend = f.reply_of(answer).spend
    whole, cached = openai.prompt(spend)
    return {
        "input_tokens": whole,
        "input_tokens_details": cached,
        "output_tokens": spend.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": whole + spend.output_tokens,
    }


def _response(ask: Ask, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"resp_{f.mark(ask)}",
        "object": "response",
        "status": status,
        "model": ask.model,
        "output": output,
        "error": None,
        "incomplete_details": None,
        "usage": None,
    }


def _final(ask: Ask, answer: ModelAnswer, output: list[dict[str, Any]]) -> dict[str, Any]:
    why = _CUT_SHORT.get(f.reply_of(answer).ends_with)
    made = _response(ask, "incomplete" if why else "completed", output)
    if why:
        made["incomplete_details"] = {"reason": why}
    made["usage"] = _usage(answer)
    return made


def _saying(ask: Ask, text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    number = f"msg_{f.mark(ask)}"
    return {
        "id": number,
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def _calling(ask: Ask, index: int, call: Call) -> dict[str, Any]:
    return {
        "id": f"fc_{f.mark(ask)}{index}",
        "type": "function_call",
        "call_id": call.id,
        "name": call.name or "exec_command",
        "arguments": f.encode(f.arguments_of(call)).decode(),
        "status": "completed",
    }


def _output(ask: Ask, answer: ModelAnswer) -> list[dict[str, Any]]:
    reply = f.reply_of(answer)
    items = [_saying(ask, reply.text)] if reply.text else []
    return items + [_calling(ask, index, call) for index, call in enumerate(reply.calls)]


def _pieces(ask: Ask, answer: ModelAnswer) -> Iterator[bytes]:
    number = 0

    def event(kind: str, **more: object) -> bytes:
        nonlocal number
        number += 1
        return f.event({"type": kind, "sequence_number": number - 1, **more}, kind)

    yield event("response.created", response=_response(ask, "in_progress", []))
    output = _output(ask, answer)
    for index, item in enumerate(output):
        place = {"item_id": item["id"], "output_index": index}
        begun = {**item, "status": "in_progress"}
        if item["type"] == "message":
            text = item["content"][0]["text"]
            inside = {**place, "content_index": 0}
            begun["content"] = []
            empty = {"type": "output_text", "text": "", "annotations": []}
            yield event("response.output_item.added", output_index=index, item=begun)
            yield event("response.content_part.added", **inside, part=empty)
            for piece in f.cut(text):
                yield event("response.output_text.delta", **inside, delta=piece)
            done = event("response.output_text.done", **inside, text=text)
            done += event("response.content_part.done", **inside, part=item["content"][0])
        else:
            begun["arguments"] = ""
            yield event("response.output_item.added", output_index=index, item=begun)
            for piece in f.cut(item["arguments"]):
                yield event("response.function_call_arguments.delta", **place, delta=piece)
            done = event(
                "response.function_call_arguments.done", **place, arguments=item["arguments"]
            )
        yield done + event("response.output_item.done", output_index=index, item=item)
    final = _final(ask, answer, output)
    yield event(f"response.{final['status']}", response=final)


def _whole(ask: Ask, answer: ModelAnswer) -> bytes:
    return f.encode(_final(ask, answer, _output(ask, answer)))


def _stream_refusal(refusal: Refusal, now: float) -> bytes:
    _, error = openai.error(refusal, now)
    if f.fault_of(refusal) == "too_long" and refusal.message is None:
        error["message"] = _TOO_LONG
    shown = {"code": error["code"] or error["type"], "message": error["message"]}
    more = {name: error[name] for name in ("plan_type", "resets_at") if name in error}
    response = {"id": "resp_0", "object": "response", "status": "failed", "output": []}
    kind = "response.failed"
    return f.event({"type": kind, "response": {**response, "error": {**shown, **more}}}, kind)


WIRE = Wire(
    name="responses",
    takes=_takes,
    read=_read,
    pieces=_pieces,
    whole=_whole,
    refuse=openai.refuse,
    stream_refusal=_stream_refusal,
    # The agent that uses this wire does not understand a status of 400 or 429; the real API lets
    # the stream begin before it counts.
    streamed=frozenset({"too_long", "billing"}),
)
