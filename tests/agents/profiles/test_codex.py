"""Codex: each trap that was measured, on records trimmed from real runs."""

from typing import Any

import pytest
from conftest import bare

from segue.agents.codex.profile import PROFILE, knows, parse
from segue.agents.contracts.profile import Record
from segue.core.stops.events import (
    Compaction,
    Ended,
    Event,
    Failure,
    Limit,
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

ROOM = "Codex ran out of room in the model's context window."


def events(*records: dict[str, Any]) -> list[Event]:
    return bare(parse(Record(r) for r in records))


def msg(kind: str, **payload: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, **payload}}


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": "item_0", "type": kind, **fields}}


def usage(tokens_in: int, tokens_out: int, total: int) -> dict[str, int]:
    return {"input_tokens": tokens_in, "output_tokens": tokens_out, "total_tokens": total}


def count(last: dict[str, int], total: dict[str, int], window: int = 19000) -> dict[str, Any]:
    info = {"last_token_usage": last, "total_token_usage": total, "model_context_window": window}
    return msg("token_count", info=info, rate_limits=None)


def failed(info: Any, message: str = "no") -> dict[str, Any]:
    error = {"message": message, "codex_error_info": info}
    return msg("task_complete", last_agent_message=None, error=error)


def test_exec_stream_of_a_good_turn_ends_well_and_gives_no_size() -> None:
    command = {"id": "item_2", "type": "command_execution", "status": "in_progress"}
    assert events(
        {"type": "thread.started", "thread_id": "01a1"},
        item("error", message="Model metadata for `gpt-5.2` not found."),
        {"type": "turn.started"},
        item("agent_message", text="I will look."),
        {"type": "item.started", "item": command},
        {"type": "item.completed", "item": {**command, "aggregated_output": "rate limit"}},
        item("agent_message", text="Done."),
        {"type": "turn.completed", "usage": {"input_tokens": 2200, "output_tokens": 50}},
    ) == [
        Started(session_id="01a1"),
        Started(),
        Reply(text="I will look."),
        ToolCall(name="command_execution", call_id="item_2"),
        ToolResult(call_id="item_2"),
        Reply(text="Done."),
        Ended(ok=True),
    ]


def test_reconnecting_is_a_retry_and_not_a_failure() -> None:
    text = "Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)"
    assert events(
        {"type": "error", "message": text},
        item("agent_message", text="Done."),
        {"type": "turn.completed"},
    ) == [Retry(message=text), Reply(text="Done."), Ended(ok=True)]


def test_error_is_final_only_with_turn_failed() -> None:
    assert events(
        {"type": "error", "message": ROOM}, {"type": "turn.failed", "error": {"message": ROOM}}
    ) == [Failure(message=ROOM), Ended(message=ROOM)]


def test_declined_command_is_denied_and_told_even_if_its_start_was_not() -> None:
    assert events(item("command_execution", status="declined")) == [
        ToolCall(name="command_execution", call_id="item_0"),
        ToolResult(call_id="item_0", denied=True),
    ]


def test_rollout_tells_prompt_reply_and_tools_once_with_their_time() -> None:
    said = {"type": "AgentMessage", "id": "m", "content": [{"type": "Text", "text": "Hi."}]}
    asked = {"type": "UserMessage", "content": [{"type": "text", "text": "say hi"}]}
    wire = {"type": "message", "role": "assistant", "content": [{"text": "Hi."}]}
    context = {"type": "message", "role": "user", "content": [{"text": "<environment_context>"}]}
    call = {"type": "function_call", "name": "exec_command", "call_id": "call_1"}
    shown = "Wall time: 0.1 seconds\nProcess running with session ID 7\nOutput:\n429"
    out = {"type": "function_call_output", "call_id": "call_1", "output": shown}
    meta = {"id": "01a1", "cwd": "/p"}
    found = events(
        {"timestamp": "2026-11-15T18:00:00Z", "type": "session_meta", "payload": meta},
        msg("task_started", model_context_window=258400),
        {"type": "response_item", "payload": context},
        msg("item_completed", item=asked),
        msg("item_completed", item=said),
        {"type": "response_item", "payload": wire},
        {"type": "response_item", "payload": call},
        msg("item_completed", item={"type": "CommandExecution", "id": "call_1"}),
        {"type": "response_item", "payload": out},
        msg("task_complete", last_agent_message="Hi."),
    )
    assert found == [
        Started(session_id="01a1", cwd="/p", at=1794765600.0),
        Started(),
        Prompt(text="say hi"),
        Reply(text="Hi."),
        ToolCall(name="exec_command", call_id="call_1"),
        ToolResult(call_id="call_1"),
        Ended(ok=True),
    ]


@pytest.mark.parametrize(
    ("info", "reason", "code", "status"),
    [
        ("context_window_exceeded", StopReason.CONTEXT_EXHAUSTED, "context_window_exceeded", None),
        ("contextWindowExceeded", StopReason.CONTEXT_EXHAUSTED, "context_window_exceeded", None),
        ("usage_limit_exceeded", StopReason.RATE_LIMIT, "usage_limit_exceeded", None),
        ("internal_server_error", StopReason.OVERLOADED, "internal_server_error", None),
        ("other", None, "other", None),
        (
            {"http_connection_failed": {"http_status_code": 401}},
            None,
            "http_connection_failed",
            401,
        ),
        (
            {"http_connection_failed": {"http_status_code": None}},
            StopReason.OVERLOADED,
            "http_connection_failed",
            None,
        ),
        (
            {"responseTooManyFailedAttempts": {"httpStatusCode": 429}},
            None,
            "response_too_many_failed_attempts",
            429,
        ),
    ],
)
def test_error_info_is_a_name_or_a_name_with_a_status(
    info: Any, reason: StopReason | None, code: str, status: int | None
) -> None:
    assert events(failed(info)) == [Ended(message="no", reason=reason, code=code, status=status)]


def test_size_is_told_at_the_reply_and_not_again_after_the_tools() -> None:
    record = {"type": "token_usage_record", "payload": {"usage": usage(1000, 30, 1030)}}
    assert events(
        msg("task_started", model_context_window=19000),
        msg("token_count", info=None),
        record,
        count(usage(1000, 30, 1030), usage(5000, 90, 5090)),
        count(usage(1000, 30, 1030), usage(5000, 90, 5090)),
    ) == [Started(), Usage(used_tokens=1030, window_tokens=19000)]


@pytest.mark.parametrize("difference", [17970, 0])
def test_size_after_ran_out_of_room_is_full_whatever_the_count_says(difference: int) -> None:
    found = events(
        count(usage(1000, 30, 1030), usage(1000, 30, 1030)),
        count(usage(0, 0, difference), usage(0, 0, 19000)),
        failed("context_window_exceeded", ROOM),
    )
    assert found[1] == Usage(used_tokens=19000, window_tokens=19000)
    assert isinstance(found[2], Ended)


def test_compaction_gives_the_new_size_and_not_that_of_the_summary_request() -> None:
    summary = {"type": "message", "role": "assistant", "content": [{"text": "SUMMARY"}]}
    assert events(
        {"type": "response_item", "payload": summary, "metadata": {"compaction_output": True}},
        {"type": "token_usage_record", "payload": {"usage": usage(6100, 50, 6150)}},
        count(usage(6100, 50, 6150), usage(12100, 80, 12180)),
        {"type": "compacted", "payload": {"message": "Another language model…"}},
        count(usage(0, 0, 6007), usage(12100, 80, 12180)),
        msg("item_completed", item={"type": "ContextCompaction", "id": "c"}),
    ) == [
        Compaction(phase="started"),
        Compaction(phase="done"),
        Usage(used_tokens=6007, window_tokens=19000),
    ]


def test_usage_limit_takes_its_reset_from_the_plan_window_that_is_used_up() -> None:
    primary = {"used_percent": 100.0, "window_minutes": 300, "resets_at": 1900000000}
    secondary = {"used_percent": 7.0, "window_minutes": 10080, "resets_at": 1900500000}
    limits = {"primary": primary, "secondary": secondary, "rate_limit_reached_type": None}
    nulls = {"primary": None, "secondary": None}
    assert events(
        msg("token_count", info=None, rate_limits=limits),
        msg("token_count", info=None, rate_limits=nulls),
        failed("usage_limit_exceeded", "You’ve hit your usage limit."),
    ) == [
        Limit(rejected=False, scope="five_hour", resets_at=1900000000, used_percent=100.0),
        Limit(rejected=False, scope="seven_day", resets_at=1900500000, used_percent=7.0),
        Ended(
            message="You’ve hit your usage limit.",
            reason=StopReason.RATE_LIMIT,
            code="usage_limit_exceeded",
            resets_at=1900000000,
        ),
    ]


def test_reset_of_an_older_turn_is_not_taken_over() -> None:
    limits = {"primary": {"used_percent": 100, "window_minutes": 300, "resets_at": 1900000000}}
    last = events(
        msg("token_count", info=None, rate_limits=limits),
        msg("task_started"),
        failed("usage_limit_exceeded", "Quota exceeded."),
    )[-1]
    assert isinstance(last, Ended)
    assert last.resets_at is None


def test_interrupted_turn_ends_last_although_its_command_is_reported_later() -> None:
    command = {"type": "CommandExecution", "id": "call_1", "status": "failed", "exit_code": -1}
    assert events(
        msg("turn_aborted", reason="interrupted"), msg("item_completed", item=command)
    ) == [Ended(reason=StopReason.USER_EXIT, code="turn_aborted: interrupted")]


def test_bare_payload_is_read_like_a_wrapped_one() -> None:
    assert events({"type": "turn_aborted", "reason": "interrupted"}) == [
        Ended(reason=StopReason.USER_EXIT, code="turn_aborted: interrupted")
    ]


def test_end_that_does_not_mention_the_error_before_it_is_not_a_success() -> None:
    assert events(
        msg("error", message="stream disconnected", codex_error_info="other"),
        msg("task_complete", last_agent_message=None),
    ) == [Failure(message="stream disconnected", code="other"), Ended()]
    assert events(
        msg("error", message="stream disconnected"),
        msg("agent_message", message="Done."),
        msg("task_complete", last_agent_message="Done."),
    )[-1] == Ended(ok=True)


def test_resumed_file_begins_a_new_turn() -> None:
    assert events(
        failed("usage_limit_exceeded"),
        msg("task_started"),
        msg("user_message", message="go on"),
        msg("task_complete", last_agent_message="Done."),
    )[1:] == [Started(), Prompt(text="go on"), Ended(ok=True)]


def server(method: str, **params: Any) -> dict[str, Any]:
    return {"method": method, "params": {"threadId": "t", **params}}


def test_server_notifications_tell_the_same_story() -> None:
    last = {"totalTokens": 909, "inputTokens": 900, "outputTokens": 9}
    tokens = {"total": {**last, "totalTokens": 12969}, "last": last, "modelContextWindow": 258400}
    busy = {"message": "busy", "codexErrorInfo": "serverOverloaded"}
    assert events(
        server("turn/started", turn={"status": "inProgress"}),
        server("item/completed", item={"type": "agentMessage", "text": "Done."}),
        server("thread/tokenUsage/updated", tokenUsage=tokens),
        server("error", error=busy, willRetry=True),
        server("turn/completed", turn={"status": "completed", "error": None}),
        server("turn/completed", turn={"status": "failed", "error": busy}),
        server("turn/completed", turn={"status": "interrupted", "error": None}),
        {"id": 6, "result": {}},
    ) == [
        Started(),
        Reply(text="Done."),
        Usage(used_tokens=909, window_tokens=258400),
        Retry(message="busy"),
        Ended(ok=True),
        Ended(message="busy", reason=StopReason.OVERLOADED, code="server_overloaded"),
        Ended(reason=StopReason.USER_EXIT, code="turn_aborted: interrupted"),
    ]


def test_threads_of_sub_agents_are_left_out() -> None:
    child = {"id": "c", "parentThreadId": "t"}
    assert (
        events(
            {"method": "thread/started", "params": {"thread": child}},
            {"method": "turn/completed", "params": {"threadId": "c", "turn": {"status": "failed"}}},
        )
        == []
    )


def test_approval_that_is_awaited_needs_the_user() -> None:
    assert events(msg("exec_approval_request", call_id="1")) == [
        Failure(reason=StopReason.NEEDS_USER, code="approval_requested")
    ]


def test_unknown_kinds_pass_as_unknown_and_known_noise_as_nothing() -> None:
    assert events({"type": "turn.paused"}, item("hologram"), msg("turn_diff")) == [
        Other(kind="turn.paused", known=False),
        Other(kind="item hologram", known=False),
    ]


def test_knows_its_own_records_and_no_others() -> None:
    assert knows({"type": "thread.started", "thread_id": "01a1"})
    assert knows(msg("token_count"))
    assert knows({"type": "turn_aborted", "reason": "interrupted"})
    assert knows({"type": "error", "message": "Reconnecting... 1/5"})
    assert knows(server("turn/completed", turn={}))
    assert not knows({"type": "error", "message": "boom"})
    assert not knows({"type": "assistant", "message": {}})
    assert not knows({"type": "error", "sessionID": "ses_1", "error": {"name": "APIError"}})
    assert not knows({})


def test_exit_code_1_without_a_closing_record_is_ctrl_c() -> None:
    assert PROFILE.cut_exit_reasons == {1: StopReason.USER_EXIT}
