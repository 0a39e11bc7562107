"""Scanning: the sums are what was written, and only new parts of a file are read again."""

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from support.agents.counters import (
    compact,
    count_line,
    meta,
    prompt,
    reply,
    stamp,
    tool_use,
    turn,
)
from support.files.scan import (
    Machine,
    Totals,
    load,
    same,
    segue,
)

from segue.sessions import find
from segue.sessions.count.index import Index
from segue.sessions.count.scan import scan, unread_bytes

histories = load(Path(__file__).parents[2] / "bench/support/histories.py")


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
