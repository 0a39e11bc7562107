"""A stream that is read while it grows gives the same events as one that is read at once."""

import json
import tracemalloc
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Any

import pytest
from conftest import lines
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from segue import agents
from segue.agents.contracts.profile import Profile, Record
from segue.agents.shared import records
from segue.agents.shared.live import MANNERS, Live, Manner, OpenCall
from segue.core.stops.events import (
    Ended,
    Event,
    Failure,
    Other,
    Reply,
    Retry,
    Started,
    ToolCall,
    ToolResult,
    Usage,
)

RECORDED = ("claude", "codex", "gemini", "opencode", "pi", "qwen")


def profile_of(agent: str) -> Profile:
    profile = agents.find(agent)
    assert profile is not None
    return profile


def texts(agent: str) -> dict[str, str]:
    """All that was recorded of an agent: streams and session files."""
    return {
        f"{agent} {run['name']} {source}": run[source]
        for run in lines(f"recordings/{agent}.jsonl")
        for source in ("stdout", "transcript")
        if run.get(source)
    }


TEXTS = {name: text for agent in RECORDED for name, text in texts(agent).items()}
STREAMS = {name: text for name, text in TEXTS.items() if name.endswith("stdout")}


def at_once(profile: Profile, text: str) -> list[Event]:
    return mattering(profile.parse(records.split(text, "stdout").records))


def mattering(events: Iterable[Event]) -> list[Event]:
    return [e for e in events if not (isinstance(e, Other) and e.known)]


def fed(live: Live, pieces: Iterable[bytes]) -> list[Event]:
    """As a file grows by these pieces, whole lines at a time."""
    found: list[Event] = []
    half = b""
    for piece in pieces:
        *whole, half = (half + piece).split(b"\n")
        found += live.feed(whole)
    if half:
        found += live.feed([half])
    return found + live.close()


@pytest.mark.parametrize("agent", RECORDED)
def test_every_recording_fed_line_by_line_tells_what_it_tells_at_once(agent: str) -> None:
    profile = profile_of(agent)
    seen = 0
    for name, text in texts(agent).items():
        rows = [row.encode() + b"\n" for row in text.split("\n")]
        expected = at_once(profile, text)
        seen += bool(expected)
        assert fed(Live(profile), rows) == expected, name
        assert fed(Live(profile), [text.encode()]) == expected, name
    assert seen > 0


@given(data=st.data(), name=st.sampled_from(sorted(STREAMS)))
def test_a_stream_may_be_cut_at_any_byte(data: st.DataObject, name: str) -> None:
    text = STREAMS[name].encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    bounds = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in pairwise(bounds)]
    profile = profile_of(name.partition(" ")[0])
    assert fed(Live(profile), pieces) == at_once(profile, STREAMS[name])


@pytest.mark.parametrize("agent", agents.BUILT_IN)
def test_a_pause_tells_nothing_and_is_answered_at_any_time(agent: str) -> None:
    """The pause is the one thing that is asked of a parser, so it is asked of all of them."""
    profile = profile_of(agent)
    pause = Record({"type": MANNERS.get(agent, Manner()).pause}, "here")
    for text in [*texts(agent).values()] if agent in RECORDED else [""]:
        found = records.split(text, "stdout").records
        paused = [*chain.from_iterable((pause, record) for record in found), pause]
        told = [*profile.parse(paused)]
        answers = [event for event in told if event.where == "here"]
        assert len(answers) == len(found) + 1
        assert all(isinstance(event, Other) for event in answers)
        assert [e for e in told if e.where != "here"] == [*profile.parse(found)]


@pytest.mark.parametrize("agent", sorted(MANNERS))
def test_an_idle_line_tells_nothing_wherever_it_is(agent: str) -> None:
    profile = profile_of(agent)
    for name, text in texts(agent).items():
        rows = text.split("\n")
        busy = [r for r in rows if not r.encode().startswith(MANNERS[agent].idle)]
        kept = [bare(e) for e in at_once(profile, "\n".join(busy))]
        assert [bare(e) for e in at_once(profile, text)] == kept, name


def bare(event: Event) -> Event:
    return replace(event, where="")


def test_idle_lines_are_counted_and_not_decoded() -> None:
    live = Live(profile_of("pi"))
    assert live.feed([b'{"type":"message_update","message":' + b"[" * 5000, b""]) == []
    assert (live.lines, live.records, live.unread) == (2, [], 0)


def claude(**data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def reply(number: int, *content: dict[str, Any]) -> bytes:
    usage = {"input_tokens": number, "output_tokens": 1}
    message = {"id": f"msg_{number}", "model": "claude-x", "content": [*content], "usage": usage}
    return claude(type="assistant", message=message)


CALL = {"type": "tool_use", "id": "t1", "name": "Bash"}
RESULT = claude(
    type="user", message={"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]}
)
END = claude(
    type="result",
    subtype="success",
    is_error=False,
    result="Done.",
    modelUsage={"claude-x": {"contextWindow": 200_000}},
)


def size(live: Live) -> tuple[int, int | None]:
    assert live.reading is not None
    return live.reading.used_tokens, live.reading.window_tokens


def ended_well(live: Live) -> bool:
    return live.ended is not None and live.ended.ok


def test_the_state_follows_the_stream() -> None:
    live = Live(profile_of("claude"))
    live.feed([claude(type="system", subtype="init", session_id="s1", model="claude-x")])
    assert (live.session_id, live.model, live.replies) == ("s1", "claude-x", 0)
    told = live.feed([reply(10, {"type": "text", "text": "I look."}), reply(20, CALL)], at=5.0)
    assert [type(event) for event in told] == [Reply, Usage, ToolCall, Usage]
    assert [record["type"] for record in live.records] == ["assistant", "assistant"]
    assert (live.replies, live.calls, live.last_text) == (1, 1, "I look.")
    assert live.open_calls == {"t1": OpenCall("Bash", since=5.0)}
    assert size(live) == (21, None)
    assert [type(event) for event in live.feed([RESULT])] == [ToolResult]
    assert live.open_calls == {}
    live.feed([END])
    assert ended_well(live)
    assert size(live) == (21, 200_000)
    live.feed([reply(30, {"type": "text", "text": "More."})])
    assert not ended_well(live)
    assert size(live) == (31, 200_000)
    compacted = {"post_tokens": 7, "pre_tokens": 31}
    live.feed([claude(type="system", subtype="compact_boundary", compact_metadata=compacted)])
    assert size(live) == (7, 200_000)
    assert live.compactions == 1


def sizes(found: Iterable[Event]) -> list[int]:
    return [event.used_tokens for event in found if isinstance(event, Usage)]


def test_a_copy_of_an_earlier_reply_tells_no_size_and_only_recent_ones_are_remembered() -> None:
    live = Live(profile_of("claude"))
    text = {"type": "text", "text": "x"}
    replies = [reply(number, text) for number in range(1, 20_001)]
    tracemalloc.start()
    for number in range(0, 4_000, 100):
        live.feed(replies[number : number + 100])
    early, _ = tracemalloc.get_traced_memory()
    for number in range(4_000, len(replies), 100):
        live.feed(replies[number : number + 100])
    late, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert late - early < 100_000  # 16,000 ids are more than a megabyte
    assert size(live) == (20_001, None)
    assert sizes(live.feed([replies[-1_000], replies[-2], replies[-1]])) == []
    assert sizes(live.feed([replies[5]])) == [7]  # forgotten: copies come soon or never


def test_a_turn_that_ended_has_no_open_calls() -> None:
    live = Live(profile_of("claude"))
    live.feed([reply(20, CALL), END])
    assert live.open_calls == {}


def told_once(found: Iterable[Record]) -> Iterator[Event]:
    for record in found:
        window = record.data.get("window")
        if "used" in record.data:
            yield Usage(used_tokens=record.data["used"], window_tokens=window, where=record.where)
        else:
            yield Other(where=record.where)


def test_a_window_that_was_stated_once_stays_known() -> None:
    live = Live(Profile(name="once", knows=lambda data: False, parse=told_once))
    live.feed([b'{"used":5,"window":100}', b'{"used":6}'])
    assert live.reading == Usage(used_tokens=6, window_tokens=100, where="stdout:2")


def test_an_agent_that_waits_to_try_again_is_known_to_wait_until_it_continues() -> None:
    live = Live(profile_of("claude"))
    retry = claude(type="system", subtype="api_retry", error="overloaded", retry_delay_ms=500)
    assert [type(event) for event in live.feed([retry])] == [Retry]
    assert live.waiting is not None
    assert live.waiting.wait_s == 0.5
    live.feed([reply(1, {"type": "text", "text": "On."})])
    assert live.waiting is None


def test_the_end_that_only_the_end_of_input_tells_comes_with_close() -> None:
    part = {"type": "step-finish", "reason": "stop", "messageID": "m", "tokens": {"input": 9}}
    line = claude(type="step_finish", sessionID="ses_1", part=part)
    live = Live(profile_of("opencode"))
    assert [type(event) for event in live.feed([line])] == [Started]
    assert [type(event) for event in live.close()] == [Usage, Ended]
    assert live.close() == []
    assert live.ended is not None


def test_lines_that_are_not_records_are_passed_over_and_keep_their_numbers() -> None:
    live = Live(profile_of("claude"))
    odd = [b"", b"Warning: {odd}", b"{", b'{"type":', b"\xff\xfe{\x00", b"[1, 2]", b"null", b"{}}"]
    live.feed(odd)
    stamped = b"[12:00:01] " + reply(5, {"type": "text", "text": "caf\xe9"})
    told = live.feed([stamped])
    assert told[0] == Reply(text="café", where=f"stdout:{len(odd) + 1}")


def test_bytes_that_are_no_utf_8_do_not_hide_a_record() -> None:
    line = reply(5, {"type": "text", "text": "caf?"}).replace(b"?", b"\xe9")
    (said, size) = Live(profile_of("claude")).feed([line])
    assert said == Reply(text="caf\ufffd", where="stdout:1")
    assert isinstance(size, Usage)


def test_an_unknown_record_is_counted() -> None:
    live = Live(profile_of("codex"))
    (event,) = live.feed([b'{"type":"news"}'])
    assert isinstance(event, Other)
    assert live.unread == 1


def moody(found: Iterable[Record]) -> Iterator[Event]:
    for record in found:
        if record.data.get("type") == "bad":
            raise ValueError("odd")
        if "say" in record.data:
            yield Reply(text=record.data["say"], where=record.where)
    yield Failure(message="over")


def test_a_parser_that_fails_or_keeps_silent_about_what_it_does_not_know_stops_nothing() -> None:
    live = Live(Profile(name="moody", knows=lambda data: False, parse=moody))
    told = live.feed([b'{"say":"a"}', b'{"type":"bad"}', b'{"say":"b"}'])
    assert [event.text for event in told if isinstance(event, Reply)] == ["a", "b"]
    assert live.unread == 1
    assert [e.text for e in live.feed([b'{"say":"c"}']) if isinstance(e, Reply)] == ["c"]
    live.close()


@given(st.lists(st.binary(max_size=60) | st.sampled_from([RESULT, END, reply(3, CALL)])))
def test_no_input_raises(found: list[bytes]) -> None:
    for agent in agents.BUILT_IN:
        live = Live(profile_of(agent))
        for line in found:
            live.feed([line])
        live.close()
