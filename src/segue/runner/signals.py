"""Ctrl+C, and the signals that end a process, as facts of a run."""

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

from segue.core.run import AnyFact, CancelAsked, Pressed

_ENDINGS = {signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}


class Signals:
    """Caught as long as the block lasts. They wake whoever waits for `files`."""

    def __init__(self, into: list[AnyFact]) -> None:
        self._into = into
        self._before: dict[int, Any] = {}
        self.files: list[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # signals are somebody else's: whoever called sees to it
        self.files = [*os.pipe()]
        for file in self.files:
            os.set_blocking(file, False)
        self._wakeup = signal.set_wakeup_fd(self.files[1], warn_on_full_buffer=False)
        for number in (signal.SIGINT, *_ENDINGS):
            self._before[number] = signal.signal(number, self._caught)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.files:
            signal.set_wakeup_fd(self._wakeup)
            for file in self.files:
                os.close(file)
            self.files = []

    def drain(self) -> None:
        """Forgets what woke it: the facts are there."""
        with suppress(BlockingIOError):
            while self.files and os.read(self.files[0], 4096):
                pass

    def _caught(self, number: int, _: FrameType | None) -> None:
        by = _ENDINGS.get(signal.Signals(number))
        self._into.append(CancelAsked(by=by) if by else Pressed())
