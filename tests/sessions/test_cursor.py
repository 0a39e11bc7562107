"""How far a file was read: every line once, whatever happens to the file and however it is read."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from segue.sessions.follow.cursor import (
    HEAD_BYTES,
    Cursor,
    File,
    FileStamp,
    Names,
    Restarted,
    advance,
    placed,
)

ME = (1, 7)


class Reader:
    """Reads a file that is only bytes, and keeps what a caller would keep."""

    def __init__(self, *, line_bytes: int = 1 << 20) -> None:
        self.cursor = Cursor(ME)
        self.lines: list[bytes] = []
        self.restarts: list[str] = []
        self.skipped = self.offset = 0
        self.line_bytes = line_bytes

    def look(self, content: bytes, mtime_ns: int = 0, *, chunk: int = 1 << 20) -> None:
        seen = FileStamp(ME, len(content), mtime_ns)
        while not self.cursor.is_quiet(seen):
            self.read(content, seen, chunk)

    def read(self, content: bytes, seen: FileStamp, chunk: int = 1 << 20) -> None:
        start = self.cursor.read_from
        data = content[start : self.cursor.offset + chunk]
        got = advance(self.cursor, seen, content[:HEAD_BYTES], data, line_bytes=self.line_bytes)
        if isinstance(got, Restarted):
            self.restarts.append(got.why)
            self.lines, self.skipped = [], 0
        else:
            self.lines += got.lines
            self.skipped += got.skipped
            self.offset = got.offset


def test_a_line_is_given_out_when_its_newline_is_there() -> None:
    reader = Reader()
    reader.look(b"one\ntw", 1)
    assert reader.lines == [b"one"]
    assert reader.offset == 4
    reader.look(b"one\ntwo", 2)
    assert reader.lines == [b"one"]
    reader.look(b"one\ntwo\n\n", 3)
    assert reader.lines == [b"one", b"two", b""]
    assert reader.offset == reader.cursor.offset == 9


def test_a_stat_alone_tells_that_nothing_happened() -> None:
    reader = Reader()
    reader.look(b"one\n", 1)
    assert reader.cursor.is_quiet(FileStamp(ME, 4, 1))
    assert not reader.cursor.is_quiet(FileStamp(ME, 5, 1))
    assert not reader.cursor.is_quiet(FileStamp(ME, 4, 2))
    assert not reader.cursor.is_quiet(FileStamp((1, 8), 4, 1))


def test_a_file_that_became_shorter_is_read_again() -> None:
    reader = Reader()
    reader.look(b"one\ntwo\n", 1)
    reader.look(b"one\n", 2)
    assert reader.restarts == ["truncated"]
    assert reader.lines == [b"one"]


def test_a_file_that_shrinks_between_stat_and_read_is_read_again() -> None:
    reader = Reader()
    reader.look(b"one\ntwo\n", 1)
    reader.read(b"one\n", FileStamp(ME, 8, 2))
    assert reader.restarts == ["truncated"]


def test_another_file_under_the_same_name_is_read_from_its_beginning() -> None:
    reader = Reader()
    reader.look(b"one\n", 1)
    other = FileStamp((1, 8), 4, 1)
    reader.read(b"two\n", other)
    reader.read(b"two\n", other)
    assert reader.restarts == ["replaced"]
    assert reader.lines == [b"two"]


def test_other_first_bytes_are_noticed_at_the_same_and_at_a_larger_size() -> None:
    same = b"x" * 100 + b"\n"
    for content in (b"uno\n" + same, b"uno\n" + same + b"three\n"):
        reader = Reader()
        reader.look(b"one\n" + same, 1)
        reader.look(content, 2)
        assert reader.restarts == ["rewritten"]
        assert reader.lines == content.split(b"\n")[:-1]


def test_other_bytes_before_the_cursor_are_noticed_behind_the_same_beginning() -> None:
    head = b"h" * 2 * HEAD_BYTES + b"\n"
    reader = Reader()
    reader.look(head + b"one\n", 1)
    reader.look(head + b"two\nthree\n", 2)
    assert reader.restarts == ["rewritten"]
    assert reader.lines == [head[:-1], b"two", b"three"]


def test_a_line_that_is_too_long_is_passed_over_and_counted_once() -> None:
    reader = Reader(line_bytes=10)
    reader.look(b"one\n" + b"x" * 11, 1)
    assert (reader.skipped, reader.cursor.partial) == (1, None)
    reader.look(b"one\n" + b"x" * 500, 2)
    assert (reader.skipped, reader.cursor.partial) == (1, None)
    reader.look(b"one\n" + b"x" * 500 + b"\ntwo\n" + b"y" * 10 + b"\n" + b"z" * 11 + b"\n", 3)
    assert reader.lines == [b"one", b"two", b"y" * 10]
    assert reader.skipped == 2


def test_a_cursor_that_is_placed_gives_what_comes_after_and_knows_what_was_before() -> None:
    old = b"o" * 2 * HEAD_BYTES + b"\n"
    for is_same in (True, False):
        reader = Reader()
        reader.cursor = placed(FileStamp(ME, len(old), 1), len(old), old, old)
        assert reader.cursor.is_quiet(FileStamp(ME, len(old), 1))
        reader.look((old if is_same else old.upper()) + b"new\n", 2)
        assert reader.restarts == ([] if is_same else ["rewritten"])
        assert reader.lines == ([b"new"] if is_same else [old[:-1].upper(), b"new"])


def test_a_cursor_that_is_placed_in_a_line_that_is_not_wanted_waits_for_the_next() -> None:
    reader = Reader()
    reader.cursor = placed(FileStamp(ME, 3, 1), 3, b"xxx", b"xxx", skipping=True)
    reader.look(b"xxxyy", 2)
    reader.look(b"xxxyy\none\n", 3)
    assert reader.lines == [b"one"]


def test_ten_thousand_cursors_need_less_than_six_megabytes() -> None:
    line = b'{"type":"user","text":"' + b"x" * 1000 + b'"}\n'
    tracemalloc.start()
    names = Names()
    for number in range(10_000):
        path = f"/home/someone/.claude/projects/{number // 20}/{number:036}.jsonl"
        file = File(path, Cursor((66_000, 1_000_000 + number)))
        advance(file.cursor, FileStamp(file.cursor.identity, len(line), number), line, line)
        assert file.cursor.partial is None
        names.add(path, file)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 6 << 20


# Every piece that is written starts with a number of its own: no piece looks like another.
pieces = st.lists(st.tuples(st.text("ab\n", max_size=40), st.booleans()), max_size=4)
acts = st.lists(
    st.one_of(
        st.tuples(st.just("append"), pieces),
        st.tuples(st.just("truncate"), st.floats(0, 1)),
        st.tuples(st.just("look"), st.integers(1, 300)),
    ),
    max_size=30,
)


def whole(content: bytes) -> list[bytes]:
    return content.split(b"\n")[:-1]


@given(acts)
def test_any_appends_and_truncations_in_any_chunks_give_every_line_once(
    acts: list[tuple[str, object]],
) -> None:
    reader = Reader()
    content, written, was_cut = b"", 0, False
    for mtime_ns, (act, how) in enumerate([*acts, ("look", 50)], 1):
        if act == "append":
            assert isinstance(how, list)
            for text, is_whole in how:
                written += 1
                content += f"{written}:{text}".encode() + b"\n" * is_whole
        elif act == "truncate":
            assert isinstance(how, float)
            was_cut = was_cut or int(len(content) * how) < len(content)
            content = content[: int(len(content) * how)]
        else:
            assert isinstance(how, int)
            reader.look(content, mtime_ns, chunk=how)
            assert reader.lines == whole(content)
            assert not reader.restarts or was_cut


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(0, 12), st.integers(1, 50))
def test_the_same_lines_are_too_long_in_any_chunks(
    appends: list[bytes], limit: int, chunk: int
) -> None:
    reader = Reader(line_bytes=limit)
    content = b""
    for mtime_ns, data in enumerate(appends):
        content += data
        reader.look(content, mtime_ns, chunk=chunk)
    assert reader.lines == [line for line in whole(content) if len(line) <= limit]
    assert reader.skipped == sum(len(line) > limit for line in content.split(b"\n"))


def test_a_file_is_known_under_all_its_names_until_it_is_forgotten() -> None:
    names = Names()
    file, other = File("/a/x", Cursor((1, 1))), File("/a/b/z", Cursor((1, 2)))
    for path in ("/a/x", "/b/y", "/b/y"):
        names.add(path, file)
    names.add("/a/b/z", other)
    assert names.get("/b/y") is names.files[(1, 1)] is file
    assert names.all_of(file) == ["/a/x", "/b/y"]
    assert file.names == 2
    assert sorted(names.below("/a")) == ["/a/b/z", "/a/x"]
    names.drop("/a/x")
    assert names.get("/a/x") is None
    assert file.names == 1
    assert names.all_of(file) == [*names.below("/b")] == ["/b/y"]
    names.add("/a/x", file)
    names.forget(file)
    assert (names.below("/"), [*names.files.values()]) == (["/a/b/z"], [other])
