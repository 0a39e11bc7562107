"""Each agent's own todo list, in each format in which it is written, is read into the same form."""

from typing import Any

import pytest

from segue import agents
from segue.agents.contracts.profile import Record
from segue.core.sessions.remarks import Todo
from segue.core.stops.events import TodoList

PLAN = [{"content": "one", "status": "completed"}, {"content": "two", "status": "pending"}]
EXPECTED = (Todo("one", "completed"), Todo("two", "pending"))


def claude_call(name: str, given: dict[str, Any]) -> dict[str, Any]:
    block = {"type": "tool_use", "id": "t", "name": name, "input": given}
    return {"type": "assistant", "message": {"id": "m", "content": [block]}}


def opencode_call(given: dict[str, Any]) -> dict[str, Any]:
    state = {"status": "completed", "input": given, "output": ""}
    part = {"id": "p", "messageID": "m", "sessionID": "s", "type": "tool", "callID": "c",
            "tool": "todowrite", "state": state}  # fmt: skip
    return {"type": "tool_use", "timestamp": 1_780_000_000_000, "sessionID": "s", "part": part}


def lists_of(agent: str, *data: dict[str, Any]) -> list[tuple[Todo, ...]]:
    profile = agents.find(agent)
    assert profile is not None
    events = profile.parse(iter([Record(each, "stdout:1") for each in data]))
    return [event.todos for event in events if isinstance(event, TodoList)]


ITEMS = [{"text": "one", "completed": True}, {"text": "two", "completed": False}]
STEPS = '{"plan":[{"step":"one","status":"completed"},{"step":"two","status":"pending"}]}'
DESCRIBED = [
    {"description": "one", "status": "completed"},
    {"description": "two", "status": "pending"},
]


@pytest.mark.parametrize(
    ("agent", "record"),
    [
        ("claude", claude_call("TodoWrite", {"todos": PLAN})),
        ("qwen", claude_call("todo_write", {"todos": PLAN})),
        ("codex", {"type": "item.started", "item": {"type": "todo_list", "items": ITEMS}}),
        ("codex", {"type": "item.updated", "item": {"type": "todo_list", "items": ITEMS}}),
        ("codex", {"type": "item.completed", "item": {"type": "todo_list", "items": ITEMS}}),
        (
            "codex",
            {
                "timestamp": "2026-11-15T20:30:00Z",
                "type": "response_item",
                "payload": {"type": "function_call", "name": "update_plan", "arguments": STEPS},
            },
        ),
        ("opencode", opencode_call({"todos": PLAN})),
        (
            "gemini",
            {
                "type": "tool_use",
                "tool_name": "write_todos",
                "tool_id": "w",
                "parameters": {"todos": DESCRIBED},
            },
        ),
        (
            "pi",
            {
                "type": "message_end",
                "message": {
                    "role": "assistant",
                    "content": [
                        {
                            "type": "toolCall",
                            "id": "c",
                            "name": "todo",
                            "arguments": {"items": ITEMS},
                        }
                    ],
                },
            },
        ),
    ],
)
def test_a_todo_list_is_an_event(agent: str, record: dict[str, Any]) -> None:
    assert lists_of(agent, record) == [EXPECTED]


def test_a_list_of_something_else_is_not_a_todo_list() -> None:
    issues = claude_call("mcp__github__search", {"items": PLAN})
    child = {**claude_call("TodoWrite", {"todos": PLAN}), "parent_tool_use_id": "t0"}
    assert lists_of("claude", issues, child) == []


def test_tasks_of_a_resumed_session_are_told_apart_by_their_number() -> None:
    first = {"type": "system", "subtype": "init", "session_id": "s1"}
    done = claude_call("TaskUpdate", {"taskId": "3", "status": "completed"})
    (told,) = lists_of("claude", first, done)
    assert [todo.status for todo in told] == ["pending", "completed"]
    assert {todo.text for todo in told} == {"task 3 of s1"}
