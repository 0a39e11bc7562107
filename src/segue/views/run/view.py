"""A run while it works, on stderr: a live block on a terminal, dated lines in a pipe.

A view never ends a run: if its terminal is gone, nothing more is written.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, tzinfo
from typing import Protocol, Self

from rich.cells import cell_len

from segue.core.runs.types import AnyFact, Run, RunStep
from segue.views import printing
from segue.views.run.block import LegActivity, Piece, RunPicture, block, clean
from segue.views.run.outcome import report
from segue.views.run.story import Story, news

__all__ = [
    "LegActivity",
    "MovingRun",
    "QuietRun",
    "RunLines",
    "RunPicture",
    "RunView",
    "Story",
    "choose",
    "news",
    "report",
]  # fmt: skip

_EVERY_S = 0.25
_USUAL = (80, 24)


class RunStream(Protocol):
    """The output of a view: a text stream, or one that never blocks (`out.Loose`)."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...

    def isatty(self) -> bool: ...

    def fileno(self) -> int: ...


class RunView(Protocol):
    """Anything that shows a run. Every call is cheap, and none raises."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def step(self, before: Run, fact: AnyFact, step: RunStep, at: float) -> None:
        """Shows a fact, and what segue does about it."""

    def show(self, picture: RunPicture) -> None:
        """Shows the current state."""

    def say(self, line: str) -> None:
        """Shows a line that stays on the screen."""


def choose(
    stream: RunStream | None = None, env: Mapping[str, str] = os.environ, *, tz: tzinfo
) -> "RunView":
    """`MovingRun` on a capable terminal, otherwise `RunLines`."""
    out = sys.stderr if stream is None else stream
    if out.isatty() and env.get("TERM", "dumb") != "dumb":
        return MovingRun(out, tz=tz, has_colour=not env.get("NO_COLOR"))
    return RunLines(out, tz=tz)


class QuietRun:
    """Shows nothing, for --json and --raw."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def step(self, before: Run, fact: AnyFact, step: RunStep, at: float) -> None:
        pass

    def show(self, picture: RunPicture) -> None:
        pass

    def say(self, line: str) -> None:
        pass


class RunLines(QuietRun):
    """One dated line for each relevant event; for pipes."""

    _stamp = "%Y-%m-%d %H:%M:%S"

    def __init__(
        self, stream: RunStream, *, tz: tzinfo, clock: Callable[[], float] = time.time
    ) -> None:
        self.stream, self.tz, self.clock = stream, tz, clock
        self._is_gone = False

    def step(self, before: Run, fact: AnyFact, step: RunStep, at: float) -> None:
        for line in news(before, fact, step, now=at, tz=self.tz):
            self._put(line, at)

    def say(self, line: str) -> None:
        self._put(clean(line), self.clock())

    def _put(self, line: str, at: float) -> None:
        self._write(f"{self._dated(at)}  {printing.one_line(line)}\n")

    def _dated(self, at: float) -> str:
        try:
            return datetime.fromtimestamp(at, self.tz).strftime(self._stamp)
        except (ValueError, OverflowError, OSError):
            return "?"

    def _write(self, text: str) -> None:
        """Writes to the stream. Never raises: nothing more is written once the stream is gone."""
        if self._is_gone:
            return
        try:
            self.stream.write(text)
            self.stream.flush()
        except UnicodeError:
            self._write(text.encode("ascii", "replace").decode())
        except (OSError, ValueError):  # ValueError: the stream is closed
            self._is_gone = True


class MovingRun(RunLines):
    """The live block, redrawn when it changes and at most four times a second; past events stay
    above it, as lines."""

    _stamp = "%H:%M:%S"

    def __init__(
        self,
        stream: RunStream,
        *,
        tz: tzinfo,
        has_colour: bool = True,
        clock: Callable[[], float] = time.time,
        size: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(stream, tz=tz, clock=clock)
        self.has_colour = has_colour
        self._size = size or self._terminal
        self._picture: RunPicture | None = None
        self._drawn: list[int] = []  # the width of each line of the block on the screen
        self._shown = ""
        self._at_width = 0
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._over.clear()
        self._thread = threading.Thread(target=self._tick, name="segue-view", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
        with self._lock:
            self._picture = None
            self._write(self._erase())

    def show(self, picture: RunPicture) -> None:
        with self._lock:
            # drawn by the timer, so a fast agent does not make the screen flicker
            self._picture = picture

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Removes the block while something else writes to the same terminal."""
        with self._lock:
            self._write(self._erase())
            yield

    def draw(self) -> None:
        """Draws the block if it or the terminal's width has changed."""
        with self._lock:
            if self._picture is None or getattr(self.stream, "is_behind", False):
                return
            width, height = self._size()
            # One column stays free: it is unknown whether a full line has wrapped.
            lines = block(self._picture, now=self.clock(), width=max(1, width - 1), tz=self.tz)
            lines = lines[: max(1, height - 1)]
            text = printing.rendered("\n".join(self._styled(line) for line in lines))
            if text == self._shown and width == self._at_width:
                return
            self._write(self._erase(width) + text)
            self._drawn = [sum(cell_len(words) for words, _ in line) for line in lines]
            self._shown, self._at_width = text, width

    def _put(self, line: str, at: float) -> None:
        dated = self._dated(at)
        stamp = printing.style(dated, dim=True) if self.has_colour else dated
        with self._lock:
            shown = printing.rendered(f"{stamp}  {printing.one_line(line)}\n")
            self._write(f"{self._erase()}{shown}")
            self.draw()

    def _erase(self, width: int | None = None) -> str:
        """The codes that remove the block from the screen. A terminal that became narrower has
        wrapped its lines, which counts."""
        if not self._drawn:
            return ""
        columns = max(1, width or self._size()[0])
        rows = sum(max(1, -(-wide // columns)) for wide in self._drawn)
        self._drawn, self._shown = [], ""
        # Line by line: clearing everything below would add it to tmux's history.
        return "\r\x1b[2K" + "\x1b[1A\x1b[2K" * (rows - 1)

    def _styled(self, line: Sequence[Piece]) -> str:
        if not self.has_colour:
            return "".join(text for text, _ in line)
        return "".join(_style(text, style) for text, style in line)

    def _tick(self) -> None:
        while not self._over.wait(_EVERY_S):
            self.draw()

    def _terminal(self) -> tuple[int, int]:
        try:
            columns, lines = os.get_terminal_size(self.stream.fileno())
        except (OSError, ValueError):
            return _USUAL
        return columns or _USUAL[0], lines or _USUAL[1]


def _style(text: str, style: str) -> str:
    match style:
        case "":
            return text
        case "dim":
            return printing.style(text, dim=True)
        case "bold":
            return printing.style(text, bold=True)
        case colour:
            return printing.style(text, fg=colour)
