"""Whatever is done to files, in any order: the follower ends with the lines that are there."""

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support.files.following import Clock, Ears, append

from segue.sessions.follow.follow import FileFollower

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
