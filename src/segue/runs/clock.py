"""The time as a run needs it: everything takes it as an argument, so that a test can control it."""

import select
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_BEAT_S = 0.25
_GAP_S = 1.0
"""Between two ticks: if it was longer, this process was not running in between. It was stopped, its
container or virtual machine was, or other processes used all of the processor."""


class Clock:
    """The machine's own clock."""

    _heart: "_Heart | None" = None

    def now(self) -> float:
        """The unix time. It may be set, so it may jump."""
        return time.time()

    def elapsed(self) -> float:
        """Seconds since the machine was started, sleep included: never set, never jumps."""
        if hasattr(time, "CLOCK_BOOTTIME"):
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    def awake(self) -> float:
        """Seconds on a clock that nobody sets and that stands still while the machine sleeps,
        for measuring silence. While it is `beating`, it also stands still while this process
        is stopped: nobody could have observed anything then."""
        now = time.monotonic()
        return now if self._heart is None else now - self._heart.lost_s(now)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """As long as this lasts, pauses of the process are detected."""
        before = self._heart
        self._heart = heart = _Heart(before.lost_s(time.monotonic()) if before else 0.0)
        try:
            yield
        finally:
            heart.stop()

    def wait(self, files: Sequence[int], timeout_s: float) -> None:
        """Waits until one of these can be read, or the time is up."""
        poll = select.poll()
        for file in files:
            poll.register(file, select.POLLIN)
        poll.poll(max(0, int(timeout_s * 1000)))


class _Heart:
    """Ticks in its own thread, so that a gap between two ticks means that the whole process was
    stopped, whatever its other threads do."""

    def __init__(self, lost_s: float) -> None:
        self._lock, self._over = threading.Lock(), threading.Event()
        self._lost_s, self._beat_at = lost_s, time.monotonic()
        threading.Thread(target=self._beat, name="segue-heart", daemon=True).start()

    def lost_s(self, now: float) -> float:
        """How long the process was stopped so far. Each call also counts as a tick, because the
        first thread to run again must know."""
        with self._lock:
            gap_s = now - self._beat_at
            if gap_s > 0:
                self._beat_at = now
            if gap_s > _GAP_S and not self._over.is_set():
                self._lost_s += gap_s
            return self._lost_s

    def stop(self) -> None:
        self._over.set()

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_S):
            self.lost_s(time.monotonic())
