"""Kimi Code's records, trimmed from a published stream."""

from typing import Any

from conftest import bare

from segue.agents.contracts.profile import Record
from segue.agents.kimi.profile import knows, parse
from segue.core.stops.events import Ended, Event, Other, Reply, ToolCall, ToolResult

CALL = {"type": "function", "id": "Bash_0", "function": {"name": "Bash", "arguments": "{}"}}
WORKING = {"role": "assistant", "content": "I will.", "tool_calls": [CALL]}
OUTPUT = {"role": "tool", "tool_call_id": "Bash_0", "content": "secret"}
ANSWER = {"role": "assistant", "content": "Done."}
HINT = {"role": "meta", "type": "session.resume_hint", "session_id": "s1", "command": "kimi -r s1"}


def read(*records: dict[str, Any]) -> list[Event]:
    return bare(parse(Record(data, f"f:{n}") for n, data in enumerate(records, 1)))


def test_a_hint_after_an_answer_is_a_good_end() -> None:
    assert read(WORKING, OUTPUT, ANSWER, HINT) == [
        Reply(where="f:1", text="I will."),
        ToolCall(where="f:1", name="Bash", call_id="Bash_0"),
        ToolResult(where="f:2", call_id="Bash_0"),
        Reply(where="f:3", text="Done."),
        Ended(where="f:4", ok=True),
    ]


def test_a_hint_in_the_middle_of_the_work_proves_nothing() -> None:
    for before in ((), (WORKING,), (WORKING, OUTPUT)):
        assert read(*before, HINT)[-1] == Other(where=f"f:{len(before) + 1}", kind="resume_hint")


def test_only_the_hint_is_surely_its_own() -> None:
    assert knows(HINT)
    assert not any(knows(r) for r in (ANSWER, OUTPUT, {}, {"role": "meta"}))
