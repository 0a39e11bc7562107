"""A reply counts once, whatever files it is in: copies, sub-agents' files, forks, and any order in
which they are found."""

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
    tool_use,
    turn,
)
from support.files.scan import (
    FAMILY,
    A,
    B,
    C,
    Machine,
    load,
    rollout,
    same,
    session,
)

from segue.sessions import find

histories = load(Path(__file__).parents[2] / "bench/support/histories.py")


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
