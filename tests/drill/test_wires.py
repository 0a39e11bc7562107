"""What is written on each wire is read back unchanged; no JSON breaks the reader."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.sessions.spend import Spend
from segue.drill.model import wires
from segue.drill.model.answer import Fault, ModelAnswer, ModelReply, Refusal, Stop
from segue.drill.model.ask import Ask, Call, Kind, Part
from segue.drill.model.wires import NAMES, Wire

PATHS = {
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "chat": "/v1/chat/completions",
    "gemini": "/v1beta/models/gemini-2.5-pro:streamGenerateContent",
}
FAULTS: tuple[Fault, ...] = (
    "too_long",
    "rate_limit",
    "plan_limit",
    "overloaded",
    "server_error",
    "auth",
    "billing",
    "bad_request",
)
SPEND = Spend(input_tokens=600, cache_read_tokens=300, cache_write_tokens=100, output_tokens=30)


def wire(name: str) -> Wire:
    found = wires.find("POST", PATHS[name])
    assert found is not None
    assert found.name == name
    return found


def asked(name: str, **more: Any) -> Ask:
    return Ask(wire=name, model="m", parts=(), **more)


def events(stream: bytes) -> list[dict[str, Any]]:
    """As a client reads them: the data of each event, which must agree with the event's name."""
    found = []
    for block in stream.decode().split("\n\n")[:-1]:
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        if lines["data"] == "[DONE]":
            continue
        value = json.loads(lines["data"])
        assert lines.get("event", value.get("type")) == value.get("type")
        found.append(value)
    return found


# What a client makes of a stream: text, calls (id, name, arguments), why it ended, usage.
Heard = tuple[str, list[tuple[str, str, Any]], str | None, dict[str, Any] | None]


def hear_anthropic(found: list[dict[str, Any]]) -> Heard:
    text, calls, stop, usage = "", [], None, None
    blocks: dict[int, dict[str, Any]] = {}
    for event in found:
        match event["type"]:
            case "message_start":
                usage = event["message"]["usage"]
            case "content_block_start":
                blocks[event["index"]] = {**event["content_block"], "said": ""}
            case "content_block_delta":
                delta = event["delta"]
                blocks[event["index"]]["said"] += delta.get("text", delta.get("partial_json"))
            case "content_block_stop":
                block = blocks[event["index"]]
                if block["type"] == "text":
                    text += block["said"]
                else:
                    calls.append((block["id"], block["name"], json.loads(block["said"])))
            case "message_delta":
                stop, usage = event["delta"]["stop_reason"], {**(usage or {}), **event["usage"]}
    return text, calls, stop, usage


def hear_responses(found: list[dict[str, Any]]) -> Heard:
    text, calls, said = "", [], ""
    last = found[-1]
    for event in found:
        if event["type"] == "response.output_text.delta":
            text += event["delta"]
        if event["type"] == "response.function_call_arguments.delta":
            said += event["delta"]
        if event["type"] == "response.output_item.done" and "call_id" in event["item"]:
            item = event["item"]
            assert item["arguments"] == said
            calls.append((item["call_id"], item["name"], json.loads(said)))
            said = ""
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    done = last["response"]
    assert "".join(c["text"] for o in done["output"] for c in o.get("content", [])) == text
    why = done["incomplete_details"]
    return text, calls, why["reason"] if why else done["status"], done["usage"]


def hear_chat(found: list[dict[str, Any]]) -> Heard:
    text, stop, usage = "", None, None
    calls: dict[int, list[str]] = {}
    for event in found:
        usage = event.get("usage", usage)
        for choice in event["choices"]:
            text += choice["delta"].get("content", "")
            stop = choice["finish_reason"] or stop
            for call in choice["delta"].get("tool_calls", []):
                made = calls.setdefault(call["index"], [call.get("id", ""), "", ""])
                made[1] += call["function"].get("name", "")
                made[2] += call["function"]["arguments"]
    return text, [(a, b, json.loads(c)) for a, b, c in calls.values()], stop, usage


def hear_gemini(found: list[dict[str, Any]]) -> Heard:
    text, calls, stop, usage = "", [], None, None
    for event in found:
        candidate = event["candidates"][0]
        stop, usage = candidate.get("finishReason"), event.get("usageMetadata")
        for part in candidate["content"]["parts"]:
            text += part.get("text", "")
            if "functionCall" in part:
                call = part["functionCall"]
                calls.append((call["id"], call["name"], call["args"]))
    return text, calls, stop, usage


HEAR: dict[str, Callable[[list[dict[str, Any]]], Heard]] = {
    "anthropic": hear_anthropic,
    "responses": hear_responses,
    "chat": hear_chat,
    "gemini": hear_gemini,
}

words = st.text(max_size=300)
ids = st.text("abc123_", min_size=1, max_size=8)
arguments = st.dictionaries(st.sampled_from(["command", "cmd", "x"]), words, min_size=1)
made_calls = st.builds(Call, ids, words, st.just("Bash"), arguments)
replies = st.builds(
    ModelReply,
    text=words,
    calls=st.lists(made_calls, max_size=3, unique_by=lambda c: c.id).map(tuple),
)


@pytest.mark.parametrize("name", NAMES)
@given(reply=replies)
def test_a_stream_says_what_the_reply_says(name: str, reply: ModelReply) -> None:
    pieces = list(wire(name).pieces(asked(name, is_stream=True), ModelAnswer(reply=reply)))
    text, calls, stop, _ = HEAR[name](events(b"".join(pieces)))
    assert text == reply.text
    assert calls == [(c.id, c.name, c.arguments) for c in reply.calls]
    assert stop


@pytest.mark.parametrize("name", NAMES)
@given(reply=replies)
def test_without_its_last_piece_a_stream_has_no_end(name: str, reply: ModelReply) -> None:
    pieces = list(wire(name).pieces(asked(name, is_stream=True), ModelAnswer(reply=reply)))
    cut = events(b"".join(pieces[:-1]))
    ends = ("stop_reason", "finish_reason", "finishReason")
    told = json.dumps(cut)
    assert not any(f'"{end}": "' in told.replace(json.dumps(reply.text), "") for end in ends)
    assert "response.completed" not in {event.get("type") for event in cut}
    assert "[DONE]" not in b"".join(pieces[:-1]).decode()


def talk(name: str, reply: ModelReply, output: str) -> dict[str, Any]:
    """The next request: a prompt, the reply just given, and its calls' results."""
    given = json.loads(wire(name).whole(asked(name), ModelAnswer(reply=reply)))
    made = reply.calls
    if name == "anthropic":
        results = [
            {"type": "tool_result", "tool_use_id": c.id, "content": output, "is_error": True}
            for c in made
        ]
        said = {"role": "assistant", "content": given["content"]}
        turns = [{"role": "user", "content": "Go"}, said, {"role": "user", "content": results}]
        return {"messages": turns, "system": "Be good."}
    if name == "responses":
        result = [{"type": "function_call_output", "call_id": c.id, "output": output} for c in made]
        prompt = {"type": "message", "role": "user", "content": [{"text": "Go"}]}
        return {"input": [prompt, *given["output"], *result], "instructions": "Be good."}
    if name == "chat":
        told = [{"role": "tool", "tool_call_id": c.id, "content": output} for c in made]
        first = [{"role": "system", "content": "Be good."}, {"role": "user", "content": "Go"}]
        return {"messages": [*first, given["choices"][0]["message"], *told]}
    back = [
        {"functionResponse": {"id": c.id, "name": c.name, "response": {"error": output}}}
        for c in made
    ]
    contents = [
        {"role": "user", "parts": [{"text": "Go"}]},
        given["candidates"][0]["content"],
        {"role": "user", "parts": back},
    ]
    return {"contents": contents, "systemInstruction": {"parts": [{"text": "Be good."}]}}


@pytest.mark.parametrize("name", NAMES)
@given(reply=replies.filter(lambda r: bool(r.calls)), output=words.filter(bool))
def test_what_was_answered_is_read_back_in_its_order(
    name: str, reply: ModelReply, output: str
) -> None:
    ask = wire(name).read(PATHS[name], {}, talk(name, reply, output))
    system, prompt, *said = ask.parts
    assert (system, prompt) == (Part("system", "Be good."), Part("user", "Go"))
    spoken = [part for part in said if part.role == "assistant"]
    assert "".join(part.text for part in spoken) == reply.text
    read = [call for part in spoken for call in part.calls]
    assert [(c.id, c.name, c.arguments) for c in read] == [
        (c.id, c.name, c.arguments) for c in reply.calls
    ]
    results = said[len(spoken) :]
    assert [part.answers for part in results] == [call.id for call in reply.calls]
    assert all(part.role == "tool" and part.text == output for part in results)
    assert ask.last_text == output


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)
KEYS = """messages input contents system systemInstruction tools role content parts type text name
function functionCall functionResponse tool_calls tool_use_id call_id id output response error args
arguments is_error instructions functionDeclarations thought stream model function_call tool_use
tool_result message function_call_output user assistant developer""".split()  # noqa: SIM905
looks_right: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(KEYS) | st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=40,
)
bodies = st.one_of(
    json_values,
    looks_right,
    st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(("messages", "input", "contents", "tools", "system"), looks_right),
    ),
)


@pytest.mark.parametrize("name", NAMES)
@given(body=bodies)
def test_any_json_is_read_or_refused_with_one_line(name: str, body: Any) -> None:
    try:
        ask = wire(name).read(PATHS[name], {}, body)
    except ValueError as error:
        lines = str(error).splitlines()
        assert len(lines) == 1
        return
    assert ask.base_bytes >= 0
    assert ask.said_bytes >= 0
    for part in ask.parts:
        assert isinstance(part.text, str)
        assert all(isinstance(call.arguments, dict) for call in part.calls)


@pytest.mark.parametrize("name", NAMES)
def test_a_body_that_is_not_a_request_is_refused_by_name(name: str) -> None:
    key = {"responses": "input", "gemini": "contents"}.get(name, "messages")
    with pytest.raises(ValueError, match=f"{key}: must be a list"):
        wire(name).read(PATHS[name], {}, {})
    with pytest.raises(ValueError, match="JSON object"):
        wire(name).read(PATHS[name], {}, [])


USAGES = {
    "anthropic": {
        "input_tokens": 600,
        "cache_creation_input_tokens": 100,
        "cache_read_input_tokens": 300,
        "output_tokens": 30,
    },
    "responses": {
        "input_tokens": 1000,
        "input_tokens_details": {"cached_tokens": 300, "cache_write_tokens": 100},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 1030,
    },
    "chat": {
        "prompt_tokens": 1000,
        "completion_tokens": 30,
        "total_tokens": 1030,
        "prompt_tokens_details": {"cached_tokens": 300, "cache_write_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 0},
    },
    "gemini": {
        "promptTokenCount": 1000,
        "candidatesTokenCount": 30,
        "totalTokenCount": 1030,
        "cachedContentTokenCount": 300,
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_usage_is_reported_as_each_wire_counts_it(name: str) -> None:
    answer = ModelAnswer(reply=ModelReply(text="Hi", spend=SPEND))
    stream = b"".join(wire(name).pieces(asked(name, is_stream=True), answer))
    assert HEAR[name](events(stream))[3] == USAGES[name]
    whole = json.loads(wire(name).whole(asked(name), answer))
    assert whole.get("usage", whole.get("usageMetadata")) == USAGES[name]


def test_a_stream_begins_with_one_output_token_as_the_real_one_does() -> None:
    pieces = wire("anthropic").pieces(
        asked("anthropic"), ModelAnswer(reply=ModelReply(spend=SPEND))
    )
    assert events(next(iter(pieces)))[0]["message"]["usage"]["output_tokens"] == 1


STOPS: dict[Stop, tuple[str, str, str, str]] = {
    "end": ("end_turn", "completed", "stop", "STOP"),
    "length": ("max_tokens", "max_output_tokens", "length", "MAX_TOKENS"),
    "refusal": ("refusal", "content_filter", "content_filter", "SAFETY"),
    "window": ("model_context_window_exceeded", "max_output_tokens", "length", "MAX_TOKENS"),
}


@pytest.mark.parametrize("stop", STOPS)
def test_why_a_reply_ends_has_its_word_on_each_wire(stop: Stop) -> None:
    answer = ModelAnswer(reply=ModelReply(text="x", stop=stop))
    heard = [
        HEAR[name](events(b"".join(wire(name).pieces(asked(name), answer))))[2] for name in NAMES
    ]
    assert tuple(heard) == STOPS[stop]


def test_a_call_ends_with_the_word_for_a_tool() -> None:
    answer = ModelAnswer(reply=ModelReply(calls=(Call("1", "ls", "Bash", {"command": "ls"}),)))
    heard = [HEAR[n](events(b"".join(wire(n).pieces(asked(n), answer))))[2] for n in NAMES]
    assert heard == ["tool_use", "completed", "tool_calls", "STOP"]


def read(name: str, body: dict[str, Any], path: str = "") -> Ask:
    return wire(name).read(path or PATHS[name], {}, body)


SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
TOOLS: dict[str, list[dict[str, Any]]] = {
    "anthropic": [{"name": "Bash", "input_schema": SCHEMA}],
    "responses": [{"type": "function", "name": "Bash", "parameters": SCHEMA}],
    "chat": [{"type": "function", "function": {"name": "Bash", "parameters": SCHEMA}}],
    "gemini": [{"functionDeclarations": [{"name": "Bash", "parameters": SCHEMA}]}],
}


@pytest.mark.parametrize("name", NAMES)
def test_instructions_and_tools_are_counted_apart_from_what_was_said(name: str) -> None:
    def request(system: str, said: str) -> Ask:
        call = Call("1", "ls", "Bash", {"command": "ls"})
        body = talk(name, ModelReply(text=said, calls=(call,)), "out")
        text = json.dumps({**body, "tools": TOOLS[name]}).replace("Be good.", system)
        return read(name, json.loads(text))

    small, ruled, talked = request("a", "b"), request("a" * 1001, "b"), request("a", "b" * 1001)
    assert small.tools == ("Bash",)
    assert small.base_bytes > len(json.dumps(SCHEMA, separators=(",", ":")))
    assert (ruled.base_bytes, ruled.said_bytes) == (small.base_bytes + 1000, small.said_bytes)
    assert (talked.base_bytes, talked.said_bytes) == (small.base_bytes, small.said_bytes + 1000)


def test_results_and_reminders_in_one_message_are_told_apart() -> None:
    content = [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "no"}]},
        {"type": "tool_result", "tool_use_id": "t2", "content": "yes", "is_error": False},
        {"type": "text", "text": "A reminder."},
    ]
    messages = [{"role": "user", "content": content}, {"role": "system", "content": "New rule."}]
    assert read("anthropic", {"messages": messages}).parts == (
        Part("tool", "no", answers="t1"),
        Part("tool", "yes", answers="t2"),
        Part("user", "A reminder."),
        Part("system", "New rule."),
    )


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("responses", {"input": [{"type": "function_call_output", "output": "aborted by user"}]}),
        ("chat", {"messages": [{"role": "tool", "content": "[Tool execution was interrupted]"}]}),
        ("anthropic", {"messages": [{"content": [{"type": "tool_result", "is_error": True}]}]}),
    ],
)
def test_a_call_that_came_to_nothing_is_an_error(name: str, body: dict[str, Any]) -> None:
    assert read(name, body).parts[0].is_error


@pytest.mark.parametrize("broken", ["", "{", "[1]", "[" * 100_000, None, 7])
def test_a_call_whose_arguments_are_broken_is_a_call_without_any(broken: object) -> None:
    item = {"type": "function_call", "call_id": "1", "name": "sh", "arguments": broken}
    assert read("responses", {"input": [item]}).parts[0].calls == (Call("1", "", "sh", {}),)


def test_gemini_results_without_an_id_belong_to_the_first_open_call_of_their_name() -> None:
    call = {"functionCall": {"name": "sh", "args": {"command": "ls"}}}
    result = {"functionResponse": {"name": "sh", "response": {"output": "out"}}}
    contents = [
        {"role": "model", "parts": [{"thought": True, "text": "hm"}, call, call]},
        {"role": "user", "parts": [result, result]},
    ]
    made, first, second = read("gemini", {"contents": contents}).parts
    assert made.text == ""
    assert [call.command for call in made.calls] == ["ls", "ls"]
    assert [first.answers, second.answers] == [call.id for call in made.calls]
    assert first.answers != second.answers


def test_a_prompt_may_be_a_bare_string_on_the_responses_wire() -> None:
    assert read("responses", {"input": "Go"}).parts == (Part("user", "Go"),)


def test_counts_are_asked_and_answered_on_paths_of_their_own() -> None:
    ask = read("anthropic", {"messages": []}, "/v1/messages/count_tokens")
    assert ask.kind is Kind.COUNT
    assert wire("anthropic").whole(ask, ModelAnswer(input_tokens=7)) == b'{"input_tokens":7}'
    path = "/v1beta/models/g:countTokens"
    ask = read("gemini", {"generateContentRequest": {"contents": []}}, path)
    assert (ask.kind, ask.model) == (Kind.COUNT, "g")
    assert wire("gemini").whole(ask, ModelAnswer(input_tokens=7)) == b'{"totalTokens":7}'


def test_two_requests_have_two_ids_even_after_a_restart() -> None:
    def number(ask: Ask) -> str:
        return str(json.loads(wire("anthropic").whole(ask, ModelAnswer()))["id"])

    first = Ask(wire="anthropic", model="m", parts=(Part("user", "a"),), number=1)
    second = Ask(wire="anthropic", model="m", parts=(Part("user", "a"),), number=2)
    again = Ask(wire="anthropic", model="m", parts=(Part("user", "b"),), number=1)
    assert len({number(first), number(second), number(again)}) == 3


# Refusals, as the recordings of real agents had them.


def refused(name: str, fault: Fault, **more: Any) -> tuple[int, dict[str, str], dict[str, Any]]:
    http = wire(name).refuse(asked(name), Refusal(fault=fault, **more), 1000.0)
    return http.status, http.headers, json.loads(http.body)


STATUSES = {
    "anthropic": (400, 429, 429, 529, 500, 401, 400, 400),
    "responses": (400, 429, 429, 503, 500, 401, 429, 400),
    "chat": (400, 429, 429, 503, 500, 401, 429, 400),
    "gemini": (400, 429, 429, 503, 500, 400, 403, 400),
}


@pytest.mark.parametrize("name", NAMES)
def test_each_fault_has_its_status(name: str) -> None:
    assert tuple(refused(name, fault)[0] for fault in FAULTS) == STATUSES[name]


def test_a_prompt_too_long_is_reported_with_its_figures() -> None:
    more = {"used_tokens": 208_310, "window_tokens": 200_000}
    said = [refused(name, "too_long", **more)[2]["error"]["message"] for name in NAMES]
    assert said[0] == "prompt is too long: 208310 tokens > 200000 maximum"
    assert "maximum context length is 200000 tokens" in said[2]
    assert "(208310) exceeds the maximum number of tokens allowed (200000)" in said[3]


def test_a_plan_limit_says_when_it_resets() -> None:
    _, headers, _ = refused("anthropic", "plan_limit", resets_at=4600.0)
    assert headers["anthropic-ratelimit-unified-status"] == "rejected"
    assert headers["anthropic-ratelimit-unified-reset"] == "4600"
    assert headers["anthropic-ratelimit-unified-representative-claim"] == "five_hour"
    _, headers, body = refused("responses", "plan_limit", resets_at=4600.0)
    assert body["error"]["type"] == "usage_limit_reached"
    assert body["error"]["resets_at"] == 4600
    assert body["error"]["resets_in_seconds"] == 3600
    assert headers["x-codex-primary-reset-at"] == "4600"
    details = refused("gemini", "plan_limit", resets_at=4600.0)[2]["error"]["details"]
    assert "PerDay" in details[0]["violations"][0]["quotaId"]
    assert details[1]["retryDelay"] == "3600s"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("wait", "whole", "ms"), [(3.0, "3", None), (0.25, "1", "250")])
def test_a_wait_is_reported_in_whole_seconds_and_exactly(
    name: str, wait: float, whole: str, ms: str | None
) -> None:
    _, headers, body = refused(name, "rate_limit", retry_after_s=wait)
    assert (headers["retry-after"], headers.get("retry-after-ms")) == (whole, ms)
    if "details" in body["error"]:
        assert body["error"]["details"][-1]["retryDelay"] == f"{wait:g}s"


@pytest.mark.parametrize("name", NAMES)
def test_what_a_scenario_says_goes_before_what_the_wire_says(name: str) -> None:
    refusal = Refusal(
        fault="overloaded", status=418, body="<no>", headers={"retry-after": "9"}, retry_after_s=1
    )
    http = wire(name).refuse(None, refusal, 0.0)
    assert (http.status, http.body) == (418, b"<no>")
    assert http.headers["retry-after"] == "9"
    said = wire(name).refuse(None, Refusal(fault="auth", message="Who {are} you?"), 0.0)
    assert json.loads(said.body)["error"]["message"] == "Who {are} you?"


@pytest.mark.parametrize("name", NAMES)
def test_a_status_alone_finds_its_words(name: str) -> None:
    http = wire(name).refuse(None, Refusal(status=429), 0.0)
    assert http.status == 429
    assert http.body == wire(name).refuse(None, Refusal(fault="rate_limit"), 0.0).body


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_refusal_in_the_stream_is_one_event_with_the_reason(name: str, fault: Fault) -> None:
    tell = wire(name).stream_refusal
    assert tell is not None
    (found,) = events(tell(Refusal(fault=fault, resets_at=5000.0, message="Because."), 1000.0))
    assert "Because." in json.dumps(found)


def test_codex_is_told_about_a_full_window_and_an_empty_purse_in_its_stream() -> None:
    found = wire("responses")
    assert found.streamed == {"too_long", "billing"}
    assert found.stream_refusal is not None
    (event,) = events(found.stream_refusal(Refusal(fault="too_long"), 0.0))
    assert event["type"] == "response.failed"
    assert event["response"]["error"]["code"] == "context_length_exceeded"


def paths() -> Iterator[tuple[str, str]]:
    yield from ((path, name) for name, path in PATHS.items())
    yield "/v1/messages/count_tokens", "anthropic"
    yield "/v1beta/models/m:generateContent", "gemini"
    yield "/v1beta/models/m:countTokens", "gemini"


@pytest.mark.parametrize(("path", "name"), list(paths()))
def test_each_path_has_one_wire_and_only_by_post(path: str, name: str) -> None:
    found = wires.find("POST", path)
    assert found is not None
    assert found.name == name
    assert wires.find("GET", path) is None


@pytest.mark.parametrize("path", ["/", "/v1/embeddings", "/v1/models", "/v1beta/models/m:embed"])
def test_other_paths_have_none(path: str) -> None:
    assert wires.find("POST", path) is None
