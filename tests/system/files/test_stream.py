"""A growing file is read once, line by line, whatever the pieces; and events say when to look."""

import os
import select
import subprocess
import sys
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.system.files import stream
from segue.system.files.changes import Notifier
from segue.system.files.stream import Tail

PATIENCE_S = 60.0


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def all_of(tail: Tail, max_bytes: int = stream.CHUNK_BYTES) -> list[bytes]:
    lines = tail.read(max_bytes)
    while tail.has_more:
        lines += tail.read(max_bytes)
    return lines


def test_a_file_that_is_not_there_yet_has_no_lines(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "stdout")
    assert tail.read() == []
    add(tmp_path / "stdout", b"a\n")
    assert tail.read() == [b"a"]
    assert tail.read() == []


def test_a_half_line_waits_for_its_end_or_for_the_writers(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    tail = Tail(path)
    add(path, b"one\ntw")
    assert tail.read() == [b"one"]
    assert tail.offset == 4
    add(path, b"o\n\nthr")
    assert tail.read() == [b"two", b""]
    assert tail.offset == 9
    assert tail.rest() == b"thr"
    assert tail.offset == 12
    assert tail.rest() == b""


pieces = st.lists(st.binary(max_size=9) | st.sampled_from([b"\n", b"a\n", b"\n\n", b"longer" * 4]))


@given(found=pieces, chunk=st.integers(1, 7), most=st.integers(1, 20))
def test_lines_are_the_same_whatever_the_pieces(
    found: list[bytes], chunk: int, most: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("pieces") / "stdout"
    tail = Tail(path)
    tail._chunk_bytes = chunk
    lines: list[bytes] = []
    for piece in found:
        add(path, piece)
        lines += all_of(tail, most)
        again = Tail(path, tail.offset)  # as if segue was killed here
        assert all_of(again) == []
        assert again.rest() == bytes(tail._half)
    *whole, half = b"".join(found).split(b"\n")
    assert lines == whole
    assert tail.rest() == half
    tail.close()


@given(found=pieces)
def test_a_line_that_is_too_long_is_an_empty_one_and_counted(
    found: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("long") / "stdout"
    tail = Tail(path, line_bytes=10)
    lines: list[bytes] = []
    for piece in found:
        add(path, piece)
        lines += all_of(tail)
    lines.append(tail.rest())
    rows = b"".join(found).split(b"\n")
    assert lines == [b"" if len(row) > 10 else row for row in rows]
    assert tail.skipped == sum(len(row) > 10 for row in rows)


def test_one_call_reads_no_more_than_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    add(path, (b"x" * 1023 + b"\n") * 2048)
    tail = Tail(path)
    first = tail.read(stream.CHUNK_BYTES)
    assert len(first) == stream.CHUNK_BYTES // 1024
    assert tail.has_more
    assert len(all_of(tail)) == 2048 - len(first)
    assert not tail.has_more


def test_a_huge_line_is_passed_over_without_being_held(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    with path.open("wb") as file:
        file.truncate(100 << 20)  # takes no room on disk
        file.seek(0, os.SEEK_END)
        file.write(b"\nnext\n")
    tail = Tail(path, line_bytes=1 << 20)
    tracemalloc.start()
    lines = all_of(tail)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lines == [b"", b"next"]
    assert tail.skipped == 1
    assert peak < 8 << 20


def test_a_closed_tail_continues_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    add(path, b"a\nb")
    with Tail(path) as tail:
        assert tail.read() == [b"a"]
    add(path, b"c\n")
    assert tail.read() == [b"bc"]
    tail.close()


# --- events -------------------------------------------------------------------------------------

linux = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def is_ready(notifier: Notifier, wait_s: float = 0.0) -> bool:
    handle = notifier.fileno()
    assert handle is not None
    return select.select([handle], [], [], wait_s)[0] == [handle]


def told(notifier: Notifier) -> set[str]:
    assert is_ready(notifier, PATIENCE_S), "nothing was told"
    return notifier.drain()


@linux
def test_a_write_is_reported_by_a_descriptor_that_select_takes(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    with path.open("wb", buffering=0) as file, closing(Notifier()) as notifier:
        notifier.watch(path)
        assert not is_ready(notifier)
        assert notifier.drain() == set()
        file.write(b"a\n")
        assert told(notifier) == {str(path)}
        assert not is_ready(notifier)
    assert notifier.fileno() is None
    assert notifier.drain() == set()


@linux
def test_a_file_is_reported_when_it_comes_and_when_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    with closing(Notifier()) as notifier:
        notifier.watch(path)
        (tmp_path / "other").touch()
        assert told(notifier) == set()  # of its folder, but not of a file that was asked for
        path.touch()
        assert told(notifier) == {str(path)}
        add(path, b"a\n")
        assert told(notifier) == {str(path)}


@linux
def test_a_file_that_is_put_in_place_by_its_name_is_reported_each_time(tmp_path: Path) -> None:
    path = tmp_path / "exit.json"
    with closing(Notifier()) as notifier:
        notifier.watch(path)
        for _ in range(2):
            aside = tmp_path / "aside"
            aside.write_bytes(b"{}")
            aside.rename(path)
            seen: set[str] = set()
            while str(path) not in seen:
                seen |= told(notifier)
        notifier.drain()
        add(path, b"more")
        assert told(notifier) == {str(path)}


@linux
def test_two_files_of_one_folder_are_told_apart(tmp_path: Path) -> None:
    with closing(Notifier()) as notifier:
        for name in ("stdout", "stderr"):
            (tmp_path / name).touch()
            notifier.watch(tmp_path / name)
        notifier.drain()
        add(tmp_path / "stderr", b"a")
        assert told(notifier) == {str(tmp_path / "stderr")}


@linux
def test_lost_events_are_reported_for_all_files(tmp_path: Path) -> None:
    with closing(Notifier()) as notifier:
        notifier.watch(tmp_path / "a")
        notifier.watch(tmp_path / "b")
        seen: set[str] = set()
        notifier._take(b"\xff\xff\xff\xff" + (0x4000).to_bytes(4, sys.byteorder) + bytes(8), seen)
        assert seen == {str(tmp_path / "a"), str(tmp_path / "b")}


@linux
def test_where_nothing_can_be_watched_there_is_no_descriptor_and_callers_look(
    tmp_path: Path,
) -> None:
    with closing(Notifier()) as notifier:
        notifier.watch(tmp_path / "no" / "such" / "stdout")
        assert notifier.fileno() is None
        assert notifier.drain() == set()


NO_MORE = """
import os, resource
from segue.system.files.changes import Notifier

resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
notifier = Notifier()
notifier.watch("stdout")
print(notifier.fileno(), notifier.drain())
"""


@linux
def test_where_the_kernel_has_no_more_to_give_there_is_no_descriptor_and_nothing_is_said() -> None:
    """As with too many runs of one user: the same error, here of a process's own limit."""
    words = [sys.executable, "-c", NO_MORE]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("None set()\n", "")


def test_other_systems_have_no_descriptor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    notifier = Notifier()
    notifier.watch(tmp_path / "stdout")
    assert notifier.fileno() is None
    assert notifier.drain() == set()
    notifier.close()
