"""Real runs that ended well, with something else put where a tool's output stood.

Whatever a tool prints, the run still ends well: the planted text may be any stop message.
"""

import json
from functools import cache
from typing import Any

from conftest import lines

from segue import api
from segue.agents.ending import Channel, Ending, Source
from segue.core.stops.text.wordings import Catalogue
from segue.core.stops.types import Stop
from segue.system.config import wordings

NOW = 1_773_144_000.0  # 2026-03-10 12:00 UTC

Run = dict[str, Any]  # one line of tests/data/recordings


@cache
def catalogue() -> Catalogue:
    """Our wordings, compiled once for a whole file of tests."""
    return wordings.load()


def judge(
    *sources: tuple[Channel, str], agent: str | None = None, exit_code: int | None = None
) -> Stop:
    """The verdict on some texts."""
    ending = Ending(
        sources=tuple(
            Source(text=text, channel=channel, name=channel) for channel, text in sources
        ),
        agent=agent,
        exit_code=exit_code,
    )
    return api.examine(ending, now=NOW, catalogue=catalogue()).stop


@cache
def recorded(agent: str, name: str) -> Run:
    """One recorded run."""
    return next(run for run in lines(f"recordings/{agent}.jsonl") if run["name"] == name)


def plant(records: str, output: str, planted: str) -> str:
    """JSON lines with each string that is a tool's `output`, or a report of it, changed."""
    changed = [
        json.dumps(_planted(json.loads(line), output, planted), ensure_ascii=False) if line else ""
        for line in records.split("\n")
    ]
    text = "\n".join(changed)
    assert text.count(json.dumps(planted, ensure_ascii=False)[1:-1]) > 0, "nothing was planted"
    return text


def _planted(value: Any, output: str, planted: str) -> Any:
    if isinstance(value, dict):
        return {key: _planted(item, output, planted) for key, item in value.items()}
    if isinstance(value, list):
        return [_planted(item, output, planted) for item in value]
    if value == output:
        return planted
    for before in ("Output:\n", "Output: "):  # codex's and gemini's reports of a command
        if isinstance(value, str) and f"{before}{output}" in value:
            return value.replace(f"{before}{output}", f"{before}{planted}")
    return value


# Where each agent's own stream holds what a tool printed: the run, and the output in it.
STREAMS = {
    "claude": ("a1-success-stream", "tool-ran"),
    "codex": ("a-success", "one\nREADME.md\n"),
    "opencode": ("a-success", "one\nREADME.md\n"),
    "gemini": ("c2-below", "hello"),
    "pi": ("a1-ant", "hello\n"),
}


def planted_run(agent: str, planted: str) -> Run:
    """The agent's run with `planted` as the output of its tool, in stream and session file."""
    name, output = STREAMS[agent]
    run = recorded(agent, name)
    return run | {
        part: plant(run[part], output, planted) for part in ("stdout", "transcript") if run[part]
    }


def qwen_run(planted: str) -> Run:
    """Qwen's recorded success used no tool: the call and its result, as another run of it has
    them, go before its answer."""
    run = recorded("qwen", "d1-429-once")
    first, goal, answer, result, end = run["stdout"].split("\n")
    said = json.loads(answer)
    session = {"session_id": said["session_id"], "parent_tool_use_id": None}
    given = {"command": "cat docs/*", "description": "run", "is_background": False}
    call = {"type": "tool_use", "id": "call_1", "name": "run_shell_command", "input": given}
    asked = said | {"message": said["message"] | {"content": [call], "stop_reason": "tool_use"}}
    output = {"type": "tool_result", "tool_use_id": "call_1", "is_error": False, "content": planted}
    got = {"type": "user", **session, "message": {"role": "user", "content": [output]}}
    tool = [json.dumps(record, ensure_ascii=False) for record in (asked, got)]
    return run | {"stdout": "\n".join([first, goal, *tool, answer, result, end])}
