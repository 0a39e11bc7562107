"""The time, as a run needs it: an argument of everything, so that a test can hold it."""

import select
import time
from collections.abc import Sequence


class Clock:
    """The machine's own."""

    def now(self) -> float:
        """Unix time: may be set, and may jump."""
        return time.time()

    def elapsed(self) -> float:
        """Seconds since the machine was started, sleep included: never set, never jumps."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    def awake(self) -> float:
        """Seconds on a clock that nobody sets and that stands still while the machine sleeps: for
        how long something has been silent."""
        return time.monotonic()

    def wait(self, files: Sequence[int], timeout_s: float) -> None:
        """Until one of these can be read, or the time is over."""
        poll = select.poll()
        for file in files:
            poll.register(file, select.POLLIN)
        poll.poll(max(0, int(timeout_s * 1000)))
