"""Qwen Code's records: each test proves one trap that was seen in a real run."""

from typing import Any

import pytest
from conftest import bare

from segue.agents.claude import profile as claude
from segue.agents.contracts.profile import Record
from segue.agents.qwen import profile as qwen
from segue.core.stops.events import (
    Compaction,
    Ended,
    Event,
    Failure,
    Other,
    Prompt,
    Reply,
    Retry,
    Started,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.core.stops.reasons import StopReason

JSON = dict[str, Any]

TOO_LONG = "[API Error: 400 This model's maximum context length is 131072 tokens.]"
INIT = {"type": "system", "subtype": "init", "session_id": "s", "qwen_code_version": "0.24.4"}


def read(*records: JSON) -> list[Event]:
    return bare(qwen.parse(Record(data) for data in records))


def shapes(*records: JSON) -> list[type[Event]]:
    return [type(event) for event in read(*records) if not isinstance(event, Usage)]


def says(*content: JSON, **usage: int) -> JSON:
    message = {"id": "u1", "model": "m", "content": list(content), "usage": usage}
    ids = {"uuid": "u1", "session_id": "s", "parent_tool_use_id": None}
    return {"type": "assistant", "message": message, **ids}


def line(text: str) -> JSON:
    return {"type": "text", "text": text}


def result(**fields: Any) -> JSON:
    usage = {"input_tokens": 18200, "output_tokens": 24, "total_tokens": 18224}
    base = {"subtype": "success", "is_error": False, "permission_denials": [], "usage": usage}
    return {"type": "result", **base, **fields}


def kept(kind: str, *parts: JSON, **more: Any) -> JSON:
    """A record of the session file."""
    message = {"role": "model", "parts": list(parts)}
    when = "2026-11-15T19:03:15.094Z"
    return {"type": kind, "sessionId": "s", "timestamp": when, "message": message, **more}


def note(subtype: str, **payload: Any) -> JSON:
    return {"type": "system", "subtype": subtype, "sessionId": "s", "systemPayload": payload}


def api_error(message: str, code: str, status: int, **more: str) -> JSON:
    told = {"error_message": message, "error_type": code, "status_code": status}
    names = {"event.name": "qwen-code.api_error", "prompt_id": "s########0"}
    return note("ui_telemetry", uiEvent={**names, **told, **more})


PROMPT = kept("user", {"text": "do it"}, provenance="real_user")
CALL = {"functionCall": {"id": "c1", "name": "run_shell_command"}}
DONE = kept("assistant", {"text": "Done."}, usageMetadata={"totalTokenCount": 9112}, uuid="u9")


# -- stream


def test_a_finished_run_is_ok_and_its_summed_usage_is_not_told() -> None:
    reply = says(line("Done."), input_tokens=9100, output_tokens=12, cache_read_input_tokens=9000)
    assert read(INIT, reply, result(result="Done.")) == [
        Started(session_id="s"),
        Reply(text="Done."),
        Usage(used_tokens=9112),
        Ended(ok=True),
    ]


def test_an_api_error_in_the_assistants_mouth_is_a_failure() -> None:
    assert read(says(line(TOO_LONG), input_tokens=0)) == [Failure(message=TOO_LONG, status=400)]


def test_a_failed_run_tells_the_error_object() -> None:
    wrong = result(subtype="error_during_execution", is_error=True, error={"message": TOO_LONG})
    ended = read(says(line(TOO_LONG)), wrong)[-1]
    assert isinstance(ended, Ended)
    assert (ended.ok, ended.status, ended.message) == (False, 400, TOO_LONG)


def test_an_api_error_that_says_success_and_no_error_is_not_ok() -> None:
    (ended,) = read(result(result="[API Error: 401 Incorrect API key provided: sk-test.]"))
    assert isinstance(ended, Ended)
    assert (ended.ok, ended.status) == (False, 401)
    assert ended.message.startswith("[API Error: 401")


def test_a_text_block_before_a_tool_call_has_no_usage() -> None:
    assert read(says(line("I will."), input_tokens=0, output_tokens=0)) == [Reply(text="I will.")]


def test_a_retry_is_reported_with_its_wait() -> None:
    data = {"reason": "retry", "attempt": 1, "delayMs": 60000}
    record = {"type": "system", "subtype": "retry", "session_id": "s", "data": data}
    assert read(record) == [Retry(message="retry", wait_s=60)]


# -- session file


def test_a_session_file_ends_with_a_reply_without_a_call() -> None:
    called = kept("assistant", {"text": "I will."}, CALL)
    answered = kept("tool_result", toolCallResult={"callId": "c1", "status": "success"})
    side = note("ui_telemetry", uiEvent={"event.name": "qwen-code.api_response"})
    assert shapes(PROMPT, called, answered, DONE, side) == [
        Started,
        Prompt,
        Reply,
        ToolCall,
        ToolResult,
        Reply,
        Ended,
    ]


def test_a_call_without_an_answer_is_not_an_end() -> None:
    assert shapes(PROMPT, kept("assistant", {"text": "I will."}, CALL))[-1] is ToolCall


def test_thoughts_are_not_the_answer() -> None:
    assert shapes(PROMPT, kept("assistant", {"text": "hmm", "thought": True}))[-1] is Prompt


def test_the_context_size_is_the_last_replys_total() -> None:
    last = {**DONE, "contextWindowSize": 131072}
    usages = [event for event in read(PROMPT, last) if isinstance(event, Usage)]
    assert [(u.used_tokens, u.window_tokens) for u in usages] == [(9112, 131072)]


def test_an_api_error_stands_only_in_the_telemetry() -> None:
    failed = read(PROMPT, api_error("429 Rate limit reached", "RateLimitError", 429))[-1]
    assert isinstance(failed, Failure)
    assert (failed.reason, failed.status) == (StopReason.RATE_LIMIT, 429)
    refused = read(api_error("fetch failed", "APIConnectionError:ECONNREFUSED", 0))[-1]
    assert isinstance(refused, Failure)
    assert refused.reason is StopReason.OVERLOADED


def test_a_failed_side_request_after_the_end_leaves_it_an_end() -> None:
    memory = api_error("429", "RateLimitError", 429, subagent_name="managed-auto-memory-extractor")
    other = api_error("429", "RateLimitError", 429, prompt_id="suggestion")
    assert shapes(PROMPT, DONE, memory, other)[-1] is Ended


def test_a_cancelled_tool_is_the_users_exit_unless_it_continues() -> None:
    cancelled = kept("tool_result", toolCallResult={"callId": "c1", "status": "cancelled"})
    *_, answer, stop = read(PROMPT, kept("assistant", CALL), cancelled)
    assert isinstance(answer, ToolResult)
    assert isinstance(stop, Failure)
    assert stop.reason is StopReason.USER_EXIT
    assert shapes(PROMPT, kept("assistant", CALL), cancelled, DONE)[-1] is Ended


@pytest.mark.parametrize(
    ("state", "stop", "ok", "reason"),
    [
        ("completed", "end_turn", True, None),
        ("completed", "max_turn_requests", False, StopReason.MAX_TURNS),
        ("cancelled", "cancelled", False, StopReason.USER_EXIT),
        ("error", "error", False, None),
    ],
)
def test_a_turn_result_decides(state: str, stop: str, ok: bool, reason: StopReason | None) -> None:
    record = note("turn_result", state=state, stopReason=stop, error={"message": "why"})
    *_, ended = read(PROMPT, DONE, record)
    assert isinstance(ended, Ended)
    assert (ended.ok, ended.reason, ended.message) == (ok, reason, "why")
    assert shapes(PROMPT, DONE, record).count(Ended) == 1


def test_a_compression_tells_the_new_size() -> None:
    done = note("chat_compression", info={"newTokenCount": 900, "compressionStatus": 1})
    failed = note("chat_compression", info={"newTokenCount": 900, "compressionStatus": 2})
    _, first, second = read(done, failed)
    assert isinstance(first, Compaction)
    assert (first.phase, first.used_tokens) == ("done", 900)
    assert isinstance(second, Compaction)
    assert second.phase == "failed"


def test_a_sub_agents_record_is_left_out() -> None:
    assert read({**DONE, "isSidechain": True}) == []


# -- anything


def test_unknown_records_are_counted() -> None:
    assert shapes(note("novelty"), kept("novelty")) == [Started, Other, Other]


@pytest.mark.parametrize("record", [INIT, PROMPT, DONE, says(line("a")), result(result="Done.")])
def test_its_records_are_known_as_its_own_and_not_as_claudes(record: JSON) -> None:
    assert qwen.knows(record)
    assert not claude.knows(record)
