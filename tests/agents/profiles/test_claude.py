"""Claude Code's records: each test proves one trap that was seen in a real run."""

from typing import Any

import pytest
from conftest import bare

from segue.agents.claude import profile as claude
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

JSON = dict[str, Any]

IN, CACHED = {"input_tokens": 10, "cache_creation_input_tokens": 1000}, "cache_read_input_tokens"
TOO_LONG = "Prompt is too long"


def read(*records: JSON) -> list[Event]:
    return bare(claude.parse(Record(data) for data in records))


def shapes(*records: JSON) -> list[type[Event]]:
    return [type(event) for event in read(*records) if not isinstance(event, Usage)]


def says(*content: JSON, stop: str | None = None, **more: Any) -> JSON:
    """A stream record of the model."""
    usage = {**IN, CACHED: 8990, "output_tokens": 1}
    message: JSON = {"id": "msg_1", "model": "claude-sonnet-4-5", "content": list(content)}
    message |= {"stop_reason": stop, "usage": usage}
    return {"type": "assistant", "message": message, "parent_tool_use_id": None, **more}


def line(text: str) -> JSON:
    return {"type": "text", "text": text}


CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
KEPT = {"sessionId": "s1", "isSidechain": False, "timestamp": "2026-11-15T18:14:43.231Z"}
INIT = {"type": "system", "subtype": "init", "session_id": "s1", "model": "m", "cwd": "/p"}


def kept(record: JSON) -> JSON:
    """The same as the transcript has it."""
    return {**record, **KEPT}


def user(content: Any, **more: Any) -> JSON:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def answer(**meta: Any) -> JSON:
    return user([{"type": "tool_result", "tool_use_id": "toolu_1", "content": "out"}], **meta)


def synthetic(text: str, stop: str = "stop_sequence", **more: Any) -> JSON:
    message = {"model": "<synthetic>", "content": [line(text)], "stop_reason": stop}
    return {"type": "assistant", "message": message, **more}


def result(**fields: Any) -> JSON:
    return {"type": "result", "subtype": "success", "is_error": False, **fields}


def end(*records: JSON) -> Ended:
    last = read(*records)[-1]
    assert isinstance(last, Ended)
    return last


# -- results


def test_a_finished_run_is_ok_and_its_prose_is_not_a_message() -> None:
    text = "Explained why sessions end with You've hit your session limit"
    ended = end(INIT, says(line(text)), result(terminal_reason="completed", result=text))
    assert (ended.ok, ended.reason, ended.message) == (True, None, "")


def test_an_api_error_that_says_success_is_not_ok() -> None:
    ended = end(
        result(
            is_error=True,
            terminal_reason="api_error",
            api_error_status=429,
            api_error_type="rate_limit_error",
            result="API Error: Request rejected (429)",
        )
    )
    assert not ended.ok
    assert (ended.reason, ended.status) == (StopReason.RATE_LIMIT, 429)
    assert ended.message == "API Error: Request rejected (429)"


def test_api_error_as_terminal_reason_names_nothing() -> None:
    ended = end(result(is_error=True, terminal_reason="api_error", api_error_status=429))
    assert (ended.reason, ended.status, ended.ok) == (None, 429, False)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"terminal_reason": "blocking_limit", "is_error": True}, StopReason.CONTEXT_EXHAUSTED),
        ({"terminal_reason": "prompt_too_long", "is_error": True}, StopReason.CONTEXT_EXHAUSTED),
        ({"terminal_reason": "max_turns", "is_error": True}, StopReason.MAX_TURNS),
        ({"terminal_reason": "budget_exhausted", "is_error": True}, StopReason.MAX_BUDGET),
        ({"terminal_reason": "aborted_tools", "is_error": True}, StopReason.USER_EXIT),
        ({"terminal_reason": "tool_deferred"}, StopReason.NEEDS_USER),
        ({"terminal_reason": "hook_stopped", "result": ""}, StopReason.USER_EXIT),
        ({"subtype": "error_max_turns", "is_error": True}, StopReason.MAX_TURNS),
        ({"subtype": "error_max_budget_usd", "is_error": True}, StopReason.MAX_BUDGET),
        ({"stop_reason": "refusal"}, StopReason.REFUSAL),
        ({"result": "", "permission_denials": [{"tool_name": "Bash"}]}, StopReason.NEEDS_USER),
    ],
)
def test_codes_of_a_result_name_the_reason(fields: JSON, reason: StopReason) -> None:
    ended = end(result(**fields))
    assert (ended.ok, ended.reason) == (False, reason)


def test_a_denied_permission_after_which_it_answered_is_ok() -> None:
    assert end(result(result="I could not.", permission_denials=[{"tool_name": "Bash"}])).ok


def test_errors_listed_instead_of_a_result_are_the_message() -> None:
    errors = ["No conversation found with session ID: 9"]
    ended = end(result(subtype="error_during_execution", is_error=True, errors=errors))
    assert (ended.message, ended.code) == (errors[0], "error_during_execution")


def test_a_success_in_which_the_model_was_never_asked_is_not_ok() -> None:
    said = "Unknown skill: missing"
    ended = end(result(num_turns=2, duration_api_ms=0, stop_reason=None, result=said))
    assert (ended.ok, ended.message) == (False, said)


def test_a_local_command_ends_ok_without_a_reply() -> None:
    shown = synthetic("## Context Usage", stop="end_turn")
    events = read(shown, result(num_turns=0, stop_reason=None, result="#", local_command="context"))
    assert [type(e) for e in events] == [Ended]


def test_a_success_that_repeats_the_clients_error_is_not_ok() -> None:
    limit = "Claude AI usage limit reached|1750708800"
    assert not end(synthetic(limit), result(result=limit)).ok


def test_json_mode_gives_the_answer_as_reply() -> None:
    assert shapes(result(terminal_reason="completed", result="hi")) == [Reply, Ended]


def test_a_second_turn_of_a_background_task_starts_again() -> None:
    told = shapes(INIT, says(line("a")), result(result="a"), INIT, says(line("b")), result())
    assert told == [Started, Reply, Ended, Started, Reply, Ended]


def test_a_result_that_lost_its_type_is_read() -> None:
    ended = end({"subtype": "success", "is_error": True, "num_turns": 95, "result": TOO_LONG})
    assert (ended.ok, ended.message) == (False, TOO_LONG)


# -- usage


def test_usage_is_said_once_per_message_and_the_window_with_the_result() -> None:
    models = {"claude-sonnet-4-5": {"contextWindow": 200000}}
    summed = {"input_tokens": 99, CACHED: 99999}
    events = read(says(line("a")), says(CALL), result(modelUsage=models, usage=summed))
    assert [e for e in events if isinstance(e, Usage)] == [
        Usage(used_tokens=10001, where=""),
        Usage(used_tokens=10001, window_tokens=200000),
    ]


def test_partial_messages_give_the_final_output_count() -> None:
    usage = {**IN, CACHED: 8990, "output_tokens": 40}
    delta = {"type": "stream_event", "event": {"type": "message_delta", "usage": usage}}
    assert read(says(line("a")), delta)[-1] == Usage(used_tokens=10040)


def test_an_error_does_not_set_the_usage_to_zero() -> None:
    failed = synthetic(TOO_LONG, error="invalid_request")
    failed["message"]["usage"] = {"input_tokens": 0}
    used = [e.used_tokens for e in read(says(line("a")), failed) if isinstance(e, Usage)]
    assert used == [10001]


def test_the_size_after_a_compaction_is_the_new_one() -> None:
    boundary = {"type": "system", "subtype": "compact_boundary"}
    stream = {**boundary, "compact_metadata": {"post_tokens": 2790}}
    file = kept({**boundary, "compactMetadata": {"postTokens": 2790}})
    models = {"modelUsage": {"m": {"contextWindow": 200000}}}
    events = read(says(line("a")), stream, result(**models))
    assert Compaction(phase="done", used_tokens=2790) in events
    assert Usage(used_tokens=2790, window_tokens=200000) in events
    assert any(isinstance(e, Compaction) and e.used_tokens == 2790 for e in read(file))


@pytest.mark.parametrize(("trigger", "ends"), [("auto", False), ("manual", True)])
def test_only_a_compaction_that_the_user_asked_for_ends_a_turn(trigger: str, ends: bool) -> None:
    boundary = {"type": "system", "subtype": "compact_boundary"}
    stream = read({**boundary, "compact_metadata": {"trigger": trigger}})
    file = read(kept({**boundary, "compactMetadata": {"trigger": trigger}}))
    found = [e.ends_turn for e in (*stream, *file) if isinstance(e, Compaction)]
    assert found == [ends, ends]


def test_compaction_tells_its_start_and_its_failure() -> None:
    status = {"type": "system", "subtype": "status"}
    failed = {"status": None, "compact_result": "failed", "compact_error": "exhausted"}
    assert read({**status, "status": "compacting"}, {**status, **failed}) == [
        Compaction(phase="started"),
        Compaction(phase="failed", message="exhausted"),
    ]


# -- errors in the assistant's mouth


def test_a_synthetic_error_is_a_failure_with_code_and_status() -> None:
    record = synthetic("Credit balance is too low", error="billing_error", api_error_status=400)
    message = "Credit balance is too low"
    assert read(record) == [
        Failure(message=message, reason=StopReason.BILLING, code="billing_error", status=400)
    ]


def test_invalid_request_names_no_reason_but_keeps_the_details() -> None:
    details = '400 {"message":"prompt is too long: 208310 tokens > 200000 maximum"}'
    record = synthetic(TOO_LONG, error="invalid_request", errorDetails=details)
    (failure,) = read(record)
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.message) == (None, f"{TOO_LONG}\n{details}")


def test_an_old_error_without_any_code_is_a_failure() -> None:
    assert shapes(synthetic("Claude AI usage limit reached|1750708800")) == [Failure]


def test_an_error_inside_the_message_is_a_failure() -> None:
    message = {"content": [line(TOO_LONG)], "error": "invalid_request"}
    assert shapes({"type": "assistant", "message": message}) == [Failure]


def test_the_filler_of_a_resume_says_nothing() -> None:
    assert read(synthetic("No response requested.", isApiErrorMessage=False)) == []


def test_a_plan_limit_in_the_transcript_tells_scope_and_reset() -> None:
    quota = {"status": "rejected", "resetsAt": 1794771106, "rateLimitType": "five_hour"}
    said = "You've hit your limit · resets 7:31pm (UTC)"
    more: JSON = {"error": "rate_limit", "apiError": "usage_limit_reached", "quotaLimits": quota}
    limit, failure = read(synthetic(said, isApiErrorMessage=True, **more))
    assert limit == Limit(rejected=True, scope="five_hour", resets_at=1794771106)
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.resets_at) == (StopReason.RATE_LIMIT, 1794771106)


def test_a_refusal_after_which_it_continued_is_followed_by_a_reply() -> None:
    nudge = user("Your response above was stopped", isMeta=True)
    records = says(line(""), stop="refusal"), nudge, says(line("ok"), stop="end_turn")
    assert shapes(*map(kept, records)) == [Started, Failure, Reply, Ended]


def test_a_sub_agents_error_is_not_the_sessions() -> None:
    failed = synthetic("429", error="rate_limit")
    assert read({**failed, "parent_tool_use_id": "toolu_1"}) == []
    assert read({**failed, "isSidechain": True, "sessionId": "s1"}) == []


# -- limits and retries


def limit_event(**info: Any) -> JSON:
    return {"type": "rate_limit_event", "rate_limit_info": info}


def test_only_a_rejected_limit_is_rejected() -> None:
    warned = limit_event(status="allowed_warning", utilization=0.5, resetsAt=5)
    refused = limit_event(status="rejected", rateLimitType="seven_day")
    overage_off = limit_event(status="allowed", overageStatus="rejected")
    paid = limit_event(status="rejected", overageStatus="allowed", isUsingOverage=True)
    assert read(warned, refused, overage_off, paid) == [
        Limit(rejected=False, used_percent=50, resets_at=5),
        Limit(rejected=True, scope="seven_day"),
        Limit(rejected=False),
        Limit(rejected=False),
    ]


def test_a_retry_is_reported_by_the_stream_and_by_its_twin_in_the_transcript() -> None:
    retry = {"type": "system", "subtype": "api_retry", "error": "rate_limit"}
    twin = {"type": "system", "subtype": "api_error", "retryInMs": 565}
    error = {"status": 429, "formatted": "429 slow down"}
    assert read(
        {**retry, "retry_delay_ms": 565, "error_status": 429}, {**twin, "error": error}
    ) == [
        Retry(message="rate_limit", status=429, wait_s=0.565),
        Retry(message="429 slow down", status=429, wait_s=0.565),
    ]


# -- transcripts


PROMPT = kept(user("do it", promptSource="sdk"))
DONE = kept(says(line("All done."), stop="end_turn"))
TRAILER = kept({"type": "system", "subtype": "turn_duration"})
LAST = {"type": "last-prompt", "sessionId": "s1"}


def test_a_transcript_without_result_ends_with_the_last_finished_reply() -> None:
    assert shapes(PROMPT, kept(says(CALL)), kept(answer()), DONE, TRAILER, LAST) == [
        Started,
        Prompt,
        ToolCall,
        ToolResult,
        Reply,
        Ended,
    ]


def test_the_time_of_the_end_is_that_of_its_record() -> None:
    assert end(PROMPT, DONE, LAST).at == 1794766483.231


@pytest.mark.parametrize(
    "follows",
    [
        user("Stop hook feedback:\ngo on", isMeta=True),
        {"type": "attachment", "attachment": {"type": "hook_blocking_error", "hookEvent": "Stop"}},
        says(CALL, stop="tool_use"),
        answer(),
    ],
)
def test_an_end_of_turn_after_which_work_continued_is_not_an_end(follows: JSON) -> None:
    assert Ended not in shapes(PROMPT, DONE, kept(follows))


def test_a_reply_cut_before_a_tool_answered_is_not_an_end() -> None:
    assert Ended not in shapes(PROMPT, kept(says(line("Running it."), stop="tool_use")))


def test_the_stream_needs_a_result_to_end() -> None:
    assert shapes(says(line("a"), stop="end_turn")) == [Reply]


def test_a_new_prompt_after_the_end_is_an_unfinished_turn() -> None:
    assert shapes(PROMPT, DONE, PROMPT)[-2:] == [Ended, Prompt]


def test_the_interruption_marker_is_the_users_exit() -> None:
    marker = kept(user([line("[Request interrupted by user for tool use]")]))
    rejected = kept(answer(toolDenialKind="user-rejected"))
    *_, denied, ended = read(PROMPT, kept(says(CALL)), rejected, marker)
    assert isinstance(denied, ToolResult)
    assert denied.denied
    assert isinstance(ended, Ended)
    assert (ended.ok, ended.reason) == (False, StopReason.USER_EXIT)


def test_a_manual_compact_after_the_end_leaves_it_an_end() -> None:
    boundary = kept({"type": "system", "subtype": "compact_boundary"})
    summary = kept(user("This session is being continued", isCompactSummary=True))
    caveat = kept(user("<local-command-caveat>…", isMeta=True))
    command = kept(user("<command-name>/compact</command-name>"))
    assert end(PROMPT, DONE, boundary, summary, caveat, command).ok


def test_exit_typed_after_the_end_leaves_it_and_before_any_is_the_users() -> None:
    command = kept(user("<command-name>/exit</command-name>"))
    assert end(PROMPT, DONE, command).ok
    assert end(command).reason is StopReason.USER_EXIT


def test_max_turns_and_a_stopping_hook_are_reported_by_attachments() -> None:
    turns = kept({"type": "attachment", "attachment": {"type": "max_turns_reached"}})
    stopped = {"type": "hook_stopped_continuation", "hookEvent": "PostToolUse"}
    hook = kept({"type": "attachment", "attachment": stopped})
    assert end(PROMPT, turns).reason is StopReason.MAX_TURNS
    assert end(PROMPT, hook).reason is StopReason.USER_EXIT


def test_a_resumed_file_does_not_keep_the_first_turns_error() -> None:
    failed = kept(synthetic(TOO_LONG, error="invalid_request"))
    assert shapes(PROMPT, failed, PROMPT, DONE)[-3:] == [Prompt, Reply, Ended]


# -- what waits for the user


def test_an_unanswered_permission_request_needs_the_user() -> None:
    request = {"subtype": "can_use_tool", "tool_name": "Bash"}
    (asked,) = read({"type": "control_request", "request": request})
    assert isinstance(asked, Failure)
    assert asked.reason is StopReason.NEEDS_USER


def test_a_denied_tool_is_reported_by_the_streams_meta_data() -> None:
    meta = [{"id": "toolu_1", "non_execution_kind": "permission-denied"}]
    accepted = [{"id": "toolu_1", "permission_decision": {"decision": "accept"}}]
    assert read(answer(tool_result_meta=meta), answer(tool_result_meta=accepted)) == [
        ToolResult(call_id="toolu_1", denied=True),
        ToolResult(call_id="toolu_1"),
    ]


# -- hook input


def test_a_stop_failure_tells_code_and_message() -> None:
    short = {"session_id": "s4", "error_type": "rate_limit", "error": "Retry in 156s."}
    full = {"session_id": "s", "hook_event_name": "StopFailure", "error": "billing_error"}
    told = {"last_assistant_message": "Credit balance is too low"}
    bare = {"session_id": "s5", "error": "API Error: Response stalled mid-stream"}
    limit, bill = StopReason.RATE_LIMIT, StopReason.BILLING
    assert read(short, {**full, **told}, bare) == [
        Failure(message="Retry in 156s.", reason=limit, code="rate_limit"),
        Failure(message="Credit balance is too low", reason=bill, code="billing_error"),
        Failure(message="API Error: Response stalled mid-stream"),
    ]
    assert all(map(claude.knows, (short, {**full, **told}, bare)))


def test_a_sub_agents_stop_failure_is_left_out() -> None:
    hook = {"session_id": "s", "hook_event_name": "StopFailure", "error": "rate_limit"}
    assert read({**hook, "agent_id": "a1"}) == []


# -- anything


def test_unknown_records_are_counted_and_known_ones_are_not() -> None:
    odd = {"type": "novelty"}, {"type": "system", "subtype": "novelty"}, {"foo": 1}
    assert [type(e) for e in read(*odd)] == [Other] * 3
    assert read({"type": "atis-latch"}, {"type": "system", "subtype": "turn_duration"}) == []


def test_records_of_qwen_are_not_taken_for_claudes() -> None:
    assert claude.knows(result(total_cost_usd=0.1, permission_denials=[]))
    assert not claude.knows(result(uuid="u", session_id="s", permission_denials=[], usage={}))
    assert not claude.knows({**INIT, "qwen_code_version": "0.24.4"})
    assert claude.knows(says(line("a")))
    assert claude.knows(PROMPT)
