"""Gemini: `POST /v1beta/models/M:streamGenerateContent`, `:generateContent`, `:countTokens`."""

from collections.abc import Iterator, Mapping
from typing import Any

from segue.drill.model.answer import Fault, ModelAnswer, Refusal, Stop
from segue.drill.model.ask import Ask, Call, Kind, Part
from segue.drill.model.wires import Http, Wire
from segue.drill.model.wires import fields as f

_METHODS = ("streamGenerateContent", "generateContent", "countTokens")
_STOPS: dict[Stop, str] = {
    "end": "STOP",
    "tool": "STOP",
    "length": "MAX_TOKENS",
    "refusal": "SAFETY",
    "window": "MAX_TOKENS",
}
_WINDOW_TOKENS = 1_048_576
_GOOGLE = "type.googleapis.com/google.rpc."
_QUOTA = "You exceeded your current quota, please check your plan and billing details."
_FAULTS: dict[Fault, tuple[int, str, str]] = {
    "too_long": (
        400,
        "INVALID_ARGUMENT",
        "The input token count ({}) exceeds the maximum number of tokens allowed ({}).",
    ),
    "rate_limit": (429, "RESOURCE_EXHAUSTED", _QUOTA),
    "plan_limit": (429, "RESOURCE_EXHAUSTED", _QUOTA),
    "overloaded": (503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    "server_error": (500, "INTERNAL", "An internal error has occurred."),
    "auth": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
    "billing": (
        403,
        "PERMISSION_DENIED",
        "This API method requires billing to be enabled. Please enable billing on the project and"
        " try again.",
    ),
    "bad_request": (400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
}
_INFOS: dict[Fault, str] = {"auth": "API_KEY_INVALID", "billing": "BILLING_DISABLED"}
_PERIODS: dict[Fault, str] = {"rate_limit": "Minute", "plan_limit": "Day"}


def _takes(method: str, path: str) -> bool:
    place, _, name = path.rpartition(":")
    return method == "POST" and name in _METHODS and "/models/" in place


def _read(path: str, query: Mapping[str, str], given: Any) -> Ask:
    place, _, method = path.rpartition(":")
    body = f.body(given)
    inner = body.get("generateContentRequest")
    if method == "countTokens" and isinstance(inner, dict):
        body = inner
    listed = f.items(body, "contents")
    rules = body.get("systemInstruction", body.get("system_instruction"))
    system = _words(rules) if isinstance(rules, dict) else f.string(rules)
    tools = f.objects(body.get("tools"))
    parts = [Part("system", system)] if system else []
    open_calls: list[Call] = []
    for turn, content in enumerate(listed):
        parts += _parts(content, turn, open_calls)
    return Ask(
        wire="gemini",
        model=place.rpartition("/models/")[2],
        parts=tuple(parts),
        kind=Kind.COUNT if method == "countTokens" else Kind.MAIN,
        is_stream=method == "streamGenerateContent",
        tools=tuple(_declared(tools)),
        base_bytes=f.size(rules, *tools),
        said_bytes=f.size(*listed),
    )


def _declared(tools: list[dict[str, Any]]) -> Iterator[str]:
    for tool in tools:
        for key in ("functionDeclarations", "function_declarations"):
            yield from f.names(f.objects(tool.get(key)))


def _words(content: dict[str, Any]) -> str:
    return f.text([part for part in f.objects(content.get("parts")) if not part.get("thought")])


def _parts(content: dict[str, Any], turn: int, open_calls: list[Call]) -> Iterator[Part]:
    """`open_calls` holds calls without a result so far: ids are optional on this wire."""
    words = _words(content)
    parts = f.objects(content.get("parts"))
    if content.get("role") == "model":
        made = []
        calls = f.objects([part.get("functionCall") for part in parts])
        for index, given in enumerate(calls):
            number = f.string(given.get("id")) or f"{turn}-{index}"
            made.append(f.call(number, given.get("name"), given.get("args")))
        open_calls += made
        yield Part("assistant", words, tuple(made))
        return
    results = f.objects([part.get("functionResponse") for part in parts])
    for given in results:
        response = given.get("response")
        is_error = isinstance(response, dict) and bool(response.get("error"))
        yield f.result(_answers(given, open_calls), _result_text(response), is_error)
    if words or not results:
        yield Part("user", words)


def _answers(given: dict[str, Any], open_calls: list[Call]) -> str:
    number, name = f.string(given.get("id")), f.string(given.get("name"))
    for call in open_calls:
        if call.id == number or (not number and call.name == name):
            open_calls.remove(call)
            return call.id
    return number


def _result_text(response: object) -> str:
    if isinstance(response, dict):
        for key in ("output", "error", "content", "result"):
            if isinstance(response.get(key), str):
                return str(response[key])
        return f.encode(response).decode() if response else ""
    return f.text(response)


def _usage(answer: ModelAnswer) -> dict[str, int]:
    spend = f.reply_of(answer).spend
    # This wire does not report cache writes: they are part of the prompt.
    prompt = spend.input_tokens + spend.cache_read_tokens + spend.cache_write_tokens
    found = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": spend.output_tokens,
        "totalTokenCount": prompt + spend.output_tokens,
    }
    if spend.cache_read_tokens:
        found["cachedContentTokenCount"] = spend.cache_read_tokens
    return found


def _chunk(
    ask: Ask, parts: list[dict[str, Any]], finish: str = "", usage: dict[str, int] | None = None
) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    made = {"candidates": [candidate], "modelVersion": ask.model, "responseId": f.mark(ask)}
    return {**made, "usageMetadata": usage} if usage is not None else made


def _call(call: Call) -> dict[str, Any]:
    function: dict[str, Any] = {"name": call.name or "run_shell_command"}
    if call.id:
        function["id"] = call.id
    return {"functionCall": {**function, "args": f.arguments_of(call)}}


def _pieces(ask: Ask, answer: ModelAnswer) -> Iterator[bytes]:
    reply = f.reply_of(answer)
    for piece in f.cut(reply.text):
        yield f.event(_chunk(ask, [{"text": piece}]))
    if reply.calls:
        yield f.event(_chunk(ask, [_call(call) for call in reply.calls]))
    last = [{"text": ""}]
    yield f.event(_chunk(ask, last, _STOPS[reply.ends_with], _usage(answer)))


def _whole(ask: Ask, answer: ModelAnswer) -> bytes:
    if ask.kind is Kind.COUNT:
        return f.encode({"totalTokens": f.counted(ask, answer)})
    reply = f.reply_of(answer)
    pieces: list[dict[str, Any]] = [{"text": reply.text}] if reply.text or not reply.calls else []
    parts = pieces + [_call(call) for call in reply.calls]
    return f.encode(_chunk(ask, parts, _STOPS[reply.ends_with], _usage(answer)))


def _error(refusal: Refusal, now: float) -> dict[str, Any]:
    fault = f.fault_of(refusal)
    status, name, words = _FAULTS[fault]
    message = refusal.message or words.format(*f.used_and_window(refusal, _WINDOW_TOKENS))
    made: dict[str, Any] = {"code": refusal.status or status, "message": message, "status": name}
    details = list(_details(fault, refusal, now))
    if details:
        made["details"] = details
    return {"error": made}


def _details(fault: Fault, refusal: Refusal, now: float) -> Iterator[dict[str, Any]]:
    if fault in _INFOS:
        yield {
            "@type": f"{_GOOGLE}ErrorInfo",
            "reason": _INFOS[fault],
            "domain": "googleapis.com",
        }
    if fault in _PERIODS:
        service = "generativelanguage.googleapis.com"
        violation = {
            "quotaMetric": f"{service}/generate_content_free_tier_requests",
            "quotaId": f"GenerateRequestsPer{_PERIODS[fault]}PerProjectPerModel-FreeTier",
            "quotaValue": "5",
        }
        yield {"@type": f"{_GOOGLE}QuotaFailure", "violations": [violation]}
    wait = refusal.retry_after_s
    if wait is None and refusal.resets_at is not None:
        wait = max(0.0, refusal.resets_at - now)
    if wait is not None:
        yield {"@type": f"{_GOOGLE}RetryInfo", "retryDelay": f.seconds(wait)}


def _refuse(ask: Ask | None, refusal: Refusal, now: float) -> Http:
    error = _error(refusal, now)
    body = f.encode(error) if refusal.body is None else refusal.body.encode()
    headers = {**f.retry_headers(refusal), **refusal.headers}
    return Http(error["error"]["code"], headers, body)


def _stream_refusal(refusal: Refusal, now: float) -> bytes:
    return f.event(_error(refusal, now))


WIRE = Wire(
    name="gemini",
    takes=_takes,
    read=_read,
    pieces=_pieces,
    whole=_whole,
    refuse=_refuse,
    stream_refusal=_stream_refusal,
)
