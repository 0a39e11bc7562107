"""A follower of live files, step by step, and what a caller of it keeps."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from segue.sessions.follow.follow import FileChange, FileFollower

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
