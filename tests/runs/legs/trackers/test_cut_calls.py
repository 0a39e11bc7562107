"""A command that was cut before its stream showed it may have run all the same."""

import pytest

from segue.core.stops.events import Event, Reply, ToolCall, ToolResult
from segue.runs.legs.trackers.activity import CutCall

CALL = ToolCall(name="exec_command", call_id="c1", command="sh job/step 5")
ABORTED = ToolResult(call_id="c1", failed=True)


@pytest.mark.parametrize(
    ("events", "command"),
    [
        ([CALL, ABORTED], "sh job/step 5"),  # as codex wrote it, with the step done
        ([CALL], "sh job/step 5"),
        ([CALL, ABORTED, Reply(text="It was stopped.")], None),
        ([CALL, ToolResult(call_id="c1", exit_code=0)], None),
        ([CALL, ToolResult(call_id="c1", exit_code=1, failed=True)], None),
        ([CALL, ToolResult(call_id="c1", failed=True, denied=True)], None),
        ([Reply(text="Step 5.")], None),
    ],
)
def test_a_command_without_an_outcome_is_in_doubt(events: list[Event], command: str | None) -> None:
    cut = CutCall()
    for event in events:
        cut.feed(event)
    assert cut.command == command
