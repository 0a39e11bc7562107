"""pi's records, trimmed from real runs of 0.73.1 and 0.87.1."""

from itertools import count
from typing import Any

import pytest
from conftest import bare

from segue.agents.contracts.profile import Record
from segue.agents.pi.profile import knows, parse
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

MS = 1794768812035
AT = 1794768812.035
ISO = "2026-11-15T18:53:32.035Z"
SESSION = {"type": "session", "version": 3, "id": "s1", "timestamp": ISO, "cwd": "/p"}
START = {"type": "agent_start"}
SETTLED = {"type": "agent_settled"}
END = {"type": "agent_end", "messages": []}
OVERFLOW = (
    '400 {"type":"error","error":{"type":"invalid_request_error",'
    '"message":"prompt is too long: 210000 tokens > 200000 maximum"}}'
)
LIMIT = '429 {"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}'
OVERFLOWN: dict[str, Any] = {"message": OVERFLOW, "code": "invalid_request_error", "status": 400}


def message(role: str, words: str = "", **more: Any) -> dict[str, Any]:
    content = [{"type": "text", "text": words}] if words else []
    return {"role": role, "content": content, "timestamp": MS, **more}


def assistant(stop: str, words: str = "", tokens: int = 0, error: str = "") -> dict[str, Any]:
    usage = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": tokens}
    more = {"errorMessage": error} if error else {}
    return message("assistant", words, usage=usage, stopReason=stop, **more)


def end(inner: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message_end", "message": inner}


_ENTRIES = count()


def entry(inner: dict[str, Any]) -> dict[str, Any]:
    name = f"e{next(_ENTRIES)}"
    return {"type": "message", "id": name, "parentId": "p", "timestamp": ISO, "message": inner}


def calling() -> dict[str, Any]:
    said = assistant("toolUse", "I will run it.", 9030)
    said["content"].append({"type": "toolCall", "id": "c1", "name": "bash", "arguments": {}})
    return said


USER = message("user", "do the task")
RESULT = message("toolResult", "hello", toolCallId="c1", toolName="bash", isError=False)


def read(*records: dict[str, Any]) -> list[Event]:
    return bare(parse(Record(data, f"f:{n}") for n, data in enumerate(records, 1)))


def kinds(*records: dict[str, Any]) -> list[str]:
    return [type(e).__name__ for e in read(*records) if not isinstance(e, Other)]


def last(*records: dict[str, Any]) -> Event:
    return read(*records)[-1]


def test_a_good_run_is_reported_in_order_with_its_sizes() -> None:
    stop = assistant("stop", "Done.", 9112)
    assert read(SESSION, START, end(USER), end(calling()), end(RESULT), end(stop), END) == [
        Started(where="f:1", at=AT, session_id="s1", cwd="/p"),
        Started(where="f:2"),
        Prompt(where="f:3", at=AT, text="do the task"),
        Reply(where="f:4", at=AT, text="I will run it."),
        ToolCall(where="f:4", at=AT, name="bash", call_id="c1"),
        Usage(where="f:4", at=AT, used_tokens=9030),
        ToolResult(where="f:5", at=AT, call_id="c1", exit_code=0),
        Reply(where="f:6", at=AT, text="Done."),
        Usage(where="f:6", at=AT, used_tokens=9112),
        Ended(where="f:7", ok=True),
    ]


def test_the_session_file_tells_the_same_story_and_stop_is_its_end() -> None:
    stop = assistant("stop", "Done.", 9112)
    assert kinds(SESSION, entry(USER), entry(calling()), entry(RESULT), entry(stop)) == [
        *("Started", "Prompt", "Reply", "ToolCall", "Usage", "ToolResult"),
        *("Reply", "Usage", "Ended"),
    ]
    assert not any(isinstance(e, Ended) for e in read(SESSION, entry(USER), entry(calling())))


def test_the_cache_belongs_to_the_size() -> None:
    usage = {"input": 100, "output": 12, "cacheRead": 9000, "cacheWrite": 5}
    said = message("assistant", "Hi.", usage=usage, stopReason="stop")
    assert read(end(said))[-1] == Usage(where="f:1", at=AT, used_tokens=9117)


def test_agent_end_is_judged_by_the_last_stop_reason() -> None:
    failed = assistant("error", error=OVERFLOW)
    assert last(START, end(USER), end(failed), END) == Ended(where="f:4", **OVERFLOWN)


def test_an_errors_zero_usage_is_not_a_size() -> None:
    assert kinds(end(assistant("error", error=LIMIT))) == ["Failure"]


def test_partial_text_of_a_failed_reply_comes_before_the_failure() -> None:
    assert kinds(end(assistant("error", "Half", 9000, "terminated"))) == ["Reply", "Failure"]


@pytest.mark.parametrize(
    ("error", "code", "status", "reason"),
    [
        (LIMIT, "rate_limit_error", 429, StopReason.RATE_LIMIT),
        ('529 {"error":{"type":"overloaded_error"}}', "overloaded_error", 529, "overloaded"),
        ('503: {"type":"server_error","code":null}', "server_error", 503, "overloaded"),
        ('429: {"code":"insufficient_quota"}', "insufficient_quota", 429, StopReason.BILLING),
        ('401 {"error":{"type":"authentication_error"}}', "authentication_error", 401, "auth"),
        ('{"error":{"code":400,"status":"INVALID_ARGUMENT"}}', "INVALID_ARGUMENT", 400, None),
        (
            '400: {"type":"invalid_request_error","code":"context_length_exceeded"}',
            "context_length_exceeded",
            400,
            "context_exhausted",
        ),
        ("429 You exceeded your current quota", None, 429, None),
        ("Connection error.", None, None, None),
    ],
)
def test_codes_inside_the_message_are_read(
    error: str, code: str | None, status: int | None, reason: str | None
) -> None:
    failure = last(end(assistant("error", error=error)))
    assert isinstance(failure, Failure)
    assert failure.message == error
    assert (failure.code, failure.status, failure.reason) == (code, status, reason)


def test_a_retry_is_a_retry_and_a_good_end_follows_it() -> None:
    retry = {"type": "auto_retry_start", "attempt": 1, "delayMs": 2000, "errorMessage": LIMIT}
    done = {"type": "auto_retry_end", "success": True, "attempt": 1}
    stop = assistant("stop", "Done.", 9112)
    failed = end(assistant("error", error=LIMIT))
    events = read(START, end(USER), failed, END, retry, START, end(stop), done, END)
    assert Retry(where="f:5", message=LIMIT, status=429, wait_s=2.0) in events
    assert events[-1] == Ended(where="f:9", ok=True)


def test_an_agent_end_that_will_retry_is_not_an_end() -> None:
    events = read(START, end(assistant("error", error=LIMIT)), {**END, "willRetry": True})
    assert not any(isinstance(e, Ended) for e in events)


def test_the_last_retry_that_fails_is_a_failure() -> None:
    failed = {"type": "auto_retry_end", "success": False, "attempt": 3, "finalError": LIMIT}
    failure = last(failed)
    assert isinstance(failure, Failure)
    assert failure.reason is StopReason.RATE_LIMIT


def test_compaction_that_started_and_was_never_heard_of_again_stays_the_last_event() -> None:
    start = {"type": "compaction_start", "reason": "overflow"}
    assert read(START, end(USER), end(assistant("error", error=OVERFLOW)), END, start)[-2:] == [
        Ended(where="f:4", **OVERFLOWN),
        Compaction(where="f:5", phase="started"),
    ]


def test_after_a_compaction_the_run_continues_and_settles_well() -> None:
    start = {"type": "compaction_start", "reason": "overflow"}
    done = {"type": "compaction_end", "reason": "overflow", "aborted": False, "willRetry": True}
    done["result"] = {"summary": "s", "tokensBefore": 6449, "estimatedTokensAfter": 3938}
    failed, stop = end(assistant("error", error=OVERFLOW)), end(assistant("stop", "Done.", 30012))
    assert read(START, failed, END, start, done, START, stop, END, SETTLED)[3:] == [
        Compaction(where="f:4", phase="started"),
        Compaction(where="f:5", phase="done", used_tokens=3938),
        Started(where="f:6"),
        Reply(where="f:7", at=AT, text="Done."),
        Usage(where="f:7", at=AT, used_tokens=30012),
        Ended(where="f:8", ok=True),
        Ended(where="f:9", ok=True),
    ]
    done["willRetry"] = False
    for stops, ends in (("stop", True), ("toolUse", False)):
        events = read(START, end(assistant(stops, "Step 3.", 30012)), done)
        (last,) = (event for event in events if isinstance(event, Compaction))
        assert last.ends_turn is ends


def test_a_compaction_that_failed_says_so_and_the_run_settles_badly() -> None:
    message = "Context overflow recovery failed after one compact-and-retry attempt."
    failed = {"type": "compaction_end", "reason": "overflow", "errorMessage": message}
    assert read(START, end(assistant("error", error=OVERFLOW)), failed, SETTLED)[-2:] == [
        Compaction(where="f:3", phase="failed", message=message),
        Ended(where="f:4", **OVERFLOWN),
    ]


def test_a_failed_compaction_between_turns_is_the_ends_message() -> None:
    failed = {"type": "compaction_end", "reason": "threshold", "errorMessage": "no room"}
    assert last(START, end(calling()), failed, SETTLED) == Ended(
        where="f:4", code="toolUse", message="no room"
    )


def test_a_manual_compaction_after_the_run_is_not_part_of_its_end() -> None:
    start = {"type": "compaction_start", "reason": "manual"}
    failed = {"type": "compaction_end", "reason": "manual", "errorMessage": "Nothing to compact"}
    assert kinds(end(assistant("stop", "Hi.")), END, start, failed) == ["Reply", "Ended"]


def test_a_compaction_entry_is_a_finished_one_of_unknown_size() -> None:
    compaction = {"type": "compaction", "id": "e", "parentId": "p", "timestamp": ISO}
    assert last({**compaction, "tokensBefore": 160000}) == Compaction(
        where="f:1", at=AT, phase="done", ends_turn=True
    )


def test_a_failure_in_the_session_file_is_not_an_end_because_a_retry_may_follow() -> None:
    stop = assistant("stop", "Done.", 9112)
    assert kinds(entry(USER), entry(assistant("error", error=LIMIT)), entry(stop)) == [
        *("Prompt", "Failure", "Reply", "Usage", "Ended")
    ]


@pytest.mark.parametrize(
    ("stop", "error"),
    [
        ("aborted", "Request was aborted."),  # 0.73
        ("error", "This operation was aborted"),  # 0.87
    ],
)
def test_an_abort_is_the_users_doing_in_both_versions(stop: str, error: str) -> None:
    said = assistant(stop, error=error)
    expected: dict[str, Any] = {"message": error, "reason": StopReason.USER_EXIT, "code": "aborted"}
    assert last(START, end(said), END) == Ended(where="f:3", **expected)
    assert last(entry(said)) == Ended(where="f:1", at=AT, **expected)


def test_half_an_answer_is_not_a_good_end() -> None:
    assert last(end(assistant("length", "half an ans", 9112)), END) == Ended(
        where="f:2", code="length"
    )


def test_turn_end_repeats_a_message_but_tells_it_if_the_input_begins_there() -> None:
    turn = {"type": "turn_end", "message": assistant("error", error=LIMIT), "toolResults": []}
    assert kinds(turn) == ["Failure"]
    assert kinds(end(assistant("error", error=LIMIT)), turn) == ["Failure"]


def test_agent_end_tells_its_last_message_if_the_input_begins_there() -> None:
    whole = {"type": "agent_end", "messages": [USER, assistant("stop", "Done.", 9112)]}
    assert kinds(whole) == ["Reply", "Usage", "Ended"]


def test_an_end_without_any_reply_says_nothing() -> None:
    assert kinds(SETTLED) == []


def test_rpc_states_tell_the_window() -> None:
    state = {"type": "response", "command": "get_state", "success": True}
    state["data"] = {"model": {"contextWindow": 200000}}
    stats = {"type": "response", "command": "get_session_stats", "success": True}
    stats["data"] = {"contextUsage": {"tokens": 9112, "contextWindow": 200000}}
    assert read(state, end(assistant("stop", "", 9000)), stats)[1:] == [
        Usage(where="f:2", at=AT, used_tokens=9000, window_tokens=200000),
        Usage(where="f:3", used_tokens=9112, window_tokens=200000),
    ]


def test_a_refused_prompt_is_a_failure_and_a_refused_compact_is_not() -> None:
    refused = {"type": "response", "success": False, "error": "No API key found"}
    assert last({**refused, "command": "prompt"}) == Failure(
        where="f:1", message="No API key found"
    )
    assert kinds({**refused, "command": "compact"}) == []


def test_text_of_tool_results_is_reported_as_what_was_printed_and_nowhere_else() -> None:
    assert "hello" not in repr(read(end(RESULT), entry(RESULT)))


def test_unknown_records_are_counted_and_known_ones_are_not() -> None:
    assert last({"type": "brand_new"}) == Other(where="f:1", kind="brand_new", known=False)
    assert last({"type": "message_update"}) == Other(where="f:1", kind="message_update")


def test_its_own_records_are_recognised_and_others_are_not() -> None:
    assert all(knows(r) for r in (SESSION, START, SETTLED, END, end(USER), entry(USER)))
    others: tuple[dict[str, Any], ...] = (
        {},
        {"type": "session", "id": "x"},
        {"type": "message", "role": "user", "content": "x", "timestamp": ISO},
        {"type": "agent_start", "agent": "other"},
        {"type": ["session"]},
    )
    assert not any(knows(record) for record in others)
