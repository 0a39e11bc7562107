"""Files are followed when events fail or come in any order, and until the caller closes."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.files.following import DEADLINE_S, Clock, Ears, append
from support.files.following import root as root  # a fixture

from segue.sessions.follow import file_events as events
from segue.sessions.follow.file_events import RETRY_S, FolderWatch
from segue.sessions.follow.follow import FileChange, FileFollower


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


# The end


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
