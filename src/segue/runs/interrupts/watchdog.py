"""Ends segue if the user asks for it and its loop does not respond.

Ctrl+C and SIGTERM are facts that the loop picks up in its next turn. A loop that hangs in a
parser, a lock or a system call has no next turn, so a second thread counts the signals too.
Everything segue knows is on disk, and the agent has a keeper, so nothing is lost by ending.
"""

import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from segue.runs.clock import Clock

How = Literal["SIGTERM", "SIGHUP", "Ctrl+C"]

TERM_S = 10.0
"""Without a turn of the loop since a SIGTERM or SIGHUP."""
LAST_S = 5.0
"""Without a turn since the third Ctrl+C or the second SIGTERM."""
ONCE_MORE_S = 1.0
"""Without a turn, if the user asks once more after those."""
MAX_S = 30.0
"""After those, whatever the loop does: a kill takes 15 s at most."""
_LOOK_S = 0.2


class Watchdog:
    """Reads the numbers of arriving signals, and passes them on to `wake`. `end` is called once,
    in its thread, when the loop's time is up; it does not return."""

    def __init__(self, clock: Clock, wake: int, end: Callable[[How], None]) -> None:
        self._clock, self._wake, self._end = clock, wake, end
        self._turned_at = clock.awake()
        self._read, self.write = os.pipe()
        os.set_blocking(self.write, False)
        self._presses = self._terms = 0
        self._how: How = "SIGTERM"
        self._first_at = self._last_at = 0.0  # SIGTERM; and the one too many
        self._thread = threading.Thread(target=self._watch, name="segue-signals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The loop has ended: stops watching it."""
        os.close(self.write)  # which ends the thread
        self._thread.join()

    def turned(self) -> None:
        """The loop has started another turn."""
        self._turned_at = self._clock.awake()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while True:
            is_counting = self._presses > 2 or self._terms
            if poll.poll(_LOOK_S * 1000 if is_counting else None):
                numbers = os.read(self._read, 64)
                if not numbers:
                    os.close(self._read)
                    return
                for number in numbers:
                    self._count(number)
                with suppress(OSError):  # full: then it is awake
                    os.write(self._wake, numbers)
            if (how := self._is_due()) is not None:
                self._end(how)
                return

    def _count(self, number: int) -> None:
        self._presses += number == signal.SIGINT
        now = self._clock.awake()
        if number in (signal.SIGTERM, signal.SIGHUP):
            self._terms += 1
            self._first_at = self._first_at or now
            if number == signal.SIGHUP:
                self._how = "SIGHUP"
        if not self._last_at and (self._presses == 3 or self._terms == 2):
            self._last_at = now

    def _is_due(self) -> How | None:
        now, turned_at = self._clock.awake(), self._turned_at
        how: How = "Ctrl+C" if self._presses > 2 else self._how
        if (self._presses > 3 or self._terms > 2) and now - turned_at > ONCE_MORE_S:
            return how
        if self._last_at:
            is_stuck = now - max(turned_at, self._last_at) > LAST_S
            return how if is_stuck or now - self._last_at > MAX_S else None
        if self._terms and now - max(turned_at, self._first_at) > TERM_S:
            return how
        return None
