"""Every line of a live file comes once, whatever is done to the file and to its names.

Most tests run twice: with events and the real clock, and by polling alone with a clock that the
test moves. Nothing is waited for but a condition; that nothing comes is shown by a line that was
written later and did come.
"""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from support.files.following import Clock, Ears, Start, append
from support.files.following import root as root  # a fixture
from support.files.following import start as start  # a fixture

from segue.sessions.follow.follow import BATCH_BYTES, FileFollower

# One file


def test_appended_lines_come_once_and_an_unfinished_one_waits(start: Start, root: Path) -> None:
    path, mark = root / "a.jsonl", root / "mark.jsonl"
    path.write_bytes(b"old\n")
    ears = start()
    (root / "notes.txt").write_bytes(b"not wanted\n")
    append(path, b"one\ntw")
    ears.until_lines(path, b"one")
    append(path, b"o, still")
    append(mark, b"later\n")
    ears.until_lines(mark, b"later")
    assert ears.files[str(path)] == [b"one"]
    append(path, b"\nthree\n")
    ears.until_lines(path, b"one", b"two, still", b"three")
    assert ears.changes[-1].offset == path.stat().st_size
    assert {*ears.files} == {str(path), str(mark)}


def test_the_start_is_the_end_of_what_is_there_or_its_beginning(start: Start, root: Path) -> None:
    path = root / "a.jsonl"
    path.write_bytes(b"old\n" * 1000 + b"being written")
    late, early = start(), start(from_start=True)
    early.until_lines(path, *[b"old"] * 1000)
    assert late.files == {str(path): []}
    append(path, b" now\n")
    late.until_lines(path, b"being written now")
    early.until_lines(path, *[b"old"] * 1000, b"being written now")


def test_a_truncated_file_is_read_again(start: Start, root: Path) -> None:
    path = root / "a.jsonl"
    path.write_bytes(b"old\nold\n")
    ears = start(from_start=True)
    ears.until_lines(path, b"old", b"old")
    os.truncate(path, 0)
    append(path, b"new\n")
    assert ears.until_told("restarted", path).why == "truncated"
    ears.until_lines(path, b"new")


def test_a_file_rewritten_in_place_is_read_again_whatever_its_size(
    start: Start, root: Path
) -> None:
    path = root / "a.jsonl"
    path.write_bytes(b"old\n")
    ears = start(from_start=True)
    for number, content in enumerate((b"new\n", b"longer\nthan\nbefore\n")):
        path.write_bytes(content)
        os.utime(path, ns=(number, number))
        ears.until(lambda number=number: ears.kinds(path).count("restarted") > number)  # type: ignore[misc]
        ears.until_lines(path, *content.split())
    assert {c.why for c in ears.changes if c.kind == "restarted"} == {"rewritten"}


def test_an_event_is_enough_where_a_stat_says_that_nothing_happened(root: Path) -> None:
    path = root / "a.jsonl"
    path.write_bytes(b"old\n")
    os.utime(path, ns=(1, 1))
    with FileFollower([root], lambda p: True, from_start=True) as follower:
        ears = Ears(follower)
        ears.until_lines(path, b"old")
        path.write_bytes(b"new\n")
        os.utime(path, ns=(1, 1))
        ears.until_lines(path, b"new")


def test_a_file_replaced_by_another_is_read_again(start: Start, root: Path) -> None:
    path = root / "a.jsonl"
    path.write_bytes(b"old\n")
    ears = start(from_start=True)
    ears.until_lines(path, b"old")
    (root / "a.tmp").write_bytes(b"old\nnew\n")
    (root / "a.tmp").rename(path)
    assert ears.until_told("restarted", path).why == "replaced"
    ears.until_lines(path, b"old", b"new")


def test_a_rotated_file_loses_nothing_and_may_still_be_written(start: Start, root: Path) -> None:
    path, former, older = root / "a.jsonl", root / "a.jsonl.1", root / "a.jsonl.2"
    path.write_bytes(b"zero\n")
    ears = start(from_start=True)
    ears.until_lines(path, b"zero")
    with path.open("ab", buffering=0) as writer:
        writer.write(b"unread\n")
        path.rename(former)
        path.write_bytes(b"fresh\n")
        ears.until_told("moved", former)
        assert ears.files == {str(former): [b"zero", b"unread"], str(path): [b"fresh"]}
        writer.write(b"late\n")
        ears.until_lines(former, b"zero", b"unread", b"late")
    append(path, b"rest\n")
    former.rename(older)
    path.rename(former)
    path.write_bytes(b"third\n")
    ears.until_lines(path, b"third")
    assert ears.files == {
        str(older): [b"zero", b"unread", b"late"],
        str(former): [b"fresh", b"rest"],
        str(path): [b"third"],
    }


def test_a_removed_file_is_gone_and_a_new_one_of_its_name_is_found(
    start: Start, root: Path
) -> None:
    path = root / "a.jsonl"
    path.write_bytes(b"old\n")
    ears = start()
    path.unlink()
    ears.until_told("gone", path)
    path.write_bytes(b"new\n")
    ears.until_lines(path, b"new")
    assert ears.kinds(path) == ["found", "gone", "found", "grown"]


def test_a_file_removed_and_written_again_at_once_is_restarted(start: Start, root: Path) -> None:
    path = root / "a.jsonl"
    path.write_bytes(b"old\n")
    ears = start(from_start=True)
    ears.until_lines(path, b"old")
    path.unlink()
    path.write_bytes(b"new\nnew\n")
    ears.until_lines(path, b"new", b"new")
    assert ears.kinds(path) == ["found", "grown", "restarted", "grown"]


def test_a_file_that_is_missing_for_a_moment_only_is_not_gone(root: Path) -> None:
    path, mark = root / "a.jsonl", root / "mark.jsonl"
    path.write_bytes(b"old\n")
    clock = Clock()  # stands still but where it is moved
    with FileFollower([root], lambda p: p.endswith("l"), from_start=True, clock=clock) as follower:
        ears = Ears(follower)
        ears.until_lines(path, b"old")
        path.rename(root.parent / "away")
        append(mark, b"1\n")
        ears.until_lines(mark, b"1")
        (root.parent / "away").rename(path)
        append(mark, b"2\n")
        ears.until_lines(mark, b"1", b"2")
        clock.now += 10.0
        path.unlink()
        append(mark, b"3\n")
        ears.until_lines(mark, b"1", b"2", b"3")
        path.write_bytes(b"new\nnew\n")
        ears.until_lines(path, b"new", b"new")
    assert ears.kinds(path) == ["found", "grown", "restarted", "grown"]


def test_a_moved_file_continues_under_its_new_name(start: Start, root: Path) -> None:
    path, there = root / "a.jsonl", root / "archive" / "b.jsonl"
    there.parent.mkdir()
    path.write_bytes(b"old\n")
    ears = start(from_start=True)
    append(path, b"read\n")
    ears.until_lines(path, b"old", b"read")
    append(path, b"unread\n")
    path.rename(there)
    if not ears.clock:  # by polling alone, a new file in its place hides where it went
        path.write_bytes(b"next\n")
    assert ears.until_told("moved", there).was == str(path)
    ears.until_lines(there, b"old", b"read", b"unread")
    append(there, b"new\n")
    ears.until_lines(there, b"old", b"read", b"unread", b"new")


def test_files_that_take_the_names_of_others_are_told_apart(start: Start, root: Path) -> None:
    one, two, odd = root / "a.jsonl", root / "b.jsonl", root / "odd"
    one.write_bytes(b"one\n")
    two.write_bytes(b"two\n")
    ears = start(from_start=True)
    one.rename(root / "t")  # they swap names
    two.rename(one)
    (root / "t").rename(two)
    ears.until_lines(one, b"two")
    ears.until_lines(two, b"one")
    two.rename(one)  # one takes the name of the other, which is gone by that
    ears.until_lines(one, b"one")
    assert ears.files == {str(one): [b"one"]}
    one.rename(odd)  # a name that is followed only since it is known
    ears.until_lines(odd, b"one")
    (root / "new").write_bytes(b"new\n")
    (root / "new").rename(odd)
    ears.until_told("gone", odd)
    assert ears.files == {}


def test_a_new_file_with_the_number_of_a_removed_one_is_not_taken_for_it(
    start: Start, root: Path
) -> None:
    path = root / "a.jsonl"
    path.write_bytes(b"old\n")
    number = path.stat().st_ino
    ears = start(from_start=True)
    ears.until_lines(path, b"old")
    path.unlink()
    for attempt in range(100):
        other = root / f"{attempt}.jsonl"
        other.write_bytes(b"another\n")
        if other.stat().st_ino == number:
            break
    else:
        pytest.skip("this file system gives no number twice")
    ears.until_told("gone", path)
    ears.until_lines(other, b"another")
    assert "moved" not in ears.kinds(other)


def test_a_huge_file_comes_in_small_batches_and_delays_no_other(start: Start, root: Path) -> None:
    huge, small = root / "a.jsonl", root / "b.jsonl"
    line = b"x" * 1023
    huge.write_bytes((line + b"\n") * (5 * BATCH_BYTES // 1024))
    small.write_bytes(b"one\n")
    ears = start(from_start=True)
    assert ears.files[str(small)] == [b"one"]
    ears.until(lambda: len(ears.files[str(huge)]) == 5 * BATCH_BYTES // 1024)
    assert max(ears.batch_lines) * 1024 <= 2 * BATCH_BYTES
    assert len(ears.batch_lines) >= 5


def test_a_line_that_is_too_long_is_skipped_and_counted(start: Start, root: Path) -> None:
    path, old = root / "a.jsonl", root / "old.jsonl"
    old.write_bytes(b"x" * 5000)
    ears = start(line_bytes=1000)
    append(path, b"one\n" + b"x" * 5000)
    append(old, b"x\ntwo\n")
    ears.until_lines(old, b"two")
    ears.until_lines(path, b"one")
    append(path, b"x\ntwo\n")
    ears.until_lines(path, b"one", b"two")
    assert sum(change.skipped for change in ears.changes) == 1


def test_a_file_replaced_between_stat_and_open_is_read_again(
    start: Start, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "a.jsonl"
    path.write_bytes(b"old\n")
    ears = start(from_start=True)
    ears.until_lines(path, b"old")
    (root / "new").write_bytes(b"old\nnew\n")
    real = os.open

    def late(name: str, *rest: Any, **named: Any) -> int:
        if (root / "new").exists():
            (root / "new").rename(path)
        return real(name, *rest, **named)

    append(path, b"lost\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", late)
        ears.until_lines(path, b"old", b"new")
    append(path, b"more\n")
    ears.until_lines(path, b"old", b"new", b"more")
    assert ears.kinds(path).count("restarted") == 1


# Names


def test_a_file_with_many_names_is_read_once(start: Start, root: Path, tmp_path: Path) -> None:
    path, hard, outside = root / "a.jsonl", root / "b.jsonl", tmp_path / "far.jsonl"
    path.write_bytes(b"one\n")
    hard.hardlink_to(path)
    (root / "c.jsonl").symlink_to(path)
    (root / "again").symlink_to(root)
    (tmp_path / "elsewhere").mkdir()
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    outside.write_bytes(b"far\n")
    for name in ("x.jsonl", "y.jsonl"):
        (root / name).symlink_to(outside)
    ears = start(root, root, path, root / "again", from_start=True)
    append(path, b"two\n")
    append(outside, b"away\n")
    (tmp_path / "elsewhere" / "z.jsonl").write_bytes(b"linked\n")
    ears.until_lines(root / "linked" / "z.jsonl", b"linked")
    ears.until(lambda: sum(map(len, ears.files.values())) == 5)
    assert sorted(ears.files.values()) == [[b"far", b"away"], [b"linked"], [b"one", b"two"]]


@pytest.mark.parametrize("events", [True, False])
def test_links_that_lead_in_circles_are_not_walked(root: Path, events: bool) -> None:
    offered: list[str] = []
    path = root / "folder" / "a.jsonl"
    path.parent.mkdir()
    (root / "back").symlink_to(root)
    clock = None if events else Clock()
    follower = FileFollower(
        [root],
        lambda p: not offered.append(p),  # type: ignore[func-returns-value]
        events=events,
        clock=clock or time.monotonic,
    )
    with follower:
        ears = Ears(follower, clock)
        ears.step()
        (path.parent / "back").symlink_to(root)
        path.write_bytes(b"one\n")
        ears.until_lines(path, b"one")
        for number in range(2, 4):
            append(path, b"more\n")
            ears.until(lambda number=number: len(ears.files[str(path)]) == number)  # type: ignore[misc]
    assert not [p for p in offered if "/back/" in p]


def test_a_file_that_loses_one_of_its_names_continues_under_another(
    start: Start, root: Path
) -> None:
    path, other = root / "a.jsonl", root / "folder" / "b.jsonl"
    other.parent.mkdir()
    path.write_bytes(b"one\n")
    ears = start(path, root, from_start=True)
    ears.until_lines(path, b"one")
    other.hardlink_to(path)
    append(other, b"two\n")
    ears.until_lines(path, b"one", b"two")
    path.unlink()
    ears.until_told("moved", other)
    append(other, b"three\n")
    ears.until_lines(other, b"one", b"two", b"three")
