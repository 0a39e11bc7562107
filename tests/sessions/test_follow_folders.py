"""Every line comes once from folders that come, go, move and are forbidden, and hold other things.

Most tests run twice: with events and the real clock, and by polling alone with a clock that the
test moves. Nothing is waited for but a condition; that nothing comes is shown by a line that was
written later and did come.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.files.following import Start, append
from support.files.following import root as root  # a fixture
from support.files.following import start as start  # a fixture

# What is no file, or not for us


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


# Folders and roots


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
