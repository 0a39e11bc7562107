"""Counters: the same sums however a file is cut, written or damaged, and never an exception."""

import copy
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents.counters import (
    START_S,
    Record,
    boundary,
    compact,
    count_line,
    event,
    meta,
    outcome,
    patch,
    plan,
    progress,
    prompt,
    reply,
    stamp,
    tool_use,
    turn,
    usage,
)

from segue import agents
from segue.agents.contracts.counter import Counter, Tally, key_of, milliseconds
from segue.core.sessions.ledger import ENDS_TURN, Ledger
from segue.sessions.count import scan
from segue.sessions.count.count import count
from segue.sessions.find import FileOnDisk

# --- records --------------------------------------------------------------------------------------


# --- counting -------------------------------------------------------------------------------------


def counter_of(agent: str, tally: Tally, ledger: Ledger) -> Counter:
    make = agents.counter(agent)
    assert make is not None
    return make(tally, ledger)


def stored(tally: Tally, ledger: Ledger) -> tuple[Tally, Ledger]:
    """Through the form in which the index keeps them."""
    data = msgspec.msgpack.encode(tally)
    models = json.loads(json.dumps(ledger.models))
    for told in (*ledger.models, tally.session_id, tally.forked_from):
        told.encode()  # columns of text
    return msgspec.msgpack.decode(data, type=Tally), Ledger(ledger.tobytes(), models)


def counted(agent: str, pieces: Sequence[bytes], *, resumed: bool = False) -> tuple[Tally, Ledger]:
    """Feeds pieces of whole lines, each to the same counter or each to one of a later scan."""
    tally, ledger = Tally(), Ledger()
    counter = counter_of(agent, tally, ledger)
    for piece in pieces:
        if resumed:
            counter.close()
            tally, ledger = stored(tally, ledger)
            counter = counter_of(agent, tally, ledger)
        counter.feed(piece, len(piece))
    counter.close()
    return stored(tally, ledger)


COUNTED = ("entries", "todos", "files", "limits", "unread", "compactions")


def count_all(agent: str, records: Sequence[Record]) -> tuple[Tally, Ledger]:
    return counted(agent, [b"".join(map(compact, records))])


@st.composite
def claude_records(draw: st.DrawFn) -> list[Record]:
    """A transcript with all that counting looks at."""
    records: list[Record] = []
    numbers = st.sampled_from((0, 1, 2, 5, 90, 2_000, 70_000))
    for second in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(("prompt", "reply", "reply", "reply", "boundary", "progress",
                                     "error", "quoted")))  # fmt: skip
        if kind == "prompt":
            records.append(prompt(second))
        elif kind == "boundary":
            records.append(boundary(second))
        elif kind == "quoted":
            records.append(prompt(second, said=json.dumps([reply(), boundary()])))
        elif kind == "error":
            failed = reply(f"e{second}", f"re{second}", tokens=(0, 0, 0, 0), second=second)
            failed |= {
                "isApiErrorMessage": True,
                "quotaLimits": {"rateLimitType": "five_hour", "utilization": second / 10},
            }
            records.append(failed)
        else:
            is_side = kind == "progress" or draw(st.sampled_from((False, False, False, True)))
            name = draw(st.sampled_from(("a1", "a2") if is_side else ("m1", "m2", "m3", "m4")))
            said = reply(
                name,
                draw(st.sampled_from((f"r-{name}", f"r-{name}", f"r2-{name}", None))),
                tokens=draw(st.tuples(numbers, numbers, numbers, numbers)),
                second=second,
                model=draw(st.sampled_from(("claude-opus-4-5", "claude-haiku-4-5"))),
                side=is_side,
                stop=draw(st.sampled_from((None, "tool_use", "end_turn"))),
                content=[draw(claude_blocks)],
            )
            records.append(progress(said, second) if kind == "progress" else said)
            for later in range(draw(st.integers(0, 2))):  # further blocks of the same reply
                again = copy.deepcopy(said)
                again["message"]["content"] = [draw(claude_blocks)]
                again["message"]["usage"]["output_tokens"] += draw(st.sampled_from((0, 0, 40)))
                again["timestamp"] = stamp(second + (later + 1) / 4)
                records.append(progress(again, second) if kind == "progress" else again)
    return records


statuses = st.sampled_from(("pending", "in_progress", "completed"))
claude_blocks: st.SearchStrategy[Record] = st.one_of(
    st.just({"type": "text", "text": "done"}),
    st.just(tool_use("Bash", command="ls")),
    st.builds(lambda p: tool_use("Edit", file_path=p), st.sampled_from(("/a", "/b", "/ü"))),
    st.just(tool_use("NotebookEdit", notebook_path="/n.ipynb")),
    st.builds(lambda s: tool_use("TodoWrite", todos=[{"content": "one", "status": s}]), statuses),
)
task_blocks: st.SearchStrategy[Record] = st.one_of(
    st.just(tool_use("TaskCreate", subject="task")),
    st.builds(
        lambda n, s: tool_use("TaskUpdate", taskId=n, status=s),
        st.sampled_from(("1", "2", "9")),
        st.sampled_from(("in_progress", "completed", "deleted")),
    ),
)


CODEX_KINDS = (
    "count", "count", "count", "turn", "plan", "patch", "compacted", "complete", "output", "record",
)  # fmt: skip
RUBBISH = (
    b"", b"\0", b"\0" * 50, b"\xff", b"\xed\xa0\x80", b"\n", b"\r", b'"', b"}", b"{", b"\\",
    b"\x1b",
)  # fmt: skip


@st.composite
def codex_records(draw: st.DrawFn) -> list[Record]:
    numbers = st.sampled_from((0, 1, 7, 300, 90_000))
    four = st.tuples(numbers, numbers, numbers, numbers)
    records = [meta("c1", draw(st.sampled_from(("", "c0"))))]
    total = (0, 0, 0, 0)
    for second in range(1, draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(CODEX_KINDS))
        if kind == "count":
            last = draw(st.one_of(st.none(), four))
            if last is not None and draw(st.sampled_from((True, True, False))):
                total = (total[0] + last[0], total[1] + last[1], total[2] + last[2],
                         total[3] + last[3])  # fmt: skip
            percent = draw(st.sampled_from((None, 5.0, 99.5)))
            records.append(count_line(last, total, second=second, percent=percent))
        elif kind == "turn":
            records.append(turn(draw(st.sampled_from(("gpt-5.5", "gpt-5.2"))), second))
        elif kind == "plan":
            records.append(plan(("look", draw(statuses)), ("write", "pending"), second=second))
        elif kind == "patch":
            records.append(patch(*draw(st.lists(st.sampled_from(("a.py", "b c.py")), max_size=2)),
                                 second=second))  # fmt: skip
        elif kind == "compacted":
            records.append(event("compacted", {"message": "so far"}, second=second))
        elif kind == "complete":
            records.append(event("event_msg", {"type": "task_complete"}, second=second))
        elif kind == "record":
            records.append(event("token_usage_record", {"usage": usage((9, 9, 9, 9))}))
        else:
            said = compact([count_line((5, 5, 5, 5)), patch("z")]).decode()
            records.append(event("response_item", {"type": "function_call_output", "output": said}))
    return records


FILES = {"claude": claude_records(), "codex": codex_records()}
both = pytest.mark.parametrize("agent", ["claude", "codex"])


def cuts(lines: Sequence[bytes], data: st.DataObject) -> list[bytes]:
    """The lines in some pieces."""
    places = sorted(data.draw(st.sets(st.integers(0, len(lines)), max_size=4)) | {0, len(lines)})
    return [b"".join(lines[a:b]) for a, b in pairwise(places)]


@both
@given(st.data())
def test_a_file_counts_the_same_in_one_go_line_by_line_and_over_several_scans(
    agent: str, data: st.DataObject
) -> None:
    lines = [compact(record) for record in data.draw(FILES[agent])]
    whole = outcome(counted(agent, [b"".join(lines)]))
    assert outcome(counted(agent, lines)) == whole
    assert outcome(counted(agent, cuts(lines, data))) == whole
    assert outcome(counted(agent, lines, resumed=True)) == whole
    assert outcome(counted(agent, cuts(lines, data), resumed=True)) == whole


@both
@given(st.data())
def test_a_file_that_grows_byte_by_byte_counts_as_if_it_had_been_there_at_once(
    agent: str, data: st.DataObject
) -> None:
    content = b"".join(compact(record) for record in data.draw(FILES[agent]))
    content = content[: len(content) - data.draw(st.integers(0, 40))]
    sizes = sorted(data.draw(st.sets(st.integers(0, len(content)), max_size=6)))
    whole, end = fed(agent, content, [len(content)])
    for chunk in (data.draw(st.integers(1, 900)), 1 << 18):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(scan, "CHUNK_BYTES", chunk)
            found, offset = fed(agent, content, [*sizes, len(content)])
        assert outcome(found) == outcome(whole)
        assert offset == end


def fed(agent: str, content: bytes, sizes: Sequence[int]) -> tuple[tuple[Tally, Ledger], int]:
    """A real file, read whenever it had one of these sizes."""
    tally, ledger, offset = Tally(), Ledger(), 0
    with tempfile.TemporaryFile() as file:
        for size in sizes:
            file.write(content[file.tell() : size])
            file.flush()
            tally, ledger = stored(tally, ledger)
            offset = scan.feed(file.fileno(), offset, size, counter_of(agent, tally, ledger))
            assert offset <= size
            rest = content[offset:size].rstrip()
            assert b"\n" not in rest
    return stored(tally, ledger), offset


LISTED = [tool_use("TodoWrite", todos=[{"content": "one"}, {"content": "two"}])]
UPDATED = [tool_use("TaskUpdate", taskId="1", status="completed")]
WEEKLY = {"primary": {"used_percent": 9.0, "window_minutes": 10_080}}

CUT: dict[str, tuple[str, list[Record]]] = {
    "a compaction, then an error, then a smaller reply": (
        "claude",
        [
            reply("m1", tokens=(9, 9, 9, 9)),
            boundary(),
            reply("e", tokens=(0, 0, 0, 0)),
            reply("m2", "r2"),
        ],
    ),
    "a compaction, then a sub-agent's reply, then a smaller reply": (
        "claude",
        [
            reply("m1", tokens=(9, 9, 9, 9)),
            boundary(),
            reply("a", side=True),
            reply("m2", "r2"),
        ],
    ),
    "a reply that becomes larger, a compaction, and one that is smaller only than that": (
        "claude",
        [
            reply("m1", tokens=(10, 1, 0, 0)),
            reply("m1", tokens=(10, 90, 0, 0)),
            boundary(),
            reply("m2", "r2", tokens=(50, 0, 0, 0)),
        ],
    ),
    "a reply in several records": (
        "claude",
        [prompt(), reply(second=1), reply(second=2), reply(second=3)],
    ),
    "replies without an id": ("claude", [prompt(), reply(""), reply(""), reply("")]),
    "tool calls without an id": (
        "claude",
        [reply("", content=[tool_use("Bash", command="ls")], second=n) for n in range(3)],
    ),
    "many first records that tell nothing": (
        "claude",
        [*[{"type": "mode"} for _ in range(12)], prompt(1, "mine"), reply(second=3), prompt(9)],
    ),
    "a first record that tells only when": (
        "claude",
        [boundary(), prompt(1, "mine"), reply(second=2)],
    ),
    "first records that tell nothing": (
        "claude",
        [{"type": "mode"}, {"type": "mode"}, prompt(1, "mine"), prompt(2, "mine"), reply(second=3)],
    ),
    "records out of order": (
        "claude",
        [prompt(5), reply("m1", second=9), reply("m2", second=7), reply("m3", second=8)],
    ),
    "a list, and a change to it": (
        "claude",
        [reply("m1", content=LISTED), reply("m2", content=UPDATED), reply("m3", second=3)],
    ),
    "limits of another plan": (
        "codex",
        [
            meta("c1"),
            count_line((1, 0, 0, 0), percent=5),
            event("event_msg", {"type": "token_count", "rate_limits": WEEKLY}),
        ],
    ),
    "counts before anything else": (
        "codex",
        [count_line((1, 0, 0, 0), second=5), turn(second=9), count_line((2, 0, 0, 0), second=12)],
    ),
    "counts out of order": (
        "codex",
        [meta("c1"), count_line((1, 0, 0, 0), second=9), count_line((2, 0, 0, 0), second=3)],
    ),
}


@pytest.mark.parametrize("case", CUT)
def test_these_count_the_same_wherever_they_are_cut(case: str) -> None:
    agent, records = CUT[case]
    lines = [compact(record) for record in records]
    whole = outcome(counted(agent, [b"".join(lines)]))
    assert outcome(counted(agent, lines)) == whole
    assert outcome(counted(agent, lines, resumed=True)) == whole


# --- forms ----------------------------------------------------------------------------------------


def shuffled(value: Any, pick: random.Random) -> Any:
    """The same value with its keys in another order."""
    if isinstance(value, dict):
        pairs = [(key, shuffled(item, pick)) for key, item in value.items()]
        pick.shuffle(pairs)
        return dict(pairs)
    return [shuffled(item, pick) for item in value] if isinstance(value, list) else value


def spaced(record: object) -> bytes:
    return json.dumps(record, separators=(" , ", " : ")).encode() + b"\n"


@both
@given(st.data(), st.randoms(use_true_random=False))
def test_blanks_and_the_order_of_keys_change_nothing(
    agent: str, data: st.DataObject, pick: random.Random
) -> None:
    records = data.draw(FILES[agent])
    plain = outcome(count_all(agent, records))
    for write in (spaced, compact, lambda r: json.dumps(r).encode() + b"\r\n"):
        for order in (records, [shuffled(record, pick) for record in records]):
            written = b"".join(map(write, order))
            assert outcome(counted(agent, [written])) == plain


@given(claude_records())
def test_a_claude_record_with_an_odd_field_counts_like_one_without(records: list[Record]) -> None:
    """The typed decoder refuses these lines; the tolerant one must come to the same."""
    odd = [{**r, "gitBranch": "main", "sessionId": 5} for r in records]
    found, plain = count_all("claude", odd), count_all("claude", records)
    assert outcome(found, *COUNTED) == outcome(plain, *COUNTED)


@given(codex_records(), st.sampled_from((7.5, "12", True)))
def test_a_codex_count_with_an_odd_field_counts_like_one_without(
    records: list[Record], odd: object
) -> None:
    changed = copy.deepcopy(records)
    for record in changed:
        info = record["payload"].get("info")
        if info:
            info["last_token_usage"] = {**info.get("last_token_usage", {}), "x": 0}
            record["payload"]["rate_limits"]["x"] = odd
            record["payload"]["info"]["total_token_usage"]["reasoning_output_tokens"] = odd
    expected = copy.deepcopy(records)
    for record in expected:
        info = record["payload"].get("info")
        if info:
            number = 7 if odd == 7.5 else 0
            info["total_token_usage"]["reasoning_output_tokens"] = number
    assert outcome(count_all("codex", changed)) == outcome(count_all("codex", expected))


# --- damage ---------------------------------------------------------------------------------------

DEEP = "@deep@"
ODD: tuple[Any, ...] = (
    None, True, -1, -(10**30), 1 << 53, 1 << 63, 10**19, 10**30, 10**400, 1.5, -0.5, 1e308, "", "x",
    "7", "\ud800", "\udc00x", "\0", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", [], {},
    [[]], [None], {"a": None}, {"type": []}, DEEP,
)  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) in a value."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def mutated(records: Sequence[Record], data: st.DataObject) -> bytes:
    records = copy.deepcopy([*records])
    for _ in range(data.draw(st.integers(0, 4))):
        container, key = data.draw(st.sampled_from(list(places(records))))
        container[key] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
    lines = [json.dumps(record, separators=(",", ":")).encode() for record in records]
    content = b"\n".join(lines).replace(b'"@deep@"', b"[" * 3000 + b"]" * 3000)
    for _ in range(data.draw(st.integers(0, 3))):
        place = data.draw(st.integers(0, len(content)))
        end = place + data.draw(st.sampled_from((0, 0, 0, 1, 30)))
        rubbish = data.draw(st.sampled_from(RUBBISH))
        content = content[:place] + rubbish + content[end:]
    return content + b"\n"


@both
@settings(max_examples=250)
@given(st.data())
def test_no_damage_raises_and_what_was_read_can_be_stored(agent: str, data: st.DataObject) -> None:
    content = mutated(data.draw(FILES[agent]), data)
    _, ledger = counted(agent, [content])
    counted(agent, content.splitlines(keepends=True), resumed=True)
    for entry in ledger:
        assert min(entry.spend.four) >= 0
        assert entry.spend.total_tokens < 1 << 54
    fed(agent, content, [len(content) // 2, len(content)])


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "pi", "qwen", "opencode"])
@given(st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(ODD), max_size=3)))
def test_any_bytes_and_any_value_are_taken_by_every_counter(agent: str, given_: Any) -> None:
    content = given_ if isinstance(given_, bytes) else b"\n".join(map(spaced, given_))
    tally, ledger = counted(agent, [content])
    assert len(ledger) == 0
    assert tally.compactions == 0


# --- one by one -----------------------------------------------------------------------------------


def spends(found: tuple[Tally, Ledger]) -> list[tuple[int, int, int, int]]:
    return [entry.spend.four for entry in found[1]]


def test_claudes_cache_writes_are_the_sum_of_their_parts_or_the_flat_number() -> None:
    flat, empty, parts = reply("m1"), reply("m2"), reply("m3")
    del flat["message"]["usage"]["cache_creation"]
    empty["message"]["usage"]["cache_creation"] = {}
    parts["message"]["usage"]["cache_creation"] = {"ephemeral_1h_input_tokens": 50}
    found = count_all("claude", [flat, empty, parts])
    assert spends(found) == [(1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 50)]


def test_claudes_todos_files_and_compactions_are_reported() -> None:
    todos = [{"content": "one", "status": "completed"}, {"content": "two", "status": "done?"}]
    tally, ledger = count_all(
        "claude",
        [
            prompt(0, "mine"),
            reply("m1", tokens=(9, 9, 9, 9), content=[tool_use("Edit", file_path="/a")]),
            reply("m1", tokens=(9, 9, 9, 9), content=[tool_use("Edit", file_path='/a"b')]),
            reply("m1", tokens=(9, 9, 9, 9), content=[tool_use("TodoWrite", todos=todos)]),
            reply("side", side=True, content=[tool_use("Edit", file_path="/side")]),
            boundary(),
            reply("m2", stop="end_turn", content=[tool_use("Write", file_path="/a")], second=3),
        ],
    )
    assert (tally.session_id, tally.cwd) == ("mine", "/home/dev/p")
    assert tally.files == {"/a": 2, '/a"b': 1}
    assert [(todo.text, todo.status) for todo in tally.todos.values()] == [
        ("one", "completed"),
        ("two", "pending"),
    ]
    assert tally.compactions == 1
    assert [bool(entry.flags & ENDS_TURN) for entry in ledger] == [False, False, True]


@given(st.lists(task_blocks, max_size=8), st.data())
def test_claudes_tasks_have_the_numbers_that_the_client_gives_them(
    blocks: list[Record], data: st.DataObject
) -> None:
    records = [reply(f"m{n}", content=[block]) for n, block in enumerate(blocks)]
    expected: dict[str, str] = {}
    made = 0
    for block in blocks:
        number, status = block["input"].get("taskId", ""), block["input"].get("status")
        if block["name"] == "TaskCreate":
            made += 1
            expected[str(made)] = "pending"
        elif status == "deleted":
            expected.pop(number, None)
        elif number in expected:
            expected[number] = status
    tally, _ = counted("claude", cuts([compact(r) for r in records], data), resumed=True)
    assert {number: todo.status for number, todo in tally.todos.items()} == expected


@pytest.mark.parametrize("resumed", [False, True])
def test_a_repeated_task_of_claudes_is_one_and_moves_no_number(resumed: bool) -> None:
    first, second = tool_use("TaskCreate", subject="one"), tool_use("TaskCreate", subject="two")
    second["id"] = "toolu_2"
    records = [
        reply("m1", content=[first]),
        reply("m1", content=[second]),
        reply("m1", content=[first]),
        reply("m2", content=[tool_use("TaskCreate", subject="three")]),
        reply("m1", content=[second]),
        reply("m3", content=[tool_use("TaskUpdate", taskId="3", status="completed")]),
    ]
    tally, _ = counted("claude", [compact(record) for record in records], resumed=resumed)
    assert [(todo.text, todo.status) for todo in tally.todos.values()] == [
        ("one", "pending"),
        ("two", "pending"),
        ("three", "completed"),
    ]


def test_tasks_of_claudes_without_an_id_are_never_taken_for_the_same() -> None:
    block = tool_use("TaskCreate", subject="one")
    for nameless in ({k: v for k, v in block.items() if k != "id"}, {**block, "id": None}):
        tally, _ = count_all("claude", [reply("m1", content=[nameless])] * 2)
        assert len(tally.todos) == 2


def test_an_error_of_the_api_tells_the_limit_also_as_the_last_line_without_its_end() -> None:
    failed = reply("e", tokens=(0, 0, 0, 0))
    failed |= {
        "isApiErrorMessage": True,
        "quotaLimits": {"rateLimitType": "five_hour", "utilization": 0.5, "resetsAt": START_S},
    }
    for end in (b"\n", b""):
        tally, ledger = counted("claude", [compact(failed).rstrip() + end])
        assert (tally.limits["five_hour"].used_percent, len(ledger)) == (50.0, 0)
        assert tally.limits["five_hour"].resets_at == START_S


def test_codexs_parts_are_disjoint_and_repeats_count_once() -> None:
    tally, ledger = count_all(
        "codex",
        [
            meta("c1", "c0"),
            turn(),
            count_line((100, 60, 10, 5), second=1),
            count_line((100, 60, 10, 5), second=2),
            count_line((10, 60, 60, 5), (110, 120, 70, 10), second=3, percent=40),
            event("event_msg", {"type": "task_complete"}),
            patch("a.py", "b c.py"),
            plan(("look", "completed"), ("write", "in_progress")),
            event("compacted", {"message": "so far"}),
        ],
    )
    assert spends((tally, ledger)) == [(30, 5, 60, 10), (0, 5, 10, 0)]
    assert [bool(entry.flags & ENDS_TURN) for entry in ledger] == [False, True]
    assert (tally.session_id, tally.forked_from, tally.cwd) == ("c1", "c0", "/home/dev/p")
    assert (tally.files, tally.compactions) == ({"a.py": 1, "b c.py": 1}, 1)
    assert [todo.status for todo in tally.todos.values()] == ["completed", "in_progress"]
    assert tally.limits["five_hour"].used_percent == 40


@pytest.mark.parametrize("kind", ["token_count", "update_plan", "turn_context"])
def test_codexs_records_count_with_their_keys_in_any_order(kind: str) -> None:
    wanted = {
        "token_count": count_line((1, 0, 0, 0)),
        "update_plan": plan(*[(f"a step with many words {n}", "pending") for n in range(9)]),
        "turn_context": turn("gpt-5.2"),
    }[kind]
    records = [meta("c1"), wanted, event("token_usage_record", {}), count_line((2, 0, 0, 0))]
    plain = outcome(count_all("codex", records))
    back = {k: dict(reversed(v.items())) if k == "payload" else v for k, v in wanted.items()}
    front = {"payload": {"type": wanted["payload"].get("type"), **back["payload"]}, **wanted}
    mixed = {"payload": {"rate_limits": None, **wanted["payload"]}, **wanted}
    for record in (back, dict(reversed(back.items())), front, mixed):
        kept = {key: value for key, value in record.items() if value is not None}
        for write in (compact, spaced):
            data = b"".join([compact(meta("c1")), write(kept), *map(compact, records[2:])])
            found = outcome(counted("codex", [data]))
            assert {**found, "limits": plain["limits"]} == plain


@pytest.mark.parametrize(
    ("agent", "record"),
    [
        ("claude", reply("\ud83d")),
        ("claude", reply(model="\ud83d")),
        ("claude", {**reply(), "cwd": "\ud83d", "sessionId": "\ud83d"}),
        ("claude", reply(content=[tool_use("TodoWrite", todos=[{"content": "\ud83d"}])])),
        ("claude", {**reply(), "cwd": 5, "message": reply(content=[
            tool_use("Edit", file_path="\ud83d")])["message"]}),
        ("claude", reply(tokens=(10**19, 0, 0, 0))),
        ("codex", turn("\ud83d")),
        ("codex", meta("\ud83d", "\ud83d")),
        ("codex", count_line((10**19, 0, 0, 0))),
        ("codex", count_line((1, 0, 0, 0), (10**30, 0, 0, 0))),
    ],
)  # fmt: skip
def test_a_failed_write_does_no_harm(agent: str, record: Record) -> None:
    lines = [json.dumps(r).encode() + b"\n" for r in (prompt(), record)]
    counted(agent, lines, resumed=True)


def test_geminis_older_file_is_one_object_over_many_lines(tmp_path: Path) -> None:
    """Written with `JSON.stringify(conversation, null, 2)`."""
    message = {
        "id": "1", "type": "gemini", "timestamp": stamp(1), "model": "g",
        "tokens": {"input": 10, "output": 2, "cached": 4, "thoughts": 1, "tool": 0, "total": 13},
    }  # fmt: skip
    written = json.dumps({"sessionId": "s", "startTime": stamp(0), "messages": [message]}, indent=2)
    file = tmp_path / "session-1.json"
    file.write_text(written)
    info = file.stat()
    stamped = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
    counted = count(FileOnDisk("gemini", str(tmp_path), str(file), "", "", stamped), None)
    assert counted is not None
    assert [entry.spend.four for entry in counted[1]] == [(6, 3, 4, 0)]


def test_keys_are_the_same_in_every_process_and_never_none() -> None:
    assert key_of(b"m1", b"r1") == key_of(b"m1\0r1") == -7244628328474742340
    assert key_of(b"") != 0


def test_times_are_milliseconds_and_none_is_zero() -> None:
    assert milliseconds("2026-10-26T00:00:00.250Z") == 1792972800250
    assert milliseconds("2026-10-26T02:00:00.250+02:00") == 1792972800250
    for none in ("", "yesterday", "2026-13-01T00:00:00Z"):
        assert milliseconds(none) == 0


def test_a_time_without_a_zone_is_utc_wherever_segue_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert milliseconds("2026-10-26T00:00:00.250") == 1792972800250
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_short_record_of_codexs_is_not_taken_for_the_one_after_it() -> None:
    short = {"type": "turn_context", "payload": {"model": "gpt-5.2"}}
    after = b'{"type":"token_usage_record","payload":{}}\n'
    _, ledger = counted("codex", [spaced(short) + after + compact(count_line((1, 0, 0, 0)))])
    assert ledger.models == ["gpt-5.2"]


def test_the_last_tool_call_of_a_reply_may_end_the_turn() -> None:
    blocks = [tool_use("Bash", command="ls")]
    records = [reply(content=blocks), reply(content=blocks, stop="end_turn")]
    _, ledger = count_all("claude", records)
    assert [entry.flags & ENDS_TURN for entry in ledger] == [ENDS_TURN]


@pytest.mark.parametrize(
    ("agent", "record"), [("claude", reply()), ("codex", count_line((1,) * 4))]
)
def test_endless_nesting_does_no_harm(agent: str, record: Record) -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    line = compact(record)
    lines = [line.replace(b"}\n", b',"x":' + deep + b"}\n"), line, deep + b"\n"]
    _, ledger = counted(agent, lines)
    assert len(ledger) == 1


def test_the_settings_name_codexs_model_where_the_turns_context_is_lost() -> None:
    settings_record = {
        "timestamp": stamp(0),
        "type": "event_msg",
        "payload": {"type": "thread_settings_applied", "thread_settings": {"model": "gpt-5.5"}},
    }
    lines = [
        json.dumps(r, separators=(",", ":")) for r in (settings_record, count_line((9, 0, 0, 1)))
    ]
    (_, ledger), _ = fed("codex", "\n".join(lines).encode() + b"\n", [10_000])
    assert ledger.models == ["gpt-5.5"]
