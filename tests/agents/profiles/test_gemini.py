"""Gemini CLI's records, trimmed from real runs of 0.61.0."""

import json
from typing import Any

import pytest
from conftest import bare

from segue.agents.contracts.profile import Record
from segue.agents.gemini.profile import PROFILE, knows, parse
from segue.core.stops.events import (
    Compaction,
    Ended,
    Event,
    Failure,
    Other,
    Prompt,
    Reply,
    Started,
    ToolCall,
    ToolResult,
    Usage,
)
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import UserExitType

T = "2026-11-15T18:52:21.000Z"
AT = 1794768741.0
INIT = {"type": "init", "timestamp": T, "session_id": "s1", "model": "gemini-2.5-pro"}
ASK = {"type": "message", "timestamp": T, "role": "user", "content": "do the task"}
USE = {
    "type": "tool_use",
    "timestamp": T,
    "tool_name": "run_shell_command",
    "tool_id": "c1",
    "parameters": {"command": "seq 1 3000"},
}
DONE = {"type": "tool_result", "timestamp": T, "tool_id": "c1", "status": "success", "output": "1"}
STOPPED = {
    "type": "tool_result",
    "timestamp": T,
    "tool_id": "c1",
    "status": "error",
    "output": "Agent execution stopped by hook: enough",
    "error": {"type": "stop_execution", "message": "enough"},
}
OVERFLOW = (
    '[API Error: {"error":{"code":400,"message":"The input token count (1200345) exceeds the '
    'maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]'
)
HEADER = {"sessionId": "s1", "projectHash": "h", "startTime": T, "lastUpdated": T, "kind": "main"}
CONTEXT = {"id": "m0", "timestamp": T, "type": "user", "content": [{"text": "<session_context>"}]}
TASK = {"id": "m1", "timestamp": T, "type": "user", "content": [{"text": "do the task"}]}


def say(words: str) -> dict[str, Any]:
    return {
        "type": "message",
        "timestamp": T,
        "role": "assistant",
        "content": words,
        "delta": True,
    }


def result(status: str = "success", tokens: int = 9000, **error: str) -> dict[str, Any]:
    data: dict[str, Any] = {"type": "result", "timestamp": T, "status": status}
    data["stats"] = {"input_tokens": tokens, "total_tokens": tokens}
    return {**data, "error": error} if error else data


def gemini(total: int, name: str = "m2", words: str = "I will run it.") -> dict[str, Any]:
    tokens = {"input": total - 30, "output": 30, "cached": 0, "thoughts": 0, "total": total}
    return {
        "id": name,
        "timestamp": T,
        "type": "gemini",
        "content": words,
        "tokens": tokens,
        "model": "gemini-2.5-pro",
    }


def with_call(message: dict[str, Any], status: str = "success", shown: str = "1") -> dict[str, Any]:
    response = {"functionResponse": {"id": "c1", "response": {"output": shown}}}
    call = {"id": "c1", "name": "run_shell_command", "result": [response], "status": status}
    return {**message, "toolCalls": [{**call, "resultDisplay": shown}]}


SENT = {
    "id": "m3",
    "timestamp": T,
    "type": "user",
    "content": [{"functionResponse": {"id": "c1", "response": {"output": "1"}}}],
}


def read(*records: dict[str, Any]) -> list[Event]:
    return bare(parse(Record(data, f"f:{n}") for n, data in enumerate(records, 1)))


def last(*records: dict[str, Any]) -> Event:
    return read(*records)[-1]


def test_a_good_run_is_reported_in_order_with_its_deltas_joined() -> None:
    events = read(INIT, ASK, say("I will "), say("run it."), USE, DONE, say("Done."), result())
    assert events == [
        Started(where="f:1", at=AT, session_id="s1", model="gemini-2.5-pro"),
        Prompt(where="f:2", at=AT, text="do the task"),
        Reply(where="f:3", at=AT, text="I will run it."),
        ToolCall(
            where="f:5",
            at=AT,
            name="run_shell_command",
            call_id="c1",
            command="seq 1 3000",
            argument='{"command":"seq 1 3000"}',
        ),
        ToolResult(where="f:6", at=AT, call_id="c1"),
        Reply(where="f:7", at=AT, text="Done."),
        Ended(where="f:8", at=AT, ok=True),
    ]


def test_a_sum_over_requests_is_never_a_context_size() -> None:
    assert not any(isinstance(e, Usage) for e in read(INIT, ASK, say("Hi."), result(tokens=90000)))


def test_a_result_alone_is_believed() -> None:
    assert last(result()) == Ended(where="f:1", at=AT, ok=True)


def test_an_overflow_keeps_sentence_status_and_code_but_claims_no_reason() -> None:
    assert last(INIT, ASK, result("error", type="unknown", message=OVERFLOW)) == Ended(
        where="f:3", at=AT, message=OVERFLOW, code="INVALID_ARGUMENT", status=400
    )


@pytest.mark.parametrize(
    ("status", "word", "reason"),
    [
        (401, "UNAUTHENTICATED", StopReason.AUTH),
        (403, "PERMISSION_DENIED", StopReason.AUTH),
        (429, "RESOURCE_EXHAUSTED", StopReason.RATE_LIMIT),
        (500, "INTERNAL", StopReason.OVERLOADED),
        (503, "UNAVAILABLE", StopReason.OVERLOADED),
    ],
)
def test_the_providers_status_words_are_codes_even_as_json_in_json(
    status: int, word: str, reason: StopReason
) -> None:
    body = json.dumps({"error": {"code": status, "message": "m", "status": word}})
    for message in (f"[API Error: {body}]", json.dumps({"error": {"message": body}})):
        ended = last(INIT, ASK, result("error", type="unknown", message=message))
        assert isinstance(ended, Ended)
        assert (ended.reason, ended.code, ended.status) == (reason, word, status)
        assert not ended.ok


def test_a_retry_delay_in_the_body_is_kept() -> None:
    message = '{"error":{"code":429,"details":[{"retryDelay":"34.5s"}]}}'
    ended = last(result("error", type="unknown", message=message))
    assert isinstance(ended, Ended)
    assert ended.retry_after_s == 34.5


def test_an_unknown_error_is_only_a_message() -> None:
    message = "[API Error: An unknown error occurred.]"
    assert last(result("error", type="unknown", message=message)) == Ended(
        where="f:1", at=AT, message=message
    )


def test_status_error_with_exit_0_leaves_it_to_the_error_event() -> None:
    error = {"type": "error", "timestamp": T, "severity": "error", "message": "Stream ended."}
    assert read(INIT, ASK, say("Done."), error, result("error"))[-2:] == [
        Failure(where="f:4", at=AT, message="Stream ended."),
        Ended(where="f:5", at=AT),
    ]


def test_success_after_an_error_event_is_not_ok() -> None:
    error = {"type": "error", "timestamp": T, "severity": "error", "message": "x"}
    assert last(INIT, ASK, error, say("Done."), result()) == Ended(where="f:5", at=AT)


def test_a_loop_is_a_stop_though_it_says_success() -> None:
    message = "Loop detected, stopping execution"
    warning = {"type": "error", "timestamp": T, "severity": "warning", "message": message}
    assert last(INIT, ASK, say("I will run it."), warning, result()) == Ended(
        where="f:5", at=AT, reason=StopReason.ERROR, code="loop_detected", message=message
    )


def test_another_warning_is_not_a_stop() -> None:
    warning = {"type": "error", "severity": "warning", "message": "Agent execution blocked: x"}
    events = read(INIT, ASK, say("Done."), warning, say("Written."), result())
    assert events[-1] == Ended(where="f:6", at=AT, ok=True)
    assert not any(type(e) is Failure for e in events)


def test_a_silent_stop_near_the_full_window_is_the_guard() -> None:
    assert last(INIT, ASK, say("I will."), USE, DONE, result(tokens=1_047_000)) == Ended(
        where="f:6", at=AT, reason=StopReason.CONTEXT_EXHAUSTED, code="context_guard"
    )


def test_a_silent_stop_far_from_the_window_is_not_the_guard_nor_a_success() -> None:
    assert last(INIT, ASK, say("I will."), USE, DONE, result(tokens=9000)) == Ended(
        where="f:6", at=AT, code="no_final_text"
    )


def test_a_big_tool_result_counts_towards_the_guard() -> None:
    big = {**DONE, "output": "x" * 600_000}
    ended = last(INIT, ASK, say("I will."), USE, big, result(tokens=900_000))
    assert isinstance(ended, Ended)
    assert ended.reason is StopReason.CONTEXT_EXHAUSTED


def test_a_hooks_stop_is_not_the_guard_however_full() -> None:
    end = last(INIT, ASK, USE, STOPPED, result(tokens=1_047_000))
    assert isinstance(end, Ended)
    assert (end.reason, end.code) == (StopReason.USER_EXIT, "stop_execution")
    assert end.exit_type is UserExitType.TERMINATED  # a hook, not a key


def test_text_of_tool_results_is_reported_as_what_was_printed_and_nowhere_else() -> None:
    assert "enough" not in repr(read(INIT, ASK, USE, STOPPED, result()))


def test_a_killed_run_has_no_end() -> None:
    assert isinstance(last(INIT, ASK, say("I will."), USE), ToolCall)
    assert isinstance(last(INIT, ASK, say("Half an")), Reply)


def test_the_json_object_with_an_answer_is_a_good_end() -> None:
    stats = {"models": {"gemini-2.5-pro": {"tokens": {"prompt": 18100, "total": 18142}}}}
    assert read({"session_id": "s1", "response": "Done.", "stats": stats}) == [
        Started(where="f:1", session_id="s1", model="gemini-2.5-pro"),
        Reply(where="f:1", text="Done."),
        Ended(where="f:1", ok=True),
    ]


def test_the_json_object_with_an_empty_answer_and_a_full_window_is_the_guard() -> None:
    tokens = {"prompt": 1_047_000, "total": 1_047_030}
    model = {"api": {"totalRequests": 1}, "tokens": tokens}
    stats = {"models": {"gemini-2.5-pro": model}}
    assert read({"session_id": "s1", "response": "", "stats": stats})[1:] == [
        Usage(where="f:1", used_tokens=1_047_030),
        Ended(where="f:1", reason=StopReason.CONTEXT_EXHAUSTED, code="context_guard"),
    ]


def test_the_error_object_of_stderr() -> None:
    error = {"type": "Error", "message": "You exceeded your current quota", "code": 429}
    assert last({"session_id": "s1", "error": error}) == Ended(
        where="f:1", message="You exceeded your current quota", status=429
    )


def test_an_error_object_may_carry_the_exit_code_instead_of_a_status() -> None:
    error = {"type": "FatalTurnLimitedError", "message": "Reached max session turns", "code": 53}
    ended = last({"session_id": "s1", "error": error})
    assert isinstance(ended, Ended)
    assert (ended.reason, ended.status) == (StopReason.MAX_TURNS, None)


def test_a_session_file_is_a_log_where_the_same_id_adds_only_what_is_new() -> None:
    message = gemini(9030)
    tick = {"$set": {"lastUpdated": T}}
    setup = {"$set": {"messages": [CONTEXT]}}
    final = gemini(9112, "m4", "Done.")
    records = (HEADER, setup, TASK, tick, message, tick, with_call(message), SENT, final, tick)
    assert read(*records) == [
        Started(where="f:1", at=AT, session_id="s1"),
        Prompt(where="f:3", at=AT, text="do the task"),
        Reply(where="f:5", at=AT, text="I will run it."),
        Usage(where="f:5", at=AT, used_tokens=9030),
        ToolCall(where="f:7", at=AT, name="run_shell_command", call_id="c1"),
        ToolResult(where="f:7", at=AT, call_id="c1"),
        Reply(where="f:9", at=AT, text="Done."),
        Usage(where="f:9", at=AT, used_tokens=9112),
    ]


def test_a_session_file_that_ends_in_unsent_results_at_a_full_window_is_the_guard() -> None:
    message = gemini(1_047_030)
    assert last(HEADER, TASK, message, with_call(message)) == Ended(
        where="f:4", at=AT, reason=StopReason.CONTEXT_EXHAUSTED, code="context_guard"
    )
    assert not isinstance(last(HEADER, TASK, message, with_call(message), SENT), Ended)
    assert not isinstance(last(HEADER, TASK, with_call(gemini(9030))), Ended)


def test_a_session_file_that_ends_in_a_hooks_stop_says_the_same_as_the_stream() -> None:
    call = with_call(gemini(9030), "error", "Agent execution stopped by hook: enough")
    ended = last(HEADER, TASK, call)
    assert isinstance(ended, Ended)
    assert (ended.reason, ended.code) == (StopReason.USER_EXIT, "stop_execution")


def test_a_new_summary_is_a_compaction_but_one_that_a_resume_brings_along_is_not() -> None:
    summary = {"id": "m9", "type": "user", "content": [{"text": "<state_snapshot>x"}]}
    history = {"$set": {"messages": [CONTEXT, summary]}}
    events = read(HEADER, TASK, gemini(600_030), history, HEADER, history, TASK)
    assert [e for e in events if isinstance(e, Compaction)] == [
        Compaction(where="f:4", phase="done")
    ]


def test_a_resume_stub_says_nothing_but_that_it_started() -> None:
    assert read(HEADER, {"$set": {"messages": [CONTEXT]}}) == [
        Started(where="f:1", at=AT, session_id="s1")
    ]


def test_what_the_client_puts_into_the_users_mouth_is_not_a_prompt() -> None:
    note = {"id": "m5", "timestamp": T, "type": "user", "content": [{"text": "[System: You …"}]}
    assert read(CONTEXT, note) == [
        Other(where="f:1", at=AT, kind="note"),
        Other(where="f:2", at=AT, kind="note"),
    ]


def test_an_error_record_of_the_tui_is_a_failure() -> None:
    error = {"id": "m6", "timestamp": T, "type": "error", "content": OVERFLOW}
    assert last(HEADER, TASK, error) == Failure(
        where="f:3", at=AT, message=OVERFLOW, code="INVALID_ARGUMENT", status=400
    )


def test_a_cancelled_request_and_a_cancelled_tool_are_the_users_doing() -> None:
    info = {"id": "m7", "timestamp": T, "type": "info", "content": "Request cancelled."}
    for events in (read(HEADER, TASK, info), read(HEADER, with_call(gemini(9030), "cancelled"))):
        ended = events[-1]
        assert isinstance(ended, Ended)
        assert (ended.ok, ended.reason) == (False, StopReason.USER_EXIT)


def test_a_sub_agents_session_file_is_not_the_main_thread() -> None:
    events = read({**HEADER, "kind": "subagent"}, TASK, gemini(9030))
    assert [type(e) for e in events] == [Started, Other, Other]


def test_an_older_session_file_is_one_object() -> None:
    events = read({**HEADER, "messages": [TASK, gemini(9030, words="Hi.")]})
    assert [type(e) for e in events] == [Started, Prompt, Reply, Usage]


def test_unknown_records_are_counted_as_unknown() -> None:
    assert read({"type": "brand_new"}) == [Other(where="f:1", kind="brand_new", known=False)]


def test_its_own_records_are_recognised_and_others_are_not() -> None:
    own: tuple[dict[str, Any], ...] = (
        INIT,
        ASK,
        USE,
        DONE,
        result(),
        HEADER,
        TASK,
        gemini(1),
        {"$set": {}},
        {"$rewindTo": ""},
    )
    assert all(knows(record) for record in own)
    others: tuple[dict[str, Any], ...] = (
        {},
        {"type": "result", "subtype": "success", "is_error": False},
        {"type": "error", "error": {"message": "x"}},
        {"type": "user", "uuid": "u", "message": {}},
        {"type": ["init"]},
    )
    assert not any(knows(record) for record in others)


def test_exit_0_without_a_result_means_a_signal() -> None:
    assert PROFILE.cut_exit_reasons == {0: StopReason.USER_EXIT}
    assert PROFILE.exit_is_http_status
