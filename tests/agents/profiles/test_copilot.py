"""Copilot CLI's records, trimmed from a published stream."""

from typing import Any

from conftest import bare

from segue.agents.contracts.profile import Record
from segue.agents.copilot.profile import knows, parse
from segue.core.stops.events import Ended, Event, Other, Prompt, Reply, ToolCall, ToolResult

T = "2026-05-22T00:33:27.300Z"
AT = 1779410007.3


def record(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data, "id": "b1", "timestamp": T}


def result(code: int) -> dict[str, Any]:
    return {"type": "result", "timestamp": T, "sessionId": "s1", "exitCode": code, "usage": {}}


COMPLETE = record("session.task_complete", summary="Delivered.", success=True)
TURN_END = record("assistant.turn_end", turnId="0")


def read(*records: dict[str, Any]) -> list[Event]:
    return bare(parse(Record(data, f"f:{n}") for n, data in enumerate(records, 1)))


def test_a_completed_task_and_exit_code_0_are_a_good_end() -> None:
    assert read(COMPLETE, TURN_END, result(0)) == [
        Ended(where="f:1", at=AT, ok=True),
        Other(where="f:2", at=AT, kind="assistant.turn_end"),
        Ended(where="f:3", at=AT, ok=True),
    ]


def test_another_exit_code_is_not() -> None:
    assert read(result(1)) == [Ended(where="f:1", at=AT)]


def test_a_task_that_the_agent_calls_unsuccessful_stays_so_with_exit_code_0() -> None:
    failed = record("session.task_complete", success=False)
    assert read(failed, result(0))[-1] == Ended(where="f:2", at=AT)


def test_the_end_of_a_models_round_is_not_an_end() -> None:
    assert not any(isinstance(e, Ended) for e in read(TURN_END))


def test_prompts_replies_and_tools_are_reported_and_autopilot_is_not_the_user() -> None:
    call = {"toolCallId": "c1", "name": "bash"}
    assert read(
        record("user.message", content="do the task"),
        record("assistant.message", content="I will.", toolRequests=[call]),
        record("tool.execution_complete", toolCallId="c1", result={"content": "secret"}),
        record("user.message", content="", isAutopilotContinuation=True),
    ) == [
        Prompt(where="f:1", at=AT, text="do the task"),
        Reply(where="f:2", at=AT, text="I will."),
        ToolCall(where="f:2", at=AT, name="bash", call_id="c1"),
        ToolResult(where="f:3", at=AT, call_id="c1"),
        Other(where="f:4", at=AT, kind="user.message"),
    ]


def test_its_own_records_are_recognised_and_others_are_not() -> None:
    assert all(knows(r) for r in (COMPLETE, TURN_END, result(0)))
    assert not any(knows(r) for r in ({}, {"type": "result"}, {"type": "session.created"}))
