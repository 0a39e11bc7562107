"""opencode: each trap that was measured, on records trimmed from real runs."""

import json
from typing import Any

import pytest
from conftest import bare

from segue.agents.contracts.profile import Record
from segue.agents.opencode.profile import knows, parse
from segue.core.handoffs.digest import Arrival, Builder
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

LONG = "This model's maximum context length is 20000 tokens."
OVERFLOW = {"name": "ContextOverflowError", "data": {"message": LONG}}
FULL = Failure(message=LONG, reason=StopReason.CONTEXT_EXHAUSTED, code="ContextOverflowError")
REJECTED = "The user rejected permission to use this specific tool call."


def events(*records: dict[str, Any]) -> list[Event]:
    """All but the note that the session begins."""
    found = bare(parse(Record(r) for r in records))
    return [e for e in found if not isinstance(e, Started)]


def line(kind: str, message: str = "msg_1", **part: Any) -> dict[str, Any]:
    name = {"tool_use": "tool"}.get(kind, kind.replace("_", "-"))
    part = {"type": name, "messageID": message, **part}
    return {"type": kind, "sessionID": "ses_1", "part": part}


def finish(reason: str, total: int = 0, message: str = "msg_1") -> dict[str, Any]:
    cache = {"read": 0, "write": 0}
    tokens: dict[str, Any] = {"input": total, "output": 0, "reasoning": 0, "cache": cache}
    if total:
        tokens["total"] = total
    return line("step_finish", message, reason=reason, tokens=tokens)


def error(error: dict[str, Any]) -> dict[str, Any]:
    return {"type": "error", "sessionID": "ses_1", "error": error}


def tool(**state: Any) -> dict[str, Any]:
    return line("tool_use", tool="bash", callID="call_1", state=state)


def go_on(message: str = "msg_3") -> dict[str, Any]:
    return line("text", message, text="Continue…", metadata={"compaction_continue": True})


def test_last_step_that_stopped_ends_the_run_well() -> None:
    found = parse(
        Record(r)
        for r in (
            {**line("step_start"), "timestamp": 1794766921988},
            line("text", text="I will look."),
            tool(status="completed", output="rate limit"),
            finish("tool-calls", 1030),
            line("step_start", "msg_2"),
            line("text", "msg_2", text="Done."),
            finish("stop", 1220, "msg_2"),
        )
    )
    assert bare(found) == [
        Started(session_id="ses_1", at=1794766921.988),
        Reply(text="I will look."),
        ToolCall(name="bash", call_id="call_1"),
        ToolResult(call_id="call_1"),
        Usage(used_tokens=1030),
        Reply(text="Done."),
        Usage(used_tokens=1220),
        Ended(ok=True),
    ]


def test_size_without_a_total_is_the_sum_of_the_parts() -> None:
    tokens = {"input": 600, "output": 20, "reasoning": 10, "cache": {"read": 400, "write": 5}}
    assert events(line("step_finish", reason="tool-calls", tokens=tokens)) == [
        Usage(used_tokens=1035)
    ]


def test_summary_step_of_a_compaction_is_not_an_end_and_no_size() -> None:
    assert events(
        finish("tool-calls", 17030),
        line("step_start", "msg_2"),
        line("text", "msg_2", text="## Goal"),
        finish("stop", 6150, "msg_2"),
        go_on(),
    ) == [Usage(used_tokens=17030), Compaction(phase="done")]


def test_overflow_that_was_compacted_and_finished_ends_well() -> None:
    assert events(
        error(OVERFLOW),
        line("step_start"),
        line("text", text="## Goal"),
        finish("stop", 6150),
        go_on(),
        line("step_start", "msg_4"),
        line("text", "msg_4", text="Done."),
        finish("stop", 1220, "msg_4"),
    ) == [
        FULL,
        Compaction(phase="started"),
        Compaction(phase="done"),
        Reply(text="Done."),
        Usage(used_tokens=1220),
        Ended(ok=True),
    ]


def test_run_cut_after_the_summary_of_an_overflow_did_not_end_well() -> None:
    assert events(error(OVERFLOW), line("step_start"), finish("stop", 6150)) == [
        FULL,
        Compaction(phase="started"),
        Compaction(phase="done"),
    ]


def test_overflow_again_after_the_compaction_is_the_last_word() -> None:
    assert (
        events(error(OVERFLOW), line("step_start"), finish("stop", 6150), go_on(), error(OVERFLOW))[
            -1
        ]
        == FULL
    )


def test_rejected_permission_with_nothing_after_needs_the_user() -> None:
    assert events(tool(status="error", error=REJECTED), finish("tool-calls", 1030)) == [
        ToolCall(name="bash", call_id="call_1"),
        ToolResult(call_id="call_1", denied=True, failed=True),
        Usage(used_tokens=1030),
        Ended(reason=StopReason.NEEDS_USER, code="permission rejected"),
    ]


def test_rejected_permission_after_which_the_model_answered_is_completed() -> None:
    found = events(
        tool(status="error", error=REJECTED),
        finish("tool-calls", 1030),
        line("step_start", "msg_2"),
        finish("stop", 1220, "msg_2"),
    )
    assert [e for e in found if isinstance(e, Ended)] == [Ended(ok=True)]


def test_denying_rule_is_denied_but_no_end() -> None:
    denied = "The user has specified a rule which prevents you from using this specific tool call."
    found = events(tool(status="error", error=denied), finish("tool-calls"))
    assert found[1:] == [ToolResult(call_id="call_1", denied=True, failed=True)]


def test_failing_tool_is_not_denied() -> None:
    assert events(tool(status="error", error="exit 1"))[1:] == [
        ToolResult(call_id="call_1", failed=True)
    ]


def test_shell_that_was_ended_half_way_is_not_done_and_no_later_repeat_of_it_counts() -> None:
    """It is told as completed, with an exit code of null."""
    command, said = "sh deploy", "(no output)\n\n<shell_metadata>\nUser aborted the command\n"
    cut = {"status": "completed", "input": {"command": command}, "output": said}
    old = events(tool(**cut, metadata={"exit": None}))
    assert [e.failed for e in old if isinstance(e, ToolResult)] == [True]
    builder = Builder()
    for event in old:
        builder.feed(event)
    arrival = Arrival(builder.digest())
    for event in events(tool(**cut, metadata={"exit": 0})):
        arrival.feed(event)
    assert (arrival.repeats.actions, arrival.repeats.commands) == (1, 0)


def test_reply_that_broke_off_is_a_retry_without_a_size() -> None:
    assert events(line("text", text="partial"), finish("unknown")) == [
        Reply(text="partial"),
        Retry(message="the reply broke off"),
    ]


@pytest.mark.parametrize(
    ("finished", "reason"),
    [("length", StopReason.ERROR), ("content-filter", StopReason.REFUSAL), ("other", None)],
)
def test_other_finishes_end_the_turn_badly(finished: str, reason: StopReason | None) -> None:
    assert events(finish(finished)) == [Ended(reason=reason, code=finished)]


def test_api_error_gives_status_and_wait_and_the_codes_of_the_answer() -> None:
    body = json.dumps({"error": {"code": "insufficient_quota", "type": "insufficient_quota"}})
    data = {"message": "You exceeded your current quota.", "statusCode": 429}
    more = {"responseBody": body, "responseHeaders": {"retry-after-ms": "300"}}
    plain = {"message": "boom", "statusCode": 500, "responseHeaders": {"retry-after": "7"}}
    assert events(
        error({"name": "APIError", "data": {**data, **more}}),
        error({"name": "APIError", "data": plain}),
    ) == [
        Failure(
            message="You exceeded your current quota.",
            reason=StopReason.BILLING,
            code="insufficient_quota",
            status=429,
            retry_after_s=0.3,
        ),
        Failure(message="boom", code="APIError", status=500, retry_after_s=7.0),
    ]


def row(table: str, ident: str, at: int, message: str | None = None, **data: Any) -> dict[str, Any]:
    columns = {"table": table, "id": ident, "session_id": "ses_1", "time_created": at}
    return {**columns, "message_id": message, "data": data}


def untimed(found: list[Event]) -> list[Event]:
    return [type(e)(**{k: v for k, v in _fields(e).items() if k != "at"}) for e in found]


def _fields(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


ROWS = [
    row("message", "msg_1", 1, role="user"),
    row("message", "msg_2", 2, role="assistant", mode="build", time={"completed": 3}, finish="x"),
    row("message", "msg_3", 4, role="user"),
    row(
        "message",
        "msg_4",
        5,
        role="assistant",
        mode="compaction",
        summary=True,
        time={"completed": 6},
        finish="stop",
    ),
    row("message", "msg_5", 7, role="user"),
    row("message", "msg_6", 8, role="assistant", mode="build", time={"completed": 9}),
    row("part", "p1", 1, "msg_1", type="text", text="say hi"),
    row("part", "p2", 2, "msg_2", type="text", text="I will look."),
    row("part", "p3", 3, "msg_2", type="step-finish", reason="tool-calls", tokens={"total": 17030}),
    row("part", "p4", 4, "msg_3", type="compaction", auto=True),
    row("part", "p5", 5, "msg_4", type="text", text="## Goal"),
    row("part", "p6", 6, "msg_4", type="step-finish", reason="stop", tokens={"total": 6150}),
    row(
        "part",
        "p7",
        7,
        "msg_5",
        type="text",
        synthetic=True,
        text="Continue",
        metadata={"compaction_continue": True},
    ),
    row("part", "p8", 8, "msg_6", type="text", text="Done."),
    row("part", "p9", 9, "msg_6", type="step-finish", reason="stop", tokens={"total": 1220}),
    {"table": "session", "id": "ses_1", "parent_id": None, "time_created": 1},
]
STORY = [
    Prompt(text="say hi"),
    Reply(text="I will look."),
    Usage(used_tokens=17030),
    Compaction(phase="started"),
    Compaction(phase="done"),
    Reply(text="Done."),
    Usage(used_tokens=1220),
    Ended(ok=True),
]


def test_rows_come_table_by_table_and_are_reported_in_order() -> None:
    assert untimed(events(*ROWS)) == STORY


def test_messages_are_put_in_order_and_a_fork_with_old_copies_comes_last() -> None:
    assert untimed(events(*reversed(ROWS[:6]), *ROWS[6:])) == STORY
    done = {"role": "assistant", "finish": "stop", "tokens": {"total": 5}}
    new = {**row("message", "msg_9", 10, None, **done, time={"completed": 11}), "session_id": "f"}
    copy = {**row("message", "msg_8", 1, None, **done, time={"completed": 2}), "session_id": "f"}
    assert untimed(events(new, copy, *ROWS)) == [
        *STORY,
        *[Usage(used_tokens=5), Ended(ok=True)] * 2,
    ]


def test_rows_may_hold_their_data_as_a_string_or_lack_the_table() -> None:
    strings = [{**r, "data": json.dumps(r["data"])} if "data" in r else r for r in ROWS]
    assert untimed(events(*strings)) == STORY
    bare = [{k: v for k, v in r.items() if k != "table"} for r in ROWS[:-1]]
    assert untimed(events(*bare)) == STORY


def test_export_and_answers_of_the_server_tell_the_same() -> None:
    messages = []
    for m in ROWS[:6]:
        info = {"id": m["id"], "sessionID": "ses_1", **m["data"]}
        info["time"] = {"created": m["time_created"], **info.get("time", {})}
        parts = [p["data"] for p in ROWS[6:-1] if p["message_id"] == m["id"]]
        messages.append({"info": info, "parts": parts})
    assert untimed(events(*messages)) == STORY
    assert untimed(events({"info": {"id": "ses_1"}, "messages": messages})) == STORY


def test_messages_of_sub_agents_are_left_out() -> None:
    child = {"table": "session", "id": "ses_1", "parent_id": "ses_0", "time_created": 1}
    assert events(*ROWS[:-1], child) == []


def test_message_alone_tells_its_end_and_size() -> None:
    done = {"id": "msg_1", "role": "assistant", "time": {"created": 1, "completed": 2}}
    assert untimed(events({**done, "finish": "stop", "tokens": {"total": 9}})) == [
        Usage(used_tokens=9),
        Ended(ok=True),
    ]


def test_compaction_that_failed_says_so() -> None:
    info = {"id": "msg_1", "role": "assistant", "summary": True, "error": OVERFLOW}
    assert events(info) == [Compaction(phase="failed", message=LONG), FULL]


def test_compaction_the_user_asked_for_ends_its_turn() -> None:
    summary: dict[str, Any] = {"role": "assistant", "agent": "compaction", "finish": "stop"}
    assert untimed(
        events(
            row("message", "msg_1", 1, role="user"),
            row("part", "p1", 1, "msg_1", type="compaction", auto=False),
            row("message", "msg_2", 2, None, **summary, time={"completed": 2}),
        )
    ) == [Compaction(phase="started"), Compaction(phase="done"), Ended(ok=True)]


def test_overflow_of_an_older_turn_does_not_make_the_next_answer_a_summary() -> None:
    found = events(
        row("message", "msg_1", 1, role="assistant", error=OVERFLOW, finish="error"),
        row("message", "msg_2", 2, role="user"),
        row("message", "msg_3", 3, role="assistant", time={"completed": 4}, finish="stop"),
        row("part", "p1", 2, "msg_2", type="text", text="go on"),
        row("part", "p2", 3, "msg_3", type="step-start"),
        row("part", "p3", 4, "msg_3", type="step-finish", reason="stop"),
    )
    assert untimed(found)[1:] == [Prompt(text="go on"), Ended(ok=True)]


def test_killed_run_has_no_end_in_the_database() -> None:
    found = events(
        row("message", "msg_1", 1, role="assistant", time={"created": 1}),
        row("part", "p1", 1, "msg_1", type="tool", callID="c", tool="bash", state={}),
    )
    assert untimed(found) == [ToolCall(name="bash", call_id="c")]


def test_message_over_without_finish_or_error_was_given_up_while_retrying() -> None:
    assert untimed(events({"id": "msg_1", "role": "assistant", "time": {"completed": 2}})) == [
        Ended(reason=StopReason.USER_EXIT, code="no finish", may_continue=True)
    ]


def test_abort_is_the_users() -> None:
    aborted = {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
    assert events({"id": "msg_1", "role": "assistant", "error": aborted}) == [
        Failure(message="Aborted", reason=StopReason.USER_EXIT, code="MessageAbortedError")
    ]


def server(kind: str, **properties: Any) -> dict[str, Any]:
    return {"type": kind, "properties": {"sessionID": "ses_1", **properties}}


def test_server_events_repeat_messages_but_the_story_is_reported_once() -> None:
    user = {"id": "msg_1", "role": "user"}
    answer = {"id": "msg_2", "role": "assistant", "mode": "build", "time": {"completed": 5}}
    text = {"type": "text", "messageID": "msg_2", "text": "", "time": {"start": 1}}
    end = {"type": "step-finish", "messageID": "msg_2", "reason": "stop", "tokens": {"total": 9}}
    assert events(
        server("message.updated", info=user),
        server("message.part.updated", part={**text, "messageID": "msg_1", "text": "say hi"}),
        server("message.part.updated", part=text),
        server("message.part.updated", part={**text, "text": "Hi.", "time": {"end": 2}}),
        server("message.part.updated", part=end),
        server("message.updated", info={**answer, "finish": "stop"}),
        server("message.updated", info={**answer, "finish": "stop"}),
        server("message.updated", info={**user, "summary": {"diffs": []}}),
        server("session.idle"),
    ) == [Prompt(text="say hi"), Reply(text="Hi."), Usage(used_tokens=9), Ended(ok=True)]


def test_server_events_that_repeat_a_prompt_or_an_error_tell_it_once() -> None:
    asked = {"type": "text", "messageID": "msg_1", "text": "say hi"}
    broken = {"id": "msg_2", "role": "assistant", "error": OVERFLOW}
    assert events(
        server("message.updated", info={"id": "msg_1", "role": "user"}),
        server("message.part.updated", part=asked),
        server("message.part.updated", part=asked),
        server("message.updated", info=broken),
        server("message.updated", info=broken),
    ) == [Prompt(text="say hi"), FULL]


def test_server_tells_of_retries_and_until_when() -> None:
    part = {"type": "step-start", "messageID": "msg_1"}
    status = {"type": "retry", "attempt": 1, "message": "Rate limit.", "next": 1794767929000}
    found = events(
        server("message.part.updated", part=part, time=1794767329000),
        server("session.status", status=status),
    )
    assert found == [Retry(message="Rate limit.", wait_s=600.0)]


def test_server_events_of_sub_agents_are_left_out() -> None:
    assert (
        events(
            server("session.created", info={"id": "ses_1", "parentID": "ses_0"}),
            server("session.error", error=OVERFLOW),
        )
        == []
    )


def test_permission_that_is_awaited_needs_the_user() -> None:
    assert events(server("permission.asked")) == [
        Failure(reason=StopReason.NEEDS_USER, code="permission.asked")
    ]


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_call_that_ends_while_its_permission_is_awaited_was_not_allowed(
    is_answered: bool,
) -> None:
    asked = server("permission.asked", id="per_1", permission="bash", tool={"callID": "c1"})
    replied = [server("permission.replied", requestID="per_1")] if is_answered else []
    state = {"status": "error", "input": {"command": "ls"}, "error": "Tool execution aborted"}
    part = {"type": "tool", "tool": "bash", "callID": "c1", "state": state}
    found = events(asked, *replied, server("message.part.updated", part=part))
    (result,) = [event for event in found if isinstance(event, ToolResult)]
    assert (result.failed, result.denied) == (True, not is_answered)


def test_unknown_kinds_pass_as_unknown() -> None:
    assert events({"type": "novelty"}, line("text", type="hologram")) == [
        Other(kind="novelty", known=False),
        Other(kind="part hologram", known=False),
    ]


def test_knows_its_own_records_and_no_others() -> None:
    assert knows(finish("stop"))
    assert knows(error(OVERFLOW))
    assert knows(server("session.idle"))
    assert all(knows(r) for r in ROWS)
    assert knows({"info": {"id": "msg_1", "role": "user"}, "parts": []})
    assert knows({"info": {"id": "ses_1"}, "messages": []})
    assert not knows({"type": "error", "message": "boom"})
    assert not knows({"type": "text", "text": "hi"})
    assert not knows({"role": "assistant", "content": "hi"})
    assert not knows({})


@pytest.mark.parametrize("is_part_first", [True, False])
def test_a_compaction_is_reported_once_by_its_message_and_its_last_part(
    is_part_first: bool,
) -> None:
    said = {"id": "msg_5", "role": "assistant", "mode": "compaction", "summary": True}
    over = {**said, "finish": "stop", "time": {"created": 1, "completed": 2}}
    part = {"type": "step-finish", "reason": "stop", "messageID": "msg_5"}
    ends = [server("message.part.updated", part=part), server("message.updated", info=over)]
    records = [server("message.updated", info=said), *(ends if is_part_first else ends[::-1])]
    found = events(*records, server("message.updated", info=over))
    assert [e.phase for e in found if isinstance(e, Compaction)] == ["done"]
