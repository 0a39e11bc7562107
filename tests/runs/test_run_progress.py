"""What counts as progress, through `segue run`: agents that crash again and again, and have or have
not closed a todo meanwhile."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.running import stage
from support.runs.progress import CLAUDE_END, SESSION, play, result

TASKS = ("parse the file", "print a table", "write the docs", "release it")


def states(done: int) -> list[str]:
    return ["completed" if at < done else "pending" for at in range(len(TASKS))]


def claude_lists(done: int) -> list[Any]:
    """A leg of claude's in which the todo before this one is closed."""
    todos = [
        {"content": said, "status": state, "activeForm": said}
        for said, state in zip(TASKS, states(done), strict=True)
    ]
    return claude(*tool(f"t{done}", "TodoWrite", {"todos": todos}))


def claude_tasks(done: int) -> list[Any]:
    """The same with single tasks, which the first leg makes."""
    records: list[Any] = []
    for number, said in enumerate(TASKS if not done else (), 1):
        records += tool(f"c{number}", "TaskCreate", {"subject": said, "description": said})
        records += [result(f"c{number}", f"Task #{number} created successfully: {said}")]
    change = {"taskId": str(max(1, done)), "status": "completed" if done else "in_progress"}
    return claude(*records, *tool(f"u{done}", "TaskUpdate", change))


def tool(call: str, name: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": call, "name": name, "input": given}
    usage = {"input_tokens": 900, "output_tokens": 9}
    message = {"id": call, "role": "assistant", "model": "claude-opus-4", "content": [block]}
    return [{"type": "assistant", "message": {**message, "usage": usage}}]


def claude(*records: Any) -> list[Any]:
    first = {"type": "system", "subtype": "init", "session_id": SESSION, "model": "claude-opus-4"}
    return [first, *records, "crash"]


def codex_plan(done: int) -> list[Any]:
    """codex tells a changed plan while the turn goes on, among other updates."""
    items = [
        {"text": said, "completed": state == "completed"}
        for said, state in zip(TASKS, states(done), strict=True)
    ]
    return [
        {"type": "thread.started", "thread_id": SESSION},
        {"type": "turn.started"},
        {"type": "item.updated", "item": {"id": "i0", "type": "todo_list", "items": items}},
        "crash",
    ]


CODEX_END = [
    {"type": "thread.started", "thread_id": SESSION},
    {"type": "turn.started"},
    {"type": "item.completed", "item": {"id": "i9", "type": "agent_message", "text": "all done"}},
    {"type": "turn.completed", "usage": {"input_tokens": 9, "output_tokens": 9}},
]

Leg = Callable[[int], list[Any]]


@pytest.mark.parametrize(
    ("like", "leg", "end"),
    [
        ("claude", claude_lists, CLAUDE_END),
        ("claude", claude_tasks, CLAUDE_END),
        ("codex", codex_plan, CODEX_END),
    ],
)
def test_a_leg_that_closed_a_todo_has_made_progress(
    tmp_path: Path, like: str, leg: Leg, end: list[Any]
) -> None:
    """Four legs that end alike: with nothing else changed, the third would end the run."""
    with stage("user-interrupt", within=tmp_path) as s:
        ended = play(s, like, [*(leg(done) for done in range(5)), end])
        assert ended.code == 0, ended.stderr
        assert ended.events[-1]["state"] == "done"


@pytest.mark.parametrize(
    ("like", "leg", "end"), [("claude", claude_lists, CLAUDE_END), ("codex", codex_plan, CODEX_END)]
)
def test_the_same_list_again_is_none(tmp_path: Path, like: str, leg: Leg, end: list[Any]) -> None:
    with stage("user-interrupt", within=tmp_path) as s:
        ended = play(s, like, [leg(0), leg(1), *(leg(1) for _ in range(5)), end])
        assert ended.code == 1, ended.stderr
        assert ended.events[-1]["decisions"][-1]["outcome"]["change"].startswith("same_failures")
