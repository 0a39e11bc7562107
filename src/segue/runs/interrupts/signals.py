"""Turns Ctrl+C, and the signals that end a process, into facts of a run."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from segue.core.runs.types import AnyFact, CancelAsked, HungUp, InterruptRequested
from segue.runs.clock import Clock
from segue.runs.interrupts.watchdog import How, Watchdog
from segue.system.process import shutdown

_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Catches signals as long as the block lasts, except those that were ignored before:
    `nohup`, and the background jobs of shells. They wake whoever waits for `files`;
    `end_by_force` is called, in another thread, if the loop does not pick them up: see
    `watchdog`."""

    def __init__(
        self, into: list[AnyFact], clock: Clock, end_by_force: Callable[[How], None]
    ) -> None:
        self._into, self._clock, self._end_by_force = into, clock, end_by_force
        self._watchdog: Watchdog | None = None
        self._before: dict[int, Any] = {}
        self.stays = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        """It was told to stay when its user goes: `--detach`, `nohup`. So nobody is there to mean
        SIGTERM, which a logout, systemd and a shutdown send to all."""
        self.files: list[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # not in the main thread: the caller takes care of signals
        self.files = [*os.pipe()]
        for file in self.files:
            os.set_blocking(file, False)
        self._watchdog = Watchdog(self._clock, self.files[1], self._end_by_force)
        self._watchdog.start()
        self._wakeup = signal.set_wakeup_fd(self._watchdog.write, warn_on_full_buffer=False)
        for number in _CAUGHT:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._caught)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self.files:
            signal.set_wakeup_fd(self._wakeup)
            if self._watchdog is not None:
                self._watchdog.stop()
            for file in self.files:
                os.close(file)
            self.files = []

    def turned(self) -> None:
        """The loop has started another turn, so it is alive."""
        if self._watchdog is not None:
            self._watchdog.turned()

    def drain(self) -> None:
        """Clears what woke it: the facts are recorded."""
        with suppress(BlockingIOError):
            while self.files and os.read(self.files[0], 4096):
                pass

    def _caught(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:
            self._into.append(InterruptRequested())
        elif number == signal.SIGHUP:
            self._into.append(HungUp())
        elif self.stays:
            self._into.append(HungUp(by="SIGTERM"))
        else:
            self._into.append(CancelAsked(by="SIGTERM"))


def combined(facts: list[AnyFact]) -> list[AnyFact]:
    """What several signals mean together. SIGTERM comes from the user, with three exceptions in
    which it comes from the system: sent to all processes when the machine goes down, sent with a
    hang-up when a login session ends, or sent to a run that was started to stay, which its user
    ends with `segue cancel`."""
    is_asked = any(isinstance(fact, CancelAsked) for fact in facts)
    if not is_asked:
        return facts
    is_hung_up = any(isinstance(fact, HungUp) for fact in facts)
    if is_hung_up or shutdown.is_under_way():
        by = "a hang-up" if is_hung_up else "the shutdown of the machine"
        return [fact for fact in facts if isinstance(fact, InterruptRequested)] or [HungUp(by=by)]
    return facts
