"""Live files on a real file system: every line once, whatever is done to the files.

Most tests run twice: with events and the real clock, and by polling alone with a clock that the
test moves. Nothing is waited for but a condition; that nothing comes is shown by a line that was
written later and did come.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from segue.sessions.follow import file_events as events
from segue.sessions.follow.file_events import RETRY_S, FolderWatch
from segue.sessions.follow.follow import BATCH_BYTES, FileChange, FileFollower

DEADLINE_S = 60.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Ears:
    """Steps a follower, and keeps what a caller would keep: the lines of each file."""

    def __init__(self, follower: FileFollower, clock: Clock | None = None) -> None:
        self.follower, self.clock = follower, clock
        self.changes: list[FileChange] = []
        self.batch_lines: list[int] = []
        self.files: dict[str, list[bytes]] = {}

    def step(self, timeout_s: float = 0.0) -> list[FileChange]:
        batch = self.follower.step(timeout_s)
        for change in batch:
            if change.kind == "found":
                assert change.path not in self.files
            if change.kind in ("found", "restarted"):
                self.files[change.path] = []
            elif change.kind == "moved":
                self.files[change.path] = self.files.pop(change.was)
            elif change.kind == "gone":
                del self.files[change.path]
            elif change.kind == "grown":
                self.files[change.path] += change.lines
        self.changes += batch
        self.batch_lines.append(sum(len(change.lines) for change in batch))
        return batch

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, self.changes[-20:]
            if self.clock:
                self.clock.now += 0.3
            self.step(0.0 if self.clock else 0.05)

    def until_lines(self, path: Path, *lines: bytes) -> None:
        self.until(lambda: self.files.get(str(path)) == [*lines])

    def until_told(self, kind: str, path: Path) -> FileChange:
        self.until(lambda: any(c.kind == kind and c.path == str(path) for c in self.changes))
        return next(c for c in self.changes if c.kind == kind and c.path == str(path))

    def kinds(self, path: Path) -> list[str]:
        return [c.kind for c in self.changes if c.path == str(path)]


Start = Callable[..., Ears]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that is followed."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture(params=["events", "polling"])
def start(request: pytest.FixtureRequest, root: Path) -> Iterator[Start]:
    """A follower of `root` that has taken its first step."""
    started: list[Ears] = []

    def call(*roots: Path, **options: Any) -> Ears:
        clock = Clock() if request.param == "polling" else None
        options |= {"events": clock is None, "clock": clock or time.monotonic}
        follower = FileFollower(roots or (root,), lambda p: p.endswith(".jsonl"), **options)
        started.append(Ears(follower, clock))
        started[-1].step()
        assert not follower.degraded
        return started[-1]

    yield call
    for ears in started:
        ears.follower.close()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


# --- one file ---------------------------------------------------------------------------------


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


# --- what is no file, or not for us -----------------------------------------------------------


def test_what_is_not_a_file_is_never_opened_until_it_is_one(
    start: Start, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real = os.open

    def spy(path: str, *rest: Any, **named: Any) -> int:
        opened.append(str(path))
        return real(path, *rest, **named)

    monkeypatch.setattr(os, "open", spy)
    monkeypatch.chdir(root)  # a socket's address is short
    (root / "folder.jsonl").mkdir()
    os.mkfifo(root / "pipe.jsonl")
    (root / "loop.jsonl").symlink_to("loop.jsonl")
    (root / "nowhere.jsonl").symlink_to("nothing")
    file, other, pipe = root / "file.jsonl", root / "other.jsonl", root.parent / "pipe.txt"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket.jsonl")
        ears = start(root, pipe)
        append(file, b"one\n")
        ears.until_lines(file, b"one")
        assert ears.files == {str(file): [b"one"]}
    file.unlink()
    os.mkfifo(other)  # gets the number of the file, as often as not
    os.mkfifo(file)
    ears.until_told("gone", file)
    file.unlink()
    file.write_bytes(b"one\n")
    ears.until_lines(file, b"one")
    file.unlink()
    file.mkdir()
    ears.until(lambda: ears.files == {})
    pipe.unlink()
    pipe.write_bytes(b"now\n")
    ears.until_lines(pipe, b"now")
    for name in ("pipe.jsonl", "loop.jsonl", "socket.jsonl"):
        (root / name).unlink()
        (root / name).write_bytes(b"now\n")
        ears.until_lines(root / name, b"now")
    assert {*map(os.path.basename, opened)} <= {
        "file.jsonl", "pipe.jsonl", "loop.jsonl", "socket.jsonl", "pipe.txt"
    }  # fmt: skip
    assert opened.count(str(file)) == 2


@pytest.fixture
def powerless() -> Iterator[Path]:
    """A folder of somebody to whom things can be forbidden: nothing is to root."""
    place = Path(tempfile.mkdtemp())
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(place, 65534, 65534)
        os.seteuid(65534)
    yield place
    if is_root:
        os.seteuid(0)
    for folder in place.glob("*/"):
        folder.chmod(0o700)
    shutil.rmtree(place)


def test_a_forbidden_file_is_reported_once_and_taken_up_when_allowed(
    start: Start, powerless: Path
) -> None:
    path, mark = powerless / "a.jsonl", powerless / "mark.jsonl"
    path.write_bytes(b"old\n")
    path.chmod(0)
    ears = start(powerless)
    assert ears.until_told("unreadable", path).why == "Permission denied"
    for number in range(3):
        os.utime(path, ns=(number, number))
        append(mark, b"later\n")
        ears.until_lines(mark, *[b"later"] * (number + 1))
    assert ears.kinds(path) == ["found", "unreadable"]
    path.chmod(0o600)
    append(path, b"new\n")
    ears.until_lines(path, b"new")
    path.chmod(0)
    os.utime(path, ns=(9, 9))
    ears.until(lambda: ears.kinds(path).count("unreadable") == 2)


def test_a_forbidden_folder_is_reported_once_and_taken_up_when_allowed(
    start: Start, powerless: Path
) -> None:
    closed, mark = powerless / "closed", powerless / "open" / "mark.jsonl"
    path, new = closed / "deep" / "a.jsonl", closed / "new.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one\n")
    ears = start(powerless, from_start=True)
    ears.until_lines(path, b"one")
    closed.chmod(0)
    ears.until_told("unreadable", closed)
    mark.parent.mkdir()  # to watch it, all is watched anew
    append(mark, b"later\n")
    ears.until_lines(mark, b"later")
    assert not ears.follower.degraded
    closed.chmod(0o700)
    append(path, b"two\n")
    append(new, b"new\n")
    ears.until_lines(path, b"one", b"two")
    ears.until_lines(new, b"new")
    append(new, b"more\n")
    ears.until_lines(new, b"new", b"more")
    assert [c.path for c in ears.changes if c.kind == "unreadable"] == [str(closed)]
    closed.chmod(0)
    ears.until(lambda: ears.kinds(closed).count("unreadable") == 2)


def test_a_root_that_is_forbidden_at_first_is_followed_when_allowed(
    start: Start, powerless: Path
) -> None:
    path = powerless / "closed" / "a.jsonl"
    path.parent.mkdir(mode=0)
    (powerless / "open").mkdir()  # has events, so sweeps are rare
    ears = start(powerless / "closed", powerless / "open")
    ears.until_told("unreadable", path.parent)
    path.parent.chmod(0o700)
    for number in range(1, 3):
        append(path, b"line\n")
        ears.until_lines(path, *[b"line"] * number)


# --- names ------------------------------------------------------------------------------------


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


# --- folders and roots ------------------------------------------------------------------------


def test_new_folders_are_followed_with_all_that_is_in_them(start: Start, root: Path) -> None:
    ears = start()
    for number in range(5):
        path = root / str(number) / "deep" / "er" / "a.jsonl"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"one\n")
        ears.until_lines(path, b"one")
        append(path, b"two\n")
        (path.parent / "b.jsonl").write_bytes(b"b\n")
        ears.until_lines(path, b"one", b"two")
        ears.until_lines(path.parent / "b.jsonl", b"b")
    (root / "0" / "back").symlink_to(root)
    append(path, b"three\n")
    ears.until_lines(path, b"one", b"two", b"three")
    assert len(ears.files) == 10


def test_a_folder_takes_its_files_along_wherever_it_goes_and_back(
    start: Start, root: Path, tmp_path: Path
) -> None:
    here, path = root / "here", root / "here" / "deep" / "a.jsonl"
    there = root / "there" / "deep" / "a.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one\n")
    ears = start(from_start=True)
    ears.until_lines(path, b"one")
    here.rename(root / "there")
    append(there, b"two\n")
    ears.until_lines(there, b"one", b"two")
    (root / "there").rename(tmp_path / "away")
    ears.until_told("gone", there)
    assert ears.files == {}
    (tmp_path / "away").rename(root / "there")
    ears.until_lines(there, b"one", b"two")
    append(there, b"three\n")
    ears.until_lines(there, b"one", b"two", b"three")


def test_a_folder_removed_and_made_again_at_once_is_still_followed(
    start: Start, root: Path
) -> None:
    path = root / "folder" / "a.jsonl"
    ears = start()
    for number in range(3):
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        path.write_bytes(b"%d\n" % number)
        ears.until_lines(path, b"%d" % number)
        append(path, b"more\n")
        ears.until_lines(path, b"%d" % number, b"more")


def test_roots_may_come_later_and_go_and_come_again(start: Start, tmp_path: Path) -> None:
    later, file = tmp_path / "not" / "yet", tmp_path / "single.txt"
    path = later / "a.jsonl"
    ears = start(later, file)
    for number in range(2):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"one\n")
        file.write_bytes(b"single %d\n" % number)
        ears.until_lines(path, b"one")
        ears.until_lines(file, b"single %d" % number)
        append(path, b"two\n")
        ears.until_lines(path, b"one", b"two")
        shutil.rmtree(tmp_path / "not")
        ears.until(lambda: str(path) not in ears.files)
    ears.until_lines(file, b"single 1")
    with file.open("ab", buffering=0) as writer:  # keeps the old one alive
        (tmp_path / "new").write_bytes(b"replaced\n")
        (tmp_path / "new").rename(file)
        ears.until_lines(file, b"replaced")
        append(file, b"more\n")
        ears.until_lines(file, b"replaced", b"more")
        writer.write(b"to nobody\n")


# --- events that fail -------------------------------------------------------------------------


def test_a_line_written_before_the_watch_is_set_is_not_missed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "a.jsonl"
    path.write_bytes(b"old\n")
    real = events._notifier()

    def slow(*options: Any) -> Any:
        append(path, b"meanwhile\n")
        (root / "b.jsonl").write_bytes(b"new\n")
        return real(*options)

    monkeypatch.setattr(events, "_notifier", lambda: slow)
    with FileFollower([root], lambda p: True, clock=Clock()) as follower:
        ears = Ears(follower)
        ears.step()
        assert ears.files == {str(path): [b"meanwhile"], str(root / "b.jsonl"): [b"new"]}


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (
            OSError("OS file watch limit reached. about [] (Error {})"),
            "fs.inotify.max_user_watches",
        ),
        (RuntimeError("Too many open files (os error 24)"), "Too many open files"),
        (ImportError("watchfiles is not installed"), "watchfiles is not installed"),
    ],
)
def test_without_events_polling_continues_says_why_and_tries_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception, told: str
) -> None:
    def fail() -> None:
        raise fault

    path, clock = root / "a.jsonl", Clock()
    with (
        FileFollower([root], lambda p: True, clock=clock) as follower,
        monkeypatch.context() as patch,
    ):
        patch.setattr(events, "_notifier", fail)
        ears = Ears(follower, clock)
        ears.step()
        assert told in follower.degraded
        assert follower.degraded.count("\n") == 0
        append(path, b"one\n")
        clock.now += 0.5
        ears.step()
        assert ears.files == {str(path): [b"one"]}
        patch.undo()
        clock.now += RETRY_S
        ears.step()
        assert not follower.degraded


def test_events_that_break_are_replaced_by_polling_until_they_work_again(root: Path) -> None:
    """watchfiles gives up at a name that is not UTF-8."""
    odd = Path(os.fsdecode(os.fsencode(root) + b"/\xff"))
    try:
        odd.touch()
    except OSError:
        pytest.skip("this file system takes no such name")
    path, clock = root / "a.jsonl", Clock()
    with FileFollower([root], lambda p: p.endswith(".jsonl"), clock=clock) as follower:
        ears = Ears(follower)
        ears.step()
        assert not follower.degraded
        odd.touch()
        ears.until(lambda: "Unable to decode" in follower.degraded)
        append(path, b"one\n")
        clock.now += 0.5
        ears.step()
        assert ears.files == {str(path): [b"one"]}
        clock.now += RETRY_S
        ears.step()
        assert not follower.degraded
        append(path, b"two\n")  # the clock stands: no sweep sees it
        ears.until_lines(path, b"one", b"two")
        odd.unlink()
        odd.mkdir()
        (odd / "b.jsonl").write_bytes(b"odd\n")
        ears.until(lambda: bool(follower.degraded))
        clock.now += RETRY_S
        ears.step()
        assert "surrogates" in follower.degraded
        assert ears.files[str(odd / "b.jsonl")] == [b"odd"]


class Fake:
    """What watchfiles has, but it tells what the test says."""

    answers: ClassVar[list[Any]] = []
    alive: ClassVar[list["Fake"]] = []
    limit: ClassVar[int] = 1 << 30

    def __init__(self, paths: list[str], *_: object) -> None:
        self.paths = paths
        if sum(len(each.paths) for each in [*self.alive, self]) > self.limit:
            raise OSError("OS file watch limit reached.")
        self.alive.append(self)

    def close(self) -> None:
        self.alive.remove(self)

    def watch(self, *_: object) -> Any:
        return self.answers.pop(0) if self.answers else "timeout"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[Fake]:
    monkeypatch.setattr(events, "_notifier", lambda: Fake)
    for name, value in (("answers", []), ("alive", []), ("limit", 1 << 30)):
        monkeypatch.setattr(Fake, name, value)
    return Fake


def test_a_file_that_grew_without_an_event_is_looked_at_often_until_events_tell_of_it(
    root: Path, fake: type[Fake]
) -> None:
    path, clock = root / "a.jsonl", Clock()
    path.touch()

    def lines_after(seconds: float) -> int:
        clock.now += seconds
        ears.step()
        return len(ears.files[str(path)])

    with FileFollower([root], lambda p: True, poll_s=30.0, clock=clock) as follower:
        ears = Ears(follower)
        ears.step()
        append(path, b"one\n")
        assert lines_after(29.0) == 0
        assert lines_after(1.0) == 1
        for number in range(2, 5):
            assert lines_after(0.25) == number - 1
            append(path, b"more\n")
            assert lines_after(0.25) == number
        append(path, b"more\n")
        fake.answers.append({(2, str(path))})
        assert lines_after(0.0) == 5
        append(path, b"more\n")
        assert lines_after(1.0) == lines_after(1.0) == 5
        assert lines_after(30.0) == 6


def test_in_whatever_order_names_are_told_a_rotation_loses_nothing(
    root: Path, fake: type[Fake]
) -> None:
    path, former, older = root / "a.jsonl", root / "a.jsonl.1", root / "a.jsonl.2"
    with FileFollower([root], lambda p: p.endswith("l"), clock=Clock()) as follower:
        ears = Ears(follower)
        for number in range(3):
            if number == 2:
                former.rename(older)
            if number:
                append(path, b"unread\n")
                path.rename(former)
                fake.answers.append({(1, str(path))})
            path.write_bytes(b"%d\n" % number)
            ears.step()
        assert ears.files == {
            str(older): [b"unread"],
            str(former): [b"1", b"unread"],
            str(path): [b"2"],
        }


def test_a_folder_that_vanished_and_came_back_untold_is_watched_again(
    root: Path, fake: type[Fake]
) -> None:
    folder, clock = root / "folder", Clock()
    folder.mkdir()
    with FileFollower([root], lambda p: True, poll_s=30.0, clock=clock) as follower:
        follower.step()
        for change in (folder.rmdir, folder.mkdir):
            former = fake.alive[:]
            change()
            clock.now += 30.0
            follower.step()
        assert fake.alive != former
        assert str(folder) in fake.alive[0].paths


def test_what_the_old_watch_was_told_is_not_forgotten_with_it(root: Path, fake: type[Fake]) -> None:
    watch = FolderWatch(threading.Event(), Clock(), wanted=True)
    watch.add(str(root), (1, 1))
    watch.renew()
    watch.add(str(root.parent), (1, 2))
    fake.answers.append({(2, "told")})
    assert watch.renew() == [str(root.parent)]
    assert not fake.answers  # the old one was asked
    assert watch.wait(0.0) == {"told"}


def test_new_watches_may_need_the_room_of_the_old_ones(root: Path, fake: type[Fake]) -> None:
    fake.limit = 3
    with FileFollower([root], lambda p: True, clock=Clock()) as follower:
        follower.step()
        for number in range(1, 4):
            (root / str(number)).mkdir()
            fake.answers.append({(1, str(root / str(number)))})
            follower.step()
            assert bool(follower.degraded) == (number == 3)
            assert [len(each.paths) for each in fake.alive] == ([] if number == 3 else [number + 1])


def test_a_path_is_watched_again_when_something_else_lies_there(
    root: Path, fake: type[Fake]
) -> None:
    watch = FolderWatch(threading.Event(), Clock(), wanted=True)
    watch.add(str(root), (1, 1))
    assert watch.renew() == [str(root)]
    watch.add(str(root), (1, 1))
    assert watch.renew() == []
    watch.add(str(root), (1, 2))
    assert watch.renew() == [str(root)]
    watch.drop(str(root))
    watch.add(str(root), (1, 2))
    assert watch.renew() == [str(root)]
    assert len(fake.alive) == 1


def test_a_path_that_vanishes_while_it_is_watched_costs_no_events(
    root: Path, fake: type[Fake], monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = FolderWatch(threading.Event(), Clock(), wanted=True)
    watch.add(str(root), (1, 1))

    def vanished() -> None:
        raise FileNotFoundError

    with monkeypatch.context() as patch:
        patch.setattr(events, "_notifier", vanished)
        assert watch.renew() == []
        assert not watch.degraded
    assert watch.renew() == [str(root)]


def test_an_interrupt_that_watchfiles_swallowed_is_raised(root: Path, fake: type[Fake]) -> None:
    fake.answers.append("signal")
    with FileFollower([root], lambda p: True) as follower:
        follower.step()
        with pytest.raises(KeyboardInterrupt):
            follower.step()


# --- the whole --------------------------------------------------------------------------------


def test_close_from_another_thread_ends_the_iteration(root: Path) -> None:
    follower = FileFollower([root], lambda p: True)
    batches: list[list[FileChange]] = []
    got_one = threading.Event()

    def run() -> None:
        for batch in follower:
            batches.append(batch)
            got_one.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    (root / "a.jsonl").write_bytes(b"one\n")
    assert got_one.wait(DEADLINE_S)
    follower.close()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert batches
    follower.close()
    assert follower.step(DEADLINE_S) == []


def test_closing_ends_all_watching_for_good(root: Path, fake: type[Fake]) -> None:
    (root / "a.jsonl").touch()
    follower = FileFollower([root], lambda p: True)
    assert [change.kind for change in follower.step()] == ["found"]
    assert fake.alive
    follower.close()
    assert not fake.alive
    early = FileFollower([root], lambda p: True)
    early.close()
    assert early.step() == []
    assert [*early] == []


def test_following_loads_nothing_heavy(root: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from segue.sessions.follow.follow import FileFollower\n"
        f"f = FileFollower([Path({str(root)!r})], lambda p: True); f.step(); f.step()\n"
        "assert not f.degraded\nf.close()\n"
        "print(*{'anyio', 'asyncio', 'rich', 'click', 'watchfiles', 'yaml'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


names = st.sampled_from(["a.jsonl", "b.jsonl", "sub/c.jsonl", "a.jsonl.1"])
acts = st.lists(
    st.one_of(
        st.tuples(st.just("append"), names, st.sampled_from(["x", "x\n", "\n", "xx\nyy\nz"])),
        st.tuples(st.sampled_from(["truncate", "rewrite", "remove", "step"]), names, names),
        st.tuples(st.sampled_from(["move", "replace"]), names, names),
    ),
    max_size=25,
)


def follow_through(acts: list[tuple[str, str, str]], ears: Ears, root: Path) -> None:
    (root / "sub").mkdir()
    ears.step()
    for number, (act, name, more) in enumerate(acts, 1):
        perform(act, root / name, root / more, more, number)
        if act == "step" and ears.clock:
            ears.clock.now += 0.6
        if act == "step":
            ears.step()

    def there() -> dict[str, list[bytes]]:
        """What the files say: those that are wanted, and those that moved away from such a name."""
        followed = [p for p in root.rglob("*l*") if p.suffix == ".jsonl" or str(p) in ears.files]
        return {str(p): p.read_bytes().split(b"\n")[:-1] for p in followed}

    ears.until(lambda: ears.files == there())
    for _ in range(3):  # and nothing comes twice
        if ears.clock:
            ears.clock.now += 0.6
        ears.step(0.0 if ears.clock else 0.01)
    assert ears.files == there()


@given(acts)
@settings(max_examples=150)
def test_whatever_is_done_to_files_polling_ends_with_the_lines_that_are_there(
    acts: list[tuple[str, str, str]],
) -> None:
    clock = Clock()
    with (
        tempfile.TemporaryDirectory() as place,
        FileFollower(
            [Path(place)], lambda p: p.endswith("l"), events=False, clock=clock
        ) as follower,
    ):
        follow_through(acts, Ears(follower, clock), Path(place))


@given(acts)
@settings(max_examples=40)
def test_whatever_is_done_to_files_events_alone_end_with_the_lines_that_are_there(
    acts: list[tuple[str, str, str]],
) -> None:
    with (
        tempfile.TemporaryDirectory() as place,
        FileFollower([Path(place)], lambda p: p.endswith("l"), poll_s=1e9) as follower,
    ):
        follow_through(acts, Ears(follower), Path(place))


def perform(act: str, path: Path, other: Path, text: str, number: int) -> None:
    """Everything that is written is different, and every change has a time of its own."""
    if act == "append":
        append(path, f"{number}:{text}".encode())
    elif act == "replace":
        path.with_name("new").write_bytes(b"%d:new\n" % number)
        path.with_name("new").rename(path)
    elif act == "rewrite":
        path.write_bytes(b"%d:again\n%d:more\n" % (number, number))
    elif not path.exists():
        return
    elif act == "truncate":
        os.truncate(path, path.stat().st_size // 2)
    elif act == "remove":
        path.unlink()
    elif act == "move":
        path.rename(other)
    if path.exists():
        os.utime(path, ns=(number, number))
