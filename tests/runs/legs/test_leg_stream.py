"""A leg's stream is parsed once, with the same result as reading its whole text."""

from pathlib import Path
from typing import Any

import pytest
from conftest import lines

from segue import agents, api
from segue.agents.ending import Channel, Ending, Source
from segue.core.policy import Policy
from segue.core.stops.types import Stop
from segue.runs.legs.stream import LegStream

AGENTS = ("claude", "codex", "gemini", "opencode", "pi", "qwen")
AT = 1_780_000_000.0


def followed(agent: str, stdout: str, size: int) -> LegStream:
    """As it is read in pieces of so many lines."""
    profile = agents.find(agent)
    assert profile is not None
    stream, given = LegStream(Path("none"), profile), stdout.encode().split(b"\n")
    for start in range(0, len(given), size):
        stream.feed(given[start : start + size])
    stream.finish()
    return stream


def verdict(agent: str, run: dict[str, Any], stdout: Source) -> Stop:
    beside: tuple[Channel, ...] = ("stderr", "transcript")
    sources = [Source(text=run[kind], channel=kind, name=kind) for kind in beside if run.get(kind)]
    ending = Ending(sources=(stdout, *sources), agent=agent, exit_code=run.get("exit_code"))
    return api.examine(ending, now=AT, policy=Policy()).stop


@pytest.mark.parametrize("agent", AGENTS)
def test_the_verdict_on_a_stream_that_was_followed_is_the_one_on_its_text(agent: str) -> None:
    once, recordings = 0, lines(f"recordings/{agent}.jsonl")
    for number, run in enumerate(recordings):
        text = run.get("stdout") or ""
        turn = followed(agent, text, 1 + number % 7).turn
        if turn is not None:
            once += 1
            told = verdict(agent, run, Source(text="", turn=turn))
            assert told == verdict(agent, run, Source(text=text)), run["name"]
    assert once > len(recordings) / 3, "most streams are nothing but records"


@pytest.mark.parametrize(
    "text",
    [
        "Execution error",  # words
        '{"type":"result","subtype":"error',  # half a record
        '{\n"type": "result"\n}',  # one over several lines
        '[1.2] {"type":"result"}',  # one with a stamp
        '{"type":"stream_event","event":{"type":"content_block_delta"',  # half of an idle one
    ],
)
def test_a_stream_with_anything_but_whole_records_is_left_to_those_who_read_text(text: str) -> None:
    (run,) = (r for r in lines("recordings/claude.jsonl") if r["name"] == "a1-success-stream")
    assert followed("claude", run["stdout"], 3).turn is not None
    assert followed("claude", f"{run['stdout']}\n{text}", 3).turn is None


def test_records_of_another_agent_are_not_taken_for_its_own() -> None:
    (run,) = (r for r in lines("recordings/claude.jsonl") if r["name"] == "a1-success-stream")
    assert followed("codex", run["stdout"], 3).turn is None
