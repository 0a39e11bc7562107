"""Whatever is given to the library: a verdict, and never an exception.

Generated endings of any shape, and recordings of real runs with all kinds of damage.
"""

import json
import random
import time
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hostile.bad_input import LIMIT, NOW, assert_whole, no_constant

from segue import api
from segue.agents.ending import CHANNELS, Ending, Source
from segue.core.policy import Policy
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.system.config import wordings
from segue.system.files import files
from segue.views import verdicts as render

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"
FUZZ_ROUNDS = 300


# --- anything at all ----------------------------------------------------------------------------

_FRAGMENTS = [
    *(w.example[0] for w in wordings.load().wordings if w.example),
    "API Error: ", "Error: ", "⎿ ", "● ", "❯ /exit", "│ ", "\x1b[31m",
    "\x1b]0;", "\0", "\r", "\u2028", "[{", "}}]",
    '{"type":"result","is_error":true,"result":"', '{"type":"error","error":{"message":"',
    "resets 3pm (Europe/London)", "try again in 99999999999999999999 days", "resets at 1e999",
    "resets Feb 30, 25:61", "1750708800000000000000", "429 ", "retrying in ",
    "---\n", "status: done\n---\n",
]  # fmt: skip
ANYTHING = st.one_of(
    st.text(max_size=200),
    st.lists(st.one_of(st.sampled_from(_FRAGMENTS), st.text(max_size=8)), max_size=12).map("".join),
    st.lists(st.sampled_from(_FRAGMENTS), max_size=8).map("\n".join),
)
CODES = st.one_of(st.none(), st.integers(), st.integers(-70, 300))
NAMES = st.one_of(
    st.none(), st.sampled_from(["claude", "codex", "opencode", "gemini", "pi", "qwen"]), st.text()
)


def assert_sound(stop: Stop) -> None:
    assert isinstance(stop, Stop)
    line = render.as_json(render.as_dict(stop))
    assert_whole(json.loads(line, parse_constant=no_constant))
    assert "\n" not in line
    assert render.for_people(stop, Policy(), now=NOW, tz=UTC)


@settings(deadline=None, max_examples=200)
@given(source=st.one_of(ANYTHING, st.binary(max_size=300)), code=CODES, agent=NAMES,
       channel=st.sampled_from(CHANNELS))  # fmt: skip
def test_classify_returns_a_stop_for_anything(
    source: str | bytes, code: int | None, agent: str | None, channel: Any
) -> None:
    def judged() -> Stop:
        return api.classify(source, agent=agent, exit_code=code, channel=channel, now=NOW, tz=UTC)

    stop = judged()
    assert_sound(stop)
    assert not any(e.rule == "input" for e in stop.evidence), stop.evidence  # nothing was caught
    assert judged() == stop


@settings(deadline=None, max_examples=100)
@given(
    parts=st.lists(
        st.one_of(
            st.sampled_from(_FRAGMENTS), st.text(st.characters(categories=["Cs", "Lu"]), max_size=3)
        ),
        max_size=8,
    )
)
def test_lone_surrogates_are_not_a_reason_to_give_up(parts: list[str]) -> None:
    stop = api.classify("".join(parts), now=NOW, tz=UTC)
    assert_sound(stop)
    assert not any(e.rule == "input" for e in stop.evidence), stop.evidence


@settings(deadline=None, max_examples=60)
@given(text=ANYTHING, now=st.floats(-1e11, 1e11), hours=st.integers(-14, 14))
def test_any_time_gets_a_verdict(text: str, now: float, hours: int) -> None:
    source = Source(text=f"{text}\n{LIMIT}; resets 3pm", channel="tui")
    zone = timezone(timedelta(hours=hours))
    stop = api.examine(Ending(sources=(source,)), now=now, tz=zone).stop
    assert_sound(stop)


@pytest.mark.parametrize(
    "source", [5, 1.5, object(), ["a"], {"a": 1}, True, Path("/"), Path("\0"), Path("")]
)
def test_classify_of_the_wrong_kind_is_unknown(source: Any) -> None:
    stop = api.classify(source)
    assert (stop.reason, stop.confidence) == (StopReason.UNKNOWN, 0.0)
    assert [e.rule for e in stop.evidence] == ["input"]
    assert_sound(stop)


@pytest.mark.parametrize("options", [
    {"exit_code": "1"}, {"exit_code": 1.5}, {"agent": 5}, {"ended_by": "me"}, {"ended_by": None},
    {"channel": "fax"}, {"now": "noon"}, {"tz": "UTC"}, {"policy": "cautious"}, {"stderr": 5},
], ids=str)  # fmt: skip
def test_classify_with_a_wrong_option_never_raises(options: dict[str, Any]) -> None:
    assert_sound(api.classify(f"{LIMIT}; resets 3pm", **options))


@pytest.mark.parametrize(
    ("head", "unit", "times"),
    [("API Error: ", "rate limit reached ", 50), ("", "1.5,2.25,", 110), ("", "1234567890", 100)],
)
def test_line_of_repetitions_costs_no_more_than_its_length(
    head: str, unit: str, times: int
) -> None:
    """Found by the benchmark: each hit was compared with all others, each digit began a number."""

    def cost(number: int) -> float:
        start = time.process_time()
        api.classify(head + unit * number, now=NOW, tz=UTC)
        return time.process_time() - start

    cost(10)
    small = max(cost(times), 0.005)
    assert cost(4 * times) < 10 * small  # four times the text; sixteen times the work was measured


@pytest.mark.parametrize("line", ['{"a":,', '[{"a": 1},', '{"a": [', "[a] {b", '{"a" 1\nx'])
def test_lines_that_begin_records_without_end_cost_no_more_than_their_length(line: str) -> None:
    """Each line began a value that was looked for in all of the text after it."""

    def cost(number: int) -> float:
        text = f"{line}\n" * number
        start = time.process_time()
        api.classify(text, now=NOW, tz=UTC)
        return time.process_time() - start

    cost(10)
    small = max(cost(10_000), 0.1)
    assert cost(40_000) < 10 * small  # four times the text; sixteen times the work was measured


# --- real runs, damaged -------------------------------------------------------------------------


def _damaged(data: bytes, pick: random.Random) -> bytes:
    """One of the things that happen to files, or that somebody does to them."""
    at, to = sorted(pick.randrange(len(data) + 1) for _ in range(2))
    to = min(to, at + 4096)
    lines = data.split(b"\n")
    match pick.randrange(10):
        case 0:
            return data[:at]
        case 1:
            return data[at:]
        case 2:
            return data[:to] + data[at:to] * pick.randrange(1, 4) + data[to:]
        case 3:
            flipped = bytearray(data)
            for _ in range(pick.randrange(1, 40)):
                flipped[pick.randrange(len(flipped))] ^= 1 << pick.randrange(8)
            return bytes(flipped)
        case 4:
            pick.shuffle(lines)
            return b"\n".join(lines)
        case 5:
            return data[:at] + b"\0" * pick.choice((1, 7, 5000)) + data[at:]
        case 6:
            opening = pick.choice((b"[", b"{", b'{"a":', b'[{"type":', b"("))
            return data[:at] + opening * pick.choice((50, 2000, 30_000)) + data[at:]
        case 7:
            return data.replace(b"\n", pick.choice((b"", b"\r", b"\r\n", b"\n\n", b"\\n")))
        case 8:
            old = pick.choice((b'"', b":", b"true", b"null", b"0", b"error", b"message", b"type"))
            new = pick.choice(
                (b"", b"null", b"[]", b"{}", b"-1e999", b'"\\ud800"', b"NaN", b"9" * 30)
            )
            return data.replace(old, new, pick.randrange(1, 30))
        case _:
            return data[:at] + data[to:]


def _recorded() -> list[tuple[str, dict[str, Any]]]:
    return [
        (file.stem, json.loads(line))
        for file in sorted(RECORDINGS.glob("*.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]


def test_damaged_recordings_get_a_verdict() -> None:
    pick = random.Random(20_261_115)
    runs = _recorded()
    assert runs
    faults: dict[str, str] = {}
    for number in range(FUZZ_ROUNDS):
        agent, recording = pick.choice(runs)
        sources = []
        for kind in ("stdout", "stderr", "transcript"):
            data = str(recording.get(kind) or "").encode()[-30_000:]
            for _ in range(pick.randrange(1, 4)):
                data = _damaged(data, pick) if data else b""
            channel = pick.choice(CHANNELS) if pick.random() < 0.2 else kind
            found = files.decode(data, kind)
            sources.append(Source(text=found.text, channel=channel, name=kind))
        ending = Ending(
            sources=tuple(sources),
            agent=pick.choice((agent, None, "codex")),
            exit_code=pick.choice((recording["exit_code"], None, -9, 1)),
        )
        try:
            stop = api.examine(ending, now=NOW, tz=UTC).stop
            assert_sound(stop)
            assert api.examine(ending, now=NOW, tz=UTC).stop == stop
        except Exception as fault:  # all kinds at once, each with its first case
            name = f"{type(fault).__name__}: {str(fault)[:80]}"
            faults.setdefault(name, f"round {number}, {agent} {recording['name']}")
    assert faults == {}
