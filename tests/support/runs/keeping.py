"""Legs of runs in tests: started through their keepers, and nothing of them is left."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from segue.runs.legs.leg import Exit, Leg, LegStatus, Spec
from segue.system.process.descendants import MARK

LIMIT_S = 90.0
T = TypeVar("T")


class Kept:
    """A leg, and the folder that its agent works in."""

    def __init__(self, folder: Path) -> None:
        self.leg = Leg(folder / "run-1" / "leg-001")
        self.work = folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        self.mark = f"run-1/{folder}"

    def spec(self, script: str, **more: object) -> Spec:
        return Spec(argv=("sh", "-c", script), cwd=str(self.work), **more)  # type: ignore[arg-type]

    def env(self, **more: str) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], MARK: self.mark, **more}

    def start(self, script: str, **more: object) -> LegStatus:
        return self.leg.start(self.spec(script, **more), self.env())

    def said(self) -> str:
        return self.leg.stdout.read_text()

    def reached(self, name: str) -> str:
        """What the agent wrote to this file in its folder, as soon as it is a whole line."""
        return when(lambda: whole(self.work / name), f"{name} comes")

    def exit(self) -> Exit:
        """How it ended."""
        status = self.leg.wait(LIMIT_S)
        assert status.exit is not None, status
        return status.exit

    def left(self) -> list[psutil.Process]:
        """What still runs with its mark."""
        return [process for process in psutil.process_iter() if marked(process, self.mark)]


def marked(process: psutil.Process, mark: str) -> bool:
    try:
        is_there = process.status() != psutil.STATUS_ZOMBIE
        return is_there and process.environ().get(MARK) == mark
    except psutil.Error:
        return False


def whole(file: Path) -> str:
    text = file.read_text() if file.exists() else ""
    return text if text.endswith("\n") else ""


def when(look: Callable[[], T], what: str) -> T:
    """What `look` gives, as soon as it gives something."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.005)
    pytest.fail(f"did not happen: {what}")


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    """A leg that was not started yet. Fails the test if anything of it runs when it has ended."""
    kept = Kept(tmp_path)
    yield kept
    try:
        tidy_up(kept)
    finally:
        for process in kept.left():
            process.kill()


def tidy_up(kept: Kept) -> None:
    status = kept.leg.status()
    if status.state == "running":
        kept.leg.command("teardown", "kill")
        status = kept.leg.wait(LIMIT_S)
    if status.state != "ended" and (kept.leg.folder / "spec.json").exists():
        kept.leg.sweep_lost(0.2)
    # The keeper carries the mark too, and is gone a moment after its last word.
    when(lambda: not kept.left(), "nothing of the leg is left")
