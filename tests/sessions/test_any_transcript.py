"""Whatever happens to a session file: no exception, and the size of the last reply that is whole.

Growing sessions of five agents, with cut lines, NULs, bytes that are no UTF-8, records that nobody
knows, keys in any order, old records that come again, and a clock that jumps. Sizes only grow, so
a reading that falls without a compaction is one that was taken from the wrong record.
"""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue import agents
from segue.agents.places import STORES
from segue.core.policy import Policy
from segue.core.sessions.types import Look
from segue.sessions import tail
from segue.sessions.find import FileOnDisk
from segue.sessions.look import look
from segue.sessions.survey import make_judge

NOW = 1_794_766_600.0
Record = dict[str, Any]

_JUDGE = make_judge(lambda agent, model, cwd: Policy(), NOW)
_AGENTS = st.sampled_from(("claude", "codex", "gemini", "pi", "qwen"))


@dataclass
class Told:
    """A record, and how large the context is once it is written: None if it does not say,
    0 if it says that the size is no longer known."""

    record: Record
    used: int | None = None
    is_fixed: bool = False  # part of a compaction: neither damaged nor copied


@dataclass
class Session:
    """Writes the records of one agent, as the recordings have them."""

    agent: str
    used: int = 10_000
    spent: int = 0
    number: int = 0
    time: float = NOW
    told: list[Told] = field(default_factory=list)

    def put(self, record: Record, used: int | None = None, *, is_fixed: bool = False) -> None:
        self.told.append(Told(record, used, is_fixed))

    def do(self, step: str, amount: int) -> None:
        self.number += 1
        self.time += amount % 7 if step != "clock" else (amount - 5_000) * 60
        if step == "reply":
            self.used += amount
            self.spent += self.used
        elif step == "compaction":
            self.used = 3_000 + amount % 1_000
            self.spent += 500
        if step != "clock":
            getattr(self, f"{self.agent}_{step}")()

    @property
    def stamp(self) -> str:
        seconds = int(self.time - NOW) % 86_400
        return f"2026-11-15T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.000Z"

    # Claude

    def claude(self, kind: str, **more: Any) -> Record:
        common = {"isSidechain": False, "sessionId": "s1", "cwd": "/p", "timestamp": self.stamp}
        return {"type": kind, **common, **more}

    def claude_message(self, used: int, content: Record, name: str = "msg") -> Record:
        usage = {
            "input_tokens": 10,
            "cache_creation_input_tokens": 100,
            "cache_read_input_tokens": used - 150,
            "output_tokens": 40,
        }
        return {
            "id": f"{name}_{self.number}",
            "model": "claude-opus-5-5",
            "content": [content],
            "stop_reason": "tool_use",
            "usage": usage,
        }

    def claude_prompt(self) -> None:
        self.put(self.claude("user", message={"role": "user", "content": "go on"}))

    def claude_reply(self) -> None:
        said = {"type": "text", "text": f"reply {self.number}"}
        call = {"type": "tool_use", "id": f"toolu_{self.number}", "name": "Bash", "input": {}}
        for content in (said, call):
            message = self.claude_message(self.used, content)
            self.put(self.claude("assistant", message=message), self.used)
        result = {"type": "tool_result", "tool_use_id": f"toolu_{self.number}", "content": "ok"}
        self.put(self.claude("user", message={"role": "user", "content": [result]}))

    def claude_error(self) -> None:
        zeros = {"input_tokens": 0, "output_tokens": 0}
        said = [{"type": "text", "text": "API Error: 529 Overloaded."}]
        message = {"id": f"err_{self.number}", "model": "<synthetic>", "usage": zeros}
        wrong = {"isApiErrorMessage": True, "message": {**message, "content": said}}
        self.put(self.claude("assistant", **wrong))

    def claude_side(self) -> None:
        content = {"type": "text", "text": "a sub-agent"}
        record = self.claude("assistant", message=self.claude_message(999, content, "side"))
        self.put({**record, "isSidechain": True})

    def claude_compaction(self) -> None:
        sizes = {"preTokens": self.used * 9, "postTokens": self.used}
        boundary = self.claude("system", subtype="compact_boundary", compactMetadata=sizes)
        self.put(boundary, self.used, is_fixed=True)

    # Codex

    def codex(self, kind: str, **payload: Any) -> Record:
        return {"timestamp": self.stamp, "type": kind, "payload": payload}

    def codex_usage(self, used: int) -> Record:
        parts = {"input_tokens": used - 20, "output_tokens": 20, "cached_input_tokens": 5}
        return {**parts, "total_tokens": used}

    def codex_count(self, last: Record) -> Record:
        total = {"input_tokens": self.spent, "total_tokens": self.spent}
        info = {"last_token_usage": last, "total_token_usage": total}
        info["model_context_window"] = 258_400  # type: ignore[assignment]
        return self.codex("event_msg", type="token_count", info=info, rate_limits=None)

    def codex_prompt(self) -> None:
        self.put(self.codex("event_msg", type="task_started", model_context_window=258_400))
        self.put(self.codex("turn_context", model="gpt-5.2", cwd="/p"))
        self.put(self.codex("event_msg", type="user_message", message="go on"))

    def codex_reply(self) -> None:
        usage, total = self.codex_usage(self.used), {"total_tokens": self.spent}
        call = {"name": "exec_command", "call_id": f"call_{self.number}", "arguments": "{}"}
        self.put(self.codex("response_item", type="function_call", **call))
        record = self.codex("token_usage_record", usage=usage, thread_token_usage=total)
        self.put(record, self.used)
        self.put(self.codex_count(usage), self.used)

    def codex_error(self) -> None:
        self.put(self.codex("event_msg", type="token_count", info=None))
        wrong = {"message": "boom", "codex_error_info": "internal_server_error"}
        self.put(self.codex("event_msg", type="task_complete", error=wrong))

    def codex_side(self) -> None:
        self.put(self.codex("world_state", full=True))

    def codex_compaction(self) -> None:
        mark = {"compaction_output": True}
        output = self.codex("response_item", type="message", role="assistant", metadata=mark)
        total, summary = {"total_tokens": self.spent}, self.codex_usage(500)
        self.put(output, is_fixed=True)
        record = self.codex("token_usage_record", usage=summary, thread_token_usage=total)
        self.put(record, is_fixed=True)
        self.put(self.codex_count(summary), is_fixed=True)
        self.put(self.codex("compacted", message="summary"), 0, is_fixed=True)
        self.put(self.codex_count({"total_tokens": self.used}), self.used, is_fixed=True)
        done = {"type": "item_completed", "item": {"type": "ContextCompaction", "id": "c"}}
        self.put(self.codex("event_msg", **done), is_fixed=True)

    # Gemini

    def gemini(self, kind: str, **more: Any) -> Record:
        return {"id": f"m{self.number}", "timestamp": self.stamp, "type": kind, **more}

    def gemini_prompt(self) -> None:
        self.put(self.gemini("user", content=[{"text": "go on"}]))

    def gemini_reply(self) -> None:
        tokens = {"input": self.used - 20, "output": 20, "cached": 5, "total": self.used}
        said = self.gemini("gemini", content="reply", tokens=tokens, model="gemini-2.5-pro")
        self.put(said, self.used)
        self.put({"$set": {"lastUpdated": self.stamp}})
        call = {"id": f"call{self.number}", "name": "run_shell_command", "result": [{}]}
        self.put({**said, "toolCalls": [call]}, self.used)

    def gemini_error(self) -> None:
        self.put(self.gemini("error", content="[API Error: 503]"))

    def gemini_side(self) -> None:
        self.put({"$set": {"sessionId": "s1"}})

    def gemini_compaction(self) -> None:
        summary = f"<state_snapshot>{self.number}</state_snapshot>"
        history = [{"id": f"s{self.number}", "type": "user", "content": summary}]
        self.put({"$set": {"messages": history}}, 0, is_fixed=True)

    # pi

    def pi(self, kind: str, **more: Any) -> Record:
        return {"type": kind, "id": f"e{self.number}", "timestamp": self.stamp, **more}

    def pi_message(self, used: int, stop: str) -> Record:
        usage = {"input": used - 30, "output": 20, "cacheRead": 10, "cacheWrite": 0}
        usage = {**usage, "totalTokens": used} if used else dict.fromkeys(usage, 0)
        said = {"role": "assistant", "content": [{"type": "text", "text": "reply"}]}
        message = {**said, "model": "fake-model", "usage": usage, "stopReason": stop}
        return self.pi("message", message=message)

    def pi_prompt(self) -> None:
        self.put(self.pi("message", message={"role": "user", "content": "go on"}))

    def pi_reply(self) -> None:
        self.put(self.pi_message(self.used, "toolUse"), self.used)

    def pi_error(self) -> None:
        self.put(self.pi_message(0, "error"))

    def pi_side(self) -> None:
        self.put(self.pi("thinking_level_change", thinkingLevel="off"))

    def pi_compaction(self) -> None:
        self.put(self.pi("compaction", summary="s", tokensBefore=99_999), 0, is_fixed=True)

    # Qwen

    def qwen(self, kind: str, **more: Any) -> Record:
        common = {"sessionId": "s1", "cwd": "/p", "timestamp": self.stamp, "version": "0.24.4"}
        return {"uuid": f"u{self.number}", "type": kind, **common, **more}

    def qwen_message(self, used: int, said: str) -> Record:
        usage = {"promptTokenCount": used - 20, "totalTokenCount": used}
        message = {"role": "model", "parts": [{"text": said}]}
        return self.qwen("assistant", model="fake-model", message=message, usageMetadata=usage)

    def qwen_prompt(self) -> None:
        self.put(self.qwen("user", message={"role": "user", "parts": [{"text": "go on"}]}))

    def qwen_reply(self) -> None:
        self.put(self.qwen_message(self.used, "reply"), self.used)

    def qwen_error(self) -> None:
        self.put(self.qwen_message(20, "[API Error: 429 slow down]"))

    def qwen_side(self) -> None:
        self.put({**self.qwen_message(999, "a sub-agent"), "isSidechain": True})

    def qwen_compaction(self) -> None:
        info = {"newTokenCount": self.used, "compressionStatus": 1}
        note = self.qwen("system", subtype="chat_compression", systemPayload={"info": info})
        self.put(note, self.used, is_fixed=True)


@dataclass(frozen=True)
class Row:
    """A line of a file, and the size once it is there."""

    data: bytes
    used: int | None


_UNKNOWN = st.one_of(
    st.sampled_from(
        [b"", b"{}", b"[]", b"null", b"12", b"\0" * 50, b"\xff\xfe\xfa", b'{"type":', b'{"a":1}}']
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["payload", "message", "info", "content", "usage", "tokens", "item", "model"]
                ),
                inner,
                max_size=3,
            )
        ),
        max_leaves=6,
    ).map(lambda value: json.dumps({"type": "unheard-of", "value": value}).encode()),
)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ("prompt", "reply", "reply", "reply", "error", "side", "compaction", "clock")
        ),
        st.integers(1, 10_000),
    ),
    min_size=1,
    max_size=12,
)


@st.composite
def files(draw: st.DrawFn, agent: str, *, with_copies: bool) -> list[Row]:
    """A session's file, with all that may happen to one."""
    session = Session(agent)
    for step, amount in draw(_STEPS):
        session.do(step, amount)
    rows: list[Row] = []
    copies: list[Told] = []
    for told in session.told:
        keys = draw(st.permutations(list(told.record)))
        line = json.dumps({key: told.record[key] for key in keys}).encode()
        harm = "" if told.is_fixed else draw(st.sampled_from(("", "", "", *_HARMS)))
        rows.append(Row(*_harmed(line, told.used, harm)))
        begins_turn = b"task_started" in line  # which is the end of a compaction, told twice or not
        if not told.is_fixed and harm in ("", "nuls") and not begins_turn:
            copies.append(told)
        if draw(st.integers(0, 5)) == 0:
            rows.append(Row(draw(_UNKNOWN), None))
        if with_copies and copies and draw(st.integers(0, 3)) == 0:
            again = draw(st.sampled_from(copies))
            rows.append(Row(json.dumps(again.record).encode(), None))
    return rows


_HARMS = ("cut", "nuls", "utf-8", "blanks")


def _harmed(line: bytes, used: int | None, harm: str) -> tuple[bytes, int | None]:
    match harm:
        case "cut":
            return line[: len(line) // 2], None
        case "nuls":
            return b"\0" * 100 + line, used
        case "utf-8":  # in a string that nobody needs
            return line[:-1] + b', "note": "\xff\xc3\x28\0"}', used
        case "blanks":
            return b"\t " + line + b"\r", used
    return line, used


def expected(rows: list[Row]) -> int | None:
    used = 0
    for row in rows:
        used = used if row.used is None else row.used
    return used or None


def read(agent: str, folder: str, data: bytes, block_bytes: int = tail.BLOCK_BYTES) -> Look:
    path = Path(folder) / "session.jsonl"
    path.write_bytes(data)
    found = FileOnDisk(agent, folder, str(path), "", "", (1, 1, len(data), 1))
    with patch.object(tail, "read_back", partial(tail.read_back, block_bytes=block_bytes)):
        return look(found, agents.find(agent), _JUDGE)


def readings(agent: str, rows: list[Row], places: list[int]) -> Iterator[tuple[int, int | None]]:
    """The sizes that were reported as the file grew."""
    with tempfile.TemporaryDirectory() as folder:
        for place in sorted({*(p % (len(rows) + 1) for p in places), len(rows)}):
            seen = read(agent, folder, b"".join(row.data + b"\n" for row in rows[:place]))
            yield place, seen.used_tokens


_PLACES = st.lists(st.integers(0, 60), max_size=6)


@given(data=st.data(), agent=_AGENTS, places=_PLACES)
@settings(max_examples=200)
def test_a_growing_session_is_as_large_as_its_last_whole_reply(
    data: st.DataObject, agent: str, places: list[int]
) -> None:
    rows = data.draw(files(agent, with_copies=True))
    for place, used in readings(agent, rows, places):
        assert used == expected(rows[:place]), place


@given(data=st.data(), agent=_AGENTS, places=_PLACES)
@settings(max_examples=200)
def test_no_reading_falls_without_a_compaction(
    data: st.DataObject, agent: str, places: list[int]
) -> None:
    rows = data.draw(files(agent, with_copies=True))
    before, used = 0, 0
    for place, now in readings(agent, rows, places):
        summed_up = any(row.used is not None and row.used < used for row in rows[before:place])
        assert summed_up or (now or 0) >= used, place
        before, used = place, now or 0


@given(data=st.data(), agent=_AGENTS, at=st.floats(0, 1), block_bytes=st.integers(16, 4_000))
@settings(max_examples=200)
def test_a_tail_tells_the_same_as_the_whole_file_wherever_it_is_cut(
    data: st.DataObject, agent: str, at: float, block_bytes: int
) -> None:
    rows = data.draw(files(agent, with_copies=False))
    whole = b"".join(row.data + b"\n" for row in rows)
    cut = whole[: round(len(whole) * at)]
    with tempfile.TemporaryDirectory() as folder:
        one, two = read(agent, folder, cut), read(agent, folder, cut, block_bytes)
    assert (one.used_tokens, one.cwd) == (two.used_tokens, two.cwd)


_PIECES = (
    b'{ } [ " : , \\ \0 \\ud800 \xed\xa0\x80 1e999 -1 NaN null 9999999999999999999 "type" "message"'
    b' "usage" "payload" "timestamp" "assistant" "$set" {"type":"assistant","message":{"usage":{'
    b" \n"
).split(b" ")
_NAMES = (
    "type subtype message usage payload info id sessionId timestamp content role tokens item data"
    " $set messages parts usageMetadata input_tokens totalTokens total_tokens total time parts text"
    " compactMetadata postTokens last_token_usage total_token_usage rate_limits primary model"
)
_TEXTS = (
    "assistant user system message gemini event_msg token_count token_usage_record compaction"
    " compacted session session_meta turn_context task_started compact_boundary s1 <synthetic>"
    " 2026-11-15T18:00:00Z 9999-99-99 -1"
)
_KEYS, _WORDS = st.sampled_from(_NAMES.split()), st.sampled_from(_TEXTS.split())
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_SHAPED = st.dictionaries(_KEYS, _VALUES, min_size=1, max_size=5).map(
    lambda record: json.dumps(record).encode()
)
_BYTES = st.one_of(
    st.binary(max_size=300),
    st.lists(_SHAPED, min_size=1, max_size=8).map(b"\n".join),
    st.lists(_UNKNOWN, max_size=10).map(b"\n".join),
    st.lists(st.sampled_from(_PIECES), max_size=60).map(b"".join),
)


@pytest.mark.parametrize("agent", STORES)
@given(data=_BYTES)
@settings(max_examples=100)
def test_no_content_of_a_session_file_raises(agent: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        read(agent, folder, data)
        read(agent, folder, data, block_bytes=7)
