"""Scanning: the sums are what was written, and only new parts of a file are read again."""

import json
import os
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents.counters import (
    boundary,
    compact,
    count_line,
    event,
    meta,
    patch,
    plan,
    progress,
    prompt,
    reply,
    stamp,
    tool_use,
    turn,
)
from support.files.scan import (
    FAMILY,
    A,
    B,
    C,
    Machine,
    Totals,
    load,
    rollout,
    same,
    segue,
    session,
)

from segue.sessions import find
from segue.sessions.count.index import Index
from segue.sessions.count.scan import scan, unread_bytes

histories = load(Path(__file__).parents[2] / "bench/support/histories.py")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# --- sums -----------------------------------------------------------------------------------------


@pytest.fixture(scope="session", params=[1, 2])
def history(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("history")
    return histories.write(folder, megabytes=3, files=14, seed=request.param)


def written(history: Any) -> Totals:
    """What the generator knows of it, by agent and model."""
    sums: Totals = {}
    for agent, totals in (("claude", history.claude), ("codex", history.codex)):
        for (_, model), t in totals.by_day_and_model.items():
            old = sums.get((agent, model), (0, 0, 0, 0))
            new = (t.input, t.output, t.cache_read, t.cache_creation)
            sums[agent, model] = (
                old[0] + new[0], old[1] + new[1], old[2] + new[2], old[3] + new[3],
            )  # fmt: skip
    return sums


def test_sums_of_a_history_are_what_was_written(history: Any, own_home: Path) -> None:
    homes = {"CLAUDE_CONFIG_DIR": history.claude_home, "CODEX_HOME": history.codex_home}
    first = segue("scan", "--json", **homes)
    assert (first.returncode, first.stderr) == (0, "")
    told = json.loads(first.stdout)
    totals = {
        (t["agent"], t["model"]): (t["input"], t["output"], t["cache_read"], t["cache_write"])
        for t in told["totals"]
    }
    assert totals == written(history)
    assert {"files", "bytes", "totals"} <= told.keys()
    assert (told["files"], told["bytes"]) == (history.files, history.size_bytes)
    assert told["read_bytes"] == history.size_bytes
    assert all(
        t.keys() == {"agent", "model", "input", "output", "cache_read", "cache_write"}
        for t in told["totals"]
    )
    assert first.stdout.count("\n") == 1
    second = json.loads(segue("scan", "--json", **homes).stdout)
    assert second == {**told, "read_bytes": 0}


def test_nothing_at_all_is_an_empty_sum() -> None:
    done = segue("scan", "--json")
    sums = {"files": 0, "bytes": 0, "read_bytes": 0, "totals": []}
    assert json.loads(done.stdout) == {"schema": 1, **sums}
    assert segue("scan").stdout == "0 files, 0 bytes, nothing new\n"


def test_people_get_a_table(machine: Machine) -> None:
    machine.write("-p/s1.jsonl", reply(tokens=(1_000, 2_000, 3_000, 4_000)))
    done = segue("scan", **machine.environment)
    size = machine.found()[0][0].size
    assert done.stdout.splitlines() == [
        "agent   model            input  output  cache read  cache write",
        "claude  claude-opus-4-5  1,000   2,000       3,000        4,000",
        f"1 files, {size} bytes, {size} bytes of it new",
    ]


def test_costs_are_reported_if_asked_for(machine: Machine) -> None:
    machine.write("-p/s1.jsonl", reply(tokens=(1_000_000, 0, 0, 0)), reply("m2", model="nobody's"))
    done = segue("scan", "--json", "--cost", **machine.environment)
    known, unknown = json.loads(done.stdout)["totals"]
    assert known["cost_usd"] > 0
    assert (unknown["model"], unknown["cost_usd"]) == ("nobody's", None)


def test_what_is_cached_for_an_hour_costs_more_than_for_five_minutes_and_once(
    machine: Machine,
) -> None:
    written = reply(tokens=(0, 0, 0, 2_000_000))  # half for an hour: see `reply`
    machine.write("-p/s1.jsonl", written, written)
    machine.write("-p/s2.jsonl", written)  # a copy, as a fork has it
    for words in (("--cost",), ("--by", "model")):
        told = json.loads(segue("scan", "--json", *words, **machine.environment).stdout)
        (row,) = told.get("totals") or told["rows"]
        assert (row["cache_write"], row["cost_usd"]) == (2_000_000, 6.25 + 10.0)
        assert "hour_write" not in row


# --- only what is new -----------------------------------------------------------------------------


def test_a_second_scan_reads_nothing_and_one_line_costs_one_line(machine: Machine) -> None:
    for number in range(5):
        machine.write(f"-p/s{number}.jsonl", prompt(), reply(f"m{number}", f"r{number}"))
    machine.write("rollout-1.jsonl", meta("1"), turn(), count_line((9, 0, 0, 1)))
    first = same(machine)
    assert first.done.read_bytes == first.done.bytes
    again = same(machine)
    assert again.done.read_bytes == 0
    assert again.totals == first.totals
    line = compact(reply("new", "rnew", tokens=(100, 0, 0, 0)))
    machine.append("-p/s3.jsonl", line)
    third = same(machine)
    assert third.done.read_bytes == len(line)
    assert third.input()["claude-opus-4-5"] == first.input()["claude-opus-4-5"] + 100
    assert same(machine).done.read_bytes == 0


def test_nothing_is_opened_where_nothing_has_changed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write("-p/s1.jsonl", reply())
    machine.write("-p/s2.jsonl", reply("m2"))
    machine.scan()
    opened: list[str] = []
    real = find.open_file

    def open_file(path: str) -> int:
        opened.append(path)
        return real(path)

    monkeypatch.setattr(find, "open_file", open_file)
    machine.scan()
    assert opened == []
    path = machine.append("-p/s2.jsonl", reply("m3"))
    machine.scan()
    assert opened == [str(path)]


def test_a_line_is_counted_when_it_is_whole(machine: Machine) -> None:
    line = compact(reply("m2", "r2", tokens=(70, 0, 0, 0)))
    machine.write("-p/s1.jsonl", reply(tokens=(1, 0, 0, 0)), line[:150])
    assert same(machine).input() == {"claude-opus-4-5": 1}
    machine.append("-p/s1.jsonl", line[150:-1])  # whole, but for its newline
    assert same(machine).input() == {"claude-opus-4-5": 71}
    machine.append("-p/s1.jsonl", b"\n", reply("m3", "r3", tokens=(500, 0, 0, 0)))
    seen = same(machine)
    assert seen.input() == {"claude-opus-4-5": 571}


REWRITTEN: dict[str, tuple[list[Any], list[Any]]] = {
    # What was there, and what is written over it, into the same inode.
    "larger, with another beginning": ([reply("a")], [reply("b"), reply("c")]),
    "of the same size, with another beginning": ([reply("a"), prompt()], [reply("b"), prompt()]),
    "larger, with the same beginning": (
        [prompt(said="x" * 2000), reply("a"), reply("b", tokens=(9, 9, 9, 9))],
        [prompt(said="x" * 2000), reply("c"), reply("d", tokens=(8, 8, 8, 8)), reply("e")],
    ),
    "of the same size, with the same beginning": (
        [prompt(said="x" * 2000), reply("a", tokens=(9, 9, 9, 9))],
        [prompt(said="x" * 2000), reply("b", tokens=(8, 8, 8, 8))],
    ),
    "larger, with another beginning and the same end": (
        [reply("a"), prompt(said="x" * 2000)],
        [reply("b"), prompt(said="x" * 2000), reply("c")],
    ),
    "smaller": ([reply("a"), reply("b")], [reply("c")]),
    "empty": ([reply("a")], []),
}


@pytest.mark.parametrize("case", REWRITTEN)
@pytest.mark.parametrize("inode", ["same", "other"])
def test_a_file_that_is_rewritten_is_read_again(case: str, inode: str, machine: Machine) -> None:
    before, after = REWRITTEN[case]
    place = machine.write("-p/s1.jsonl", *before)
    machine.write("-p/s2.jsonl", reply("other"))
    was = place.stat()
    same(machine)
    if inode == "other":
        machine.write(place.with_suffix(".new"), *after)
        os.replace(place.with_suffix(".new"), place)
    else:
        machine.write(place, *after)
    assert (place.stat().st_ino == was.st_ino) == (inode == "same")
    assert ("same size" in case) == (place.stat().st_size == was.st_size)
    assert same(machine).done.read_bytes == place.stat().st_size
    assert same(machine).done.read_bytes == 0


def test_another_file_is_read_again_though_size_and_time_and_both_its_ends_are_the_same(
    machine: Machine,
) -> None:
    """Only the inode tells."""
    ends = prompt(said="x" * 2000)
    place = machine.write("-p/s1.jsonl", ends, reply("a", tokens=(1, 0, 0, 0)), ends)
    was = place.stat()
    assert same(machine).input() == {"claude-opus-4-5": 1}
    other = place.with_suffix(".new")
    machine.write(other, ends, reply("a", tokens=(2, 0, 0, 0)), ends)
    os.utime(other, ns=(was.st_mtime_ns, was.st_mtime_ns))
    os.replace(other, place)
    now = place.stat()
    assert (now.st_size, now.st_mtime_ns) == (was.st_size, was.st_mtime_ns)
    assert now.st_ino != was.st_ino
    assert same(machine).input() == {"claude-opus-4-5": 2}


def test_another_file_that_continues_like_the_one_before_is_read_again(machine: Machine) -> None:
    """It is larger, with the same bytes up to where the other was read, as far as that is kept."""
    ends = prompt(said="x" * 2000)
    place = machine.write("-p/s1.jsonl", ends, reply("a", tokens=(1, 0, 0, 0)), ends)
    same(machine)
    more = reply("b", tokens=(10, 0, 0, 0))
    other = place.with_suffix(".new")
    machine.write(other, ends, reply("a", tokens=(2, 0, 0, 0)), ends, more)
    os.replace(other, place)
    seen = same(machine)
    assert seen.input() == {"claude-opus-4-5": 12}
    assert seen.done.read_bytes == place.stat().st_size


def test_a_listing_that_is_older_than_the_index_counts_no_more_than_it_lists(
    machine: Machine,
) -> None:
    """Another process listed the file, and counted it when it had grown: what is written down then
    belongs to the size that is written down with it."""
    machine.write("-p/s1.jsonl", reply("a", tokens=(1, 0, 0, 0)))
    older, places = machine.found()
    machine.append("-p/s1.jsonl", reply("b", tokens=(10, 0, 0, 0)))
    assert same(machine).input() == {"claude-opus-4-5": 11}
    index = Index(machine.state / "sessions.db")
    scan(older, index, index.stamps(places))
    row = index.counted(older[0].path)
    totals = index.totals(places)
    index.close()
    assert row is not None
    assert (row.stamp, row.offset) == (older[0].stamp, older[0].size)
    assert [total.input for total in totals] == [1]
    assert same(machine).input() == {"claude-opus-4-5": 11}


def test_the_bytes_ahead_are_known_before(machine: Machine) -> None:
    machine.write("-p/s1.jsonl", reply())
    index = Index(machine.state / "sessions.db")
    found, places = machine.found()
    size = found[0].size
    assert unread_bytes(found, index.stamps(places)) == size
    told: list[int] = []
    scan(found, index, index.stamps(places), progress=told.append)
    assert sum(told) == size
    assert unread_bytes(found, index.stamps(places)) == 0
    machine.append("-p/s1.jsonl", b"123\n")
    assert unread_bytes(machine.found()[0], index.stamps(places)) == 4
    index.close()


def test_a_file_that_cannot_be_read_is_reported_and_the_others_count(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write("-p/a.jsonl", reply("m1", tokens=(1, 0, 0, 0)))
    bad = machine.write("-p/b.jsonl", reply("m2", tokens=(10, 0, 0, 0)))
    machine.write("-p/c.jsonl", reply("m3", tokens=(100, 0, 0, 0)))
    real = find.open_file

    def open_file(path: str) -> int:
        if path == str(bad):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(find, "open_file", open_file)
    found, places = machine.found()
    index = Index(machine.state / "sessions.db")
    done = scan(found, index, index.stamps(places))
    assert done.unreadable == (f"{bad}: Permission denied",)
    assert [t.input for t in index.totals(places)] == [101]
    monkeypatch.undo()
    assert scan(found, index, index.stamps(places)).read_bytes == bad.stat().st_size
    assert [t.input for t in index.totals(places)] == [111]
    index.close()


def test_files_of_homes_that_are_not_looked_at_now_are_kept_and_not_summed(
    machine: Machine,
) -> None:
    machine.write("-p/s1.jsonl", reply(tokens=(1, 0, 0, 0)))
    machine.write("rollout-1.jsonl", turn(), count_line((20, 0, 0, 0)))
    both = same(machine)
    assert both.input("codex") == {"gpt-5.5": 20}
    homes = dict(machine.environment)
    machine.environment["CODEX_HOME"] = str(machine.codex.parent / "elsewhere")
    seen = same(machine)
    assert (seen.input(), seen.input("codex")) == ({"claude-opus-4-5": 1}, {})
    machine.environment = homes
    seen = same(machine)
    assert (seen.totals, seen.done.read_bytes) == (both.totals, 0)


def test_a_home_inside_another_is_summed_by_itself(machine: Machine) -> None:
    """The same file may be found from another home than before."""
    outer = machine.codex.parent / "pi"
    entry = {
        "type": "message", "id": "e1", "timestamp": stamp(1),
        "message": {"role": "assistant", "model": "m", "usage": {"input": 7, "output": 1}},
    }  # fmt: skip
    machine.write(outer / "inner/x_1.jsonl", {"type": "session", "id": "1"}, entry)
    machine.environment["PI_CODING_AGENT_SESSION_DIR"] = str(outer)
    assert same(machine).input("pi") == {"m": 7}
    machine.environment["PI_CODING_AGENT_SESSION_DIR"] = str(outer / "inner")
    assert same(machine).input("pi") == {"m": 7}


def test_a_name_that_is_not_text_does_no_harm(machine: Machine) -> None:
    """No agent gives such names; whether the file counts does not matter, the others must."""
    machine.write(os.fsdecode(b"-p/caf\xe9.jsonl"), reply("m1"))
    machine.write("-p/s1.jsonl", reply("m2", model="mine", tokens=(5, 0, 0, 0)))
    done = segue("scan", "--json", **machine.environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert [t["input"] for t in json.loads(done.stdout)["totals"] if t["model"] == "mine"] == [5]


def test_half_a_character_in_a_record_does_no_harm(machine: Machine) -> None:
    """JavaScript cuts texts in the middle of a pair, and writes what is left as an escape."""
    cut = "cut \ud83d"
    todo = tool_use("TodoWrite", todos=[{"content": cut, "status": "pending"}])
    records = [
        reply("m1", content=[todo], tokens=(1, 0, 0, 0)),
        reply("m2\ud83d", model=f"model {cut}", tokens=(20, 0, 0, 0)),
        {**prompt(), "cwd": f"/{cut}", "sessionId": cut},
    ]
    machine.write("-p/s1.jsonl", *(json.dumps(r).encode() + b"\n" for r in records))
    assert sum(same(machine).input().values()) == 21


def test_a_change_in_a_database_does_not_make_all_files_be_read_again(machine: Machine) -> None:
    for number in range(3):
        machine.write(f"-p/s{number}.jsonl", reply(f"m{number}"))
    path = machine.codex.parent / "opencode.db"
    machine.environment["OPENCODE_DB"] = str(path)
    opencode(path, 1)
    assert same(machine).input("opencode") == {"m": 1}
    opencode(path, 2)
    seen = machine.scan()
    assert seen.input("opencode") == {"m": 3}
    assert seen.done.read_bytes == 0
    assert same(machine).totals == seen.totals


def opencode(path: Path, number: int) -> None:
    """One more message in a database of opencode's."""
    db = sqlite3.connect(path)
    with db:
        db.execute("CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, parent_id TEXT)")
        db.execute(
            "CREATE TABLE IF NOT EXISTS message (id TEXT PRIMARY KEY, session_id TEXT,"
            " time_created INTEGER, time_updated INTEGER, data TEXT)"
        )
        db.execute("INSERT OR IGNORE INTO session VALUES ('s', NULL)")
        data = {"role": "assistant", "modelID": "m", "tokens": {"input": number, "output": 0}}
        db.execute(
            "INSERT INTO message VALUES (?, 's', ?, ?, ?)",
            (f"msg{number}", number, number, json.dumps(data)),
        )
    db.close()


# --- the same reply in several files --------------------------------------------------------------

OPUS, HAIKU = "claude-opus-4-5", "claude-haiku-4-5"


def test_a_reply_that_stands_in_several_files_counts_once(machine: Machine) -> None:
    for name in ("-p/a.jsonl", "-p/b.jsonl", "-q/c.jsonl"):
        machine.write(name, reply("m1", tokens=(1, 0, 0, 0)), reply(name, tokens=(10, 0, 0, 0)))
        seen = same(machine)
    assert seen.input() == {OPUS: 31}


def test_other_requests_with_the_same_message_id_count_apart(machine: Machine) -> None:
    machine.write("-p/a.jsonl", reply("m1", "r1", tokens=(1, 0, 0, 0)))
    machine.write("-p/b.jsonl", reply("m1", "r2", tokens=(20, 0, 0, 0)))
    assert same(machine).input() == {OPUS: 21}


def test_replies_without_an_id_always_count(machine: Machine) -> None:
    machine.write("-p/a.jsonl", reply("", tokens=(1, 0, 0, 0)), reply("", tokens=(1, 0, 0, 0)))
    machine.write("-p/b.jsonl", reply("", tokens=(1, 0, 0, 0)))
    assert same(machine).input() == {OPUS: 3}
    machine.append("-p/b.jsonl", reply("", tokens=(1, 0, 0, 0)))
    assert same(machine).input() == {OPUS: 4}


CONTESTS = {
    # Which of two copies counts: the winner's model is opus.
    "main before side, though smaller": (
        ("-p/b.jsonl", reply(tokens=(1, 0, 0, 0), model=OPUS)),
        ("-p/a.jsonl", reply(tokens=(99, 0, 0, 0), model=HAIKU, side=True)),
    ),
    "the larger sum": (
        ("-p/b.jsonl", reply(tokens=(1, 0, 3, 0), model=OPUS)),
        ("-p/a.jsonl", reply(tokens=(1, 0, 2, 0), model=HAIKU)),
    ),
    "the larger of two sub-agents'": (
        ("-p/b.jsonl", reply(tokens=(1, 3, 0, 0), model=OPUS, side=True)),
        ("-p/a.jsonl", reply(tokens=(1, 2, 0, 0), model=HAIKU, side=True)),
    ),
    "the first path": (
        ("-p/a.jsonl", reply(tokens=(1, 0, 0, 0), model=OPUS)),
        ("-p/b.jsonl", reply(tokens=(1, 0, 0, 0), model=HAIKU)),
    ),
    "the first path by its bytes": (
        ("-p/B.jsonl", reply(tokens=(1, 0, 0, 0), model=OPUS)),
        ("-p/a.jsonl", reply(tokens=(1, 0, 0, 0), model=HAIKU)),
    ),
    "a sub-agent's own file before what its parent tells of it": (
        ("-p/s/subagents/agent-a.jsonl", reply(tokens=(2, 0, 0, 0), model=OPUS, side=True)),
        ("-p/s.jsonl", progress(reply(tokens=(1, 0, 0, 0), model=HAIKU, side=True))),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTESTS)
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("end", ["deleted", "truncated", "replaced", "renamed away"])
def test_which_copy_counts_and_after_its_end_the_other_does(
    case: str, first: int, end: str, machine: Machine
) -> None:
    files = CONTESTS[case]
    for number in (first, 1 - first):
        path, record = files[number]
        machine.write(path, record)
        machine.scan()
    assert same(machine).input() == {OPUS: files[0][1]["message"]["usage"]["input_tokens"]}
    place = machine.place(files[0][0])
    if end == "deleted":
        place.unlink()
    elif end == "truncated":
        os.truncate(place, 10)
        machine.touch(place)
    elif end == "replaced":
        machine.write(place.with_suffix(".new"), reply("other", tokens=(0, 5, 0, 0), model=OPUS))
        os.replace(place.with_suffix(".new"), place)
    else:
        place.rename(place.with_suffix(".away"))
    seen = same(machine)
    loser = files[1][1].get("data", {}).get("message", files[1][1])
    assert seen.totals["claude", HAIKU][0] == loser["message"]["usage"]["input_tokens"]
    assert seen.input().get(OPUS, 0) == 0


def test_a_copy_that_grows_overtakes_the_other(machine: Machine) -> None:
    machine.write("-p/a.jsonl", reply(tokens=(5, 0, 0, 0), model=OPUS))
    machine.write("-p/b.jsonl", reply(tokens=(1, 0, 0, 0), model=HAIKU))
    assert same(machine).input() == {OPUS: 5}
    machine.append("-p/b.jsonl", reply(tokens=(9, 0, 0, 0), model=HAIKU))
    assert same(machine).input() == {HAIKU: 9}


def test_many_files_with_the_same_replies_count_once_also_with_few_new_ones(
    machine: Machine,
) -> None:
    """A large batch looks for copies in another way than a small one."""
    shared = [reply(f"m{n}", f"r{n}", tokens=(1, 0, 0, 0)) for n in range(40)]
    machine.write("-p/a.jsonl", *shared)
    machine.write("-p/b.jsonl", *shared)
    assert same(machine).input() == {OPUS: 40}
    machine.write("-p/c.jsonl", shared[7], reply("own", tokens=(1, 0, 0, 0)))
    assert same(machine).input() == {OPUS: 41}
    machine.append("-p/b.jsonl", reply("own", tokens=(1, 0, 0, 0)))
    assert same(machine).input() == {OPUS: 41}
    machine.place("-p/c.jsonl").unlink()
    machine.place("-p/a.jsonl").unlink()
    assert same(machine).input() == {OPUS: 41}


def test_a_file_in_the_place_of_one_that_is_gone_has_nothing_of_it(machine: Machine) -> None:
    """The index numbers files, and may give a number again."""
    shared = reply("m1", tokens=(10, 0, 0, 0))
    machine.write("-p/a.jsonl", shared)
    machine.write("-p/b.jsonl", shared, reply("m2", tokens=(1, 0, 0, 0)))
    assert same(machine).input() == {OPUS: 11}
    machine.place("-p/b.jsonl").unlink()
    assert same(machine).input() == {OPUS: 10}
    machine.write("-p/c.jsonl", reply("m3", tokens=(200, 0, 0, 0)))
    assert same(machine).input() == {OPUS: 210}


# --- forks ----------------------------------------------------------------------------------------


WHOLE = 1 + 2 + 4 + 8 + 16 + 32


@pytest.mark.parametrize("order", ["AB", "BA", "ABC", "CBA", "BCA", "ACB", "CAB", "DBCA", "BDAC"])
def test_a_forks_copy_counts_once_whenever_its_parent_is_found(
    order: str, machine: Machine
) -> None:
    names = dict(zip("ABCD", FAMILY, strict=True))
    expected = WHOLE - (16 if "C" not in order else 0) - (32 if "D" not in order else 0)
    for letter in order:
        machine.write(rollout(names[letter]), FAMILY[names[letter]])
        seen = same(machine)
    assert seen.input("codex") == {"gpt-5.5": expected}


def test_a_whole_family_that_is_found_at_once_counts_once(machine: Machine) -> None:
    for name, content in FAMILY.items():
        machine.write(rollout(name), content)
    assert same(machine).input("codex") == {"gpt-5.5": WHOLE}


@pytest.mark.parametrize("gone", ["A", "B", "C", "D", "AB", "AD"])
def test_when_a_parent_is_deleted_its_forks_count_by_themselves(
    gone: str, machine: Machine
) -> None:
    names = dict(zip("ABCD", FAMILY, strict=True))
    for name, content in FAMILY.items():
        machine.write(rollout(name), content)
    same(machine)
    for letter in gone:
        machine.place(rollout(names[letter])).unlink()
        same(machine)
    for letter in gone:
        machine.write(rollout(names[letter]), FAMILY[names[letter]])
    assert same(machine).input("codex") == {"gpt-5.5": WHOLE}


def test_a_parent_that_grows_after_its_fork_changes_nothing(machine: Machine) -> None:
    machine.write(rollout(A), FAMILY[A])
    machine.write(rollout(B), FAMILY[B])
    same(machine)
    machine.append(rollout(A), count_line((64, 0, 0, 0), (71, 0, 0, 0), second=500))
    machine.append(rollout(B), count_line((128, 0, 0, 0), (200, 0, 0, 0), second=1500))
    assert same(machine).input("codex") == {"gpt-5.5": 15 + 64 + 128}


def test_a_parent_that_grows_costs_what_is_new_and_not_its_forks(machine: Machine) -> None:
    for name, content in FAMILY.items():
        machine.write(rollout(name), content)
    same(machine)
    line = compact(count_line((64, 0, 0, 0), (71, 0, 0, 0), second=500))
    machine.append(rollout(A), line)
    seen = same(machine)
    assert seen.input("codex") == {"gpt-5.5": WHOLE + 64}
    assert seen.done.read_bytes == len(line)


@pytest.mark.parametrize("lines", [1, 2, 3, 4])
@pytest.mark.parametrize("also", ["", "the parent grows", "the parent is cut"])
def test_a_fork_that_is_seen_before_its_copy_is_whole_is_matched_later(
    lines: int, also: str, machine: Machine
) -> None:
    written = FAMILY[B].splitlines(keepends=True)
    machine.write(rollout(A), FAMILY[A])
    machine.write(rollout(B), *written[:lines])
    same(machine)
    machine.append(rollout(B), *written[lines:])
    if also == "the parent grows":
        line = count_line((64, 0, 0, 0), (71, 0, 0, 0), second=500)
        machine.append(rollout(A), line)
    elif also:
        place = machine.place(rollout(A))
        os.truncate(place, len(b"".join(FAMILY[A].splitlines(keepends=True)[:3])))
        machine.touch(place)
    total = {"": 15, "the parent grows": 15 + 64}.get(also, 11)
    assert same(machine).input("codex") == {"gpt-5.5": total}


def test_a_parent_that_is_cut_and_grows_again_is_matched_again(machine: Machine) -> None:
    machine.write(rollout(A), FAMILY[A])
    machine.write(rollout(B), FAMILY[B])
    same(machine)
    place = machine.place(rollout(A))
    lines = FAMILY[A].splitlines(keepends=True)
    os.truncate(place, len(b"".join(lines[:3])))
    machine.touch(place)
    same(machine)
    machine.append(place, *lines[3:])
    assert same(machine).input("codex") == {"gpt-5.5": 15}


def test_a_sub_agent_that_codex_spawned_is_a_fork_too(machine: Machine) -> None:
    child = session(B, [1, 2, 8], second=1000).splitlines(keepends=True)
    start = json.loads(child[0])
    start["payload"]["source"] = {"subagent": {"thread_spawn": {"parent_thread_id": A}}}
    machine.write(rollout(A), FAMILY[A])
    machine.write(rollout(B), start, *child[1:])
    assert same(machine).input("codex") == {"gpt-5.5": 15}


def test_an_archived_copy_of_a_session_counts_once(machine: Machine) -> None:
    machine.write(rollout(A), FAMILY[A])
    machine.write(machine.codex / "archived_sessions" / rollout(A), FAMILY[A])
    assert same(machine).input("codex") == {"gpt-5.5": 7}
    machine.place(rollout(A)).unlink()
    assert same(machine).input("codex") == {"gpt-5.5": 7}


def test_a_token_count_counts_if_the_sum_has_changed(machine: Machine) -> None:
    lines = [
        meta(A),
        turn(),
        count_line((10, 4, 1, 2), (10, 4, 1, 2), second=1),
        count_line((10, 4, 1, 2), (10, 4, 1, 2), second=2),  # said again
        count_line((0, 0, 0, 0), (0, 0, 0, 0), second=3),  # made up
        turn("gpt-5.2", second=3),
        count_line((100, 0, 0, 1), (110, 4, 1, 3), second=4),
    ]
    machine.write(rollout(A), *lines)
    assert same(machine).totals == {
        ("codex", "gpt-5.5"): (5, 2, 4, 1),
        ("codex", "gpt-5.2"): (100, 1, 0, 0),
    }


def test_files_that_are_rewritten_with_another_model_count_for_that_one(
    machine: Machine,
) -> None:
    """Rows hold the number of a model: the same rows may mean another one."""
    for model in ("claude-opus-4-5", "claude-sonnet-4-5", "claude-opus-4-5"):
        for name in ("-p/a.jsonl", "-p/b.jsonl"):
            machine.write(name, reply("m1", tokens=(7, 0, 0, 0), model=model))
        assert same(machine).input() == {model: 7}


def test_a_file_whose_tally_is_damaged_is_counted_from_its_start(machine: Machine) -> None:
    edit = reply("m1", content=[tool_use("Edit", file_path="/a")])
    machine.write("-p/a.jsonl", prompt(), edit)
    machine.scan()
    with sqlite3.connect(machine.state / "sessions.db") as db:
        db.execute("UPDATE file SET tally = x'ff'")
    db.close()
    machine.append("-p/a.jsonl", reply("m2", content=[tool_use("Edit", file_path="/b")]))
    seen = same(machine)
    (told,) = seen.files.values()
    assert told["files"] == {"/a": 1, "/b": 1}


def test_a_file_that_another_scan_adds_meanwhile_is_not_forgotten(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from segue.cli import cli

    for name, value in machine.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SEGUE_HOME", str(machine.state))
    machine.write("-p/a.jsonl", reply("m1", tokens=(7, 0, 0, 0)))
    listing = find.sessions

    def listed(homes: Any) -> list[find.FileOnDisk]:
        found = listing(homes)
        monkeypatch.setattr(find, "sessions", listing)
        machine.write("-p/b.jsonl", reply("m2", tokens=(100, 0, 0, 0)))
        machine.scan()  # another process, between the list of files and what is done with it
        return found

    monkeypatch.setattr(find, "sessions", listed)
    done = CliRunner().invoke(cli, ["scan", "--json"], catch_exceptions=False)
    assert [total["input"] for total in json.loads(done.stdout)["totals"]] == [107]


# --- any history of changes -----------------------------------------------------------------------

NAMES = (
    "-p/a.jsonl", "-p/b.jsonl", "-q/c.jsonl", "-p/a/subagents/agent-x.jsonl",
    rollout(A), rollout(B), rollout(C),
)  # fmt: skip
PARENTS = {A: "", B: A, C: B}

small = st.integers(0, 3)
pieces = st.tuples(st.sampled_from(("reply", "reply", "side", "again", "compaction", "edit", "todo",
                                    "task", "patch", "plan", "junk")), small, small)  # fmt: skip
contents = st.lists(pieces, min_size=1, max_size=3)
names = st.sampled_from(NAMES)
acts = st.lists(
    st.one_of(
        st.tuples(st.just("append"), names, contents),
        st.tuples(st.just("append"), names, contents),
        st.tuples(st.just("cut append"), names, contents),
        st.tuples(st.just("rewrite"), names, contents),
        st.tuples(st.just("replace"), names, contents),
        st.tuples(st.just("truncate"), names, st.floats(0, 1)),
        st.tuples(st.just("rename"), names, names),
        st.tuples(st.just("delete"), names, st.none()),
        st.tuples(st.just("scan"), names, st.none()),
        st.tuples(st.just("scan"), names, st.none()),
    ),
    min_size=1,
    max_size=14,
)


class Writer:
    """Agents that write, and a user who tidies up."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.second = 0
        self.rest: dict[str, bytes] = {}  # of a line that is written in two goes

    def lines(self, name: str, content: Sequence[tuple[str, int, int]], *, start: bool) -> bytes:
        is_codex = name.startswith("rollout")
        records: list[Any] = []
        if start:  # no two beginnings are the same: real ones have ids and times in them
            self.second += 1
            key = next((key for key in PARENTS if key in name), "")
            parent = PARENTS.get(key, "")
            records += (
                [meta(key, parent, self.second), turn(second=self.second)]
                if is_codex
                else [prompt(self.second)]
            )
        for piece in content:
            self.second += 1
            records += self.codex(*piece) if is_codex else self.claude(*piece)
        return b"".join(r if isinstance(r, bytes) else compact(r) for r in records)

    def claude(self, kind: str, which: int, size: int) -> list[Any]:
        message, second = f"m{which}", self.second
        tokens = (size, 10**size, 0, which)
        edit = tool_use("Edit", file_path=f"/{which}")
        todo = tool_use("TodoWrite", todos=[{"content": f"{which}", "status": "pending"}])
        task = tool_use("TaskCreate", subject=f"{which}")
        match kind:
            case "side":
                return [reply(message, tokens=tokens, second=second, side=True, model=HAIKU)]
            case "again":
                one = reply(message, tokens=tokens, second=second, content=[edit])
                return [one, reply(message, tokens=tokens, second=second + 0.5)]
            case "compaction":
                return [
                    reply(f"{message}!", tokens=(0, 0, 10**6, 0), second=second),
                    boundary(second),
                    reply(f"{message}?", tokens=(1, 0, 0, 0), second=second + 0.5),
                ]
            case "edit":
                return [reply(message, tokens=tokens, second=second, content=[edit])]
            case "todo":
                return [reply(message, tokens=tokens, second=second, content=[todo])]
            case "task":
                return [reply(message, tokens=tokens, second=second, content=[task])]
            case "junk":
                return [b'"input_tokens" no record\n', b"\0\0\n"]
            case _:
                return [reply(message, tokens=tokens, second=second, stop="end_turn")]

    def codex(self, kind: str, which: int, size: int) -> list[Any]:
        second = self.second
        four = (10**which, size, 0, which)
        match kind:
            case "compaction":
                return [event("compacted", {"message": "so far"}, second=second)]
            case "patch" | "edit":
                return [patch(f"{which}.py", second=second)]
            case "plan" | "todo" | "task":
                return [plan((f"{which}", "pending"), second=second)]
            case "junk":
                return [b"no record\n", b"\0\0\n"]
            case "again":
                one = count_line(four, (second, 0, 0, 0), second=second, percent=which)
                return [one, count_line(four, (second, 0, 0, 0), second=second + 0.5)]
            case _:
                return [count_line(four, (second, 0, 0, 0), second=second, percent=which)]

    def act(self, what: str, name: str, how: Any) -> None:
        machine, place = self.machine, self.machine.place(name)
        is_there = place.exists()
        if what in ("append", "cut append"):
            data = self.rest.pop(name, b"") if is_there else b""
            if is_there and not data and place.read_bytes()[-1:] not in (b"\n", b""):
                data = b"\n"  # after what the user cut off
            data += self.lines(name, how, start=not is_there)
            if what == "cut append":
                data, self.rest[name] = data[:-100], data[-100:]
            machine.append(place, data)
        elif what == "rewrite":
            machine.write(place, self.lines(name, how, start=True))  # the same inode
            self.rest.pop(name, None)
        elif what == "replace":
            other = machine.write(place.with_name("tmp"), self.lines(name, how, start=True))
            os.replace(other, place)
            self.rest.pop(name, None)
        elif not is_there:
            pass
        elif what == "truncate":
            os.truncate(place, int(place.stat().st_size * how))
            machine.touch(place)
            self.rest.pop(name, None)
        elif what == "rename":
            if name.startswith("rollout"):  # its name is its id: it is archived under that
                target = machine.codex / "archived_sessions" / name
            elif how.startswith("rollout"):
                return
            else:
                target = machine.place(how)
            target.parent.mkdir(parents=True, exist_ok=True)
            place.rename(target)
            self.rest.pop(how, None)
            rest = self.rest.pop(name, None)
            if rest and not name.startswith("rollout"):
                self.rest[how] = rest
        elif what == "delete":
            place.unlink()
            self.rest.pop(name, None)


@settings(max_examples=60)
@given(acts)
def test_after_any_changes_a_scan_finds_what_one_from_scratch_finds(
    acts: list[tuple[str, str, Any]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        writer = Writer(machine)
        for what, name, how in acts:
            if what == "scan":
                same(machine)
            else:
                writer.act(what, name, how)
        same(machine)
        assert machine.scan().done.read_bytes == 0
