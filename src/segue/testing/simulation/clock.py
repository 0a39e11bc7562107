"""Simulated time: a schedule of what happens next, and a machine's clocks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from math import ceil

from segue.runs.clock import Clock

EPOCH = 1_794_787_200.0  # 2026-11-16 00:00 UTC


class Schedule:
    """What happens when, in true time: seconds since the world began. Events due at the same time
    happen in the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._number = count()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time: float, act: Callable[[], None]) -> None:
        """Plans an event; one in the past is due now. Times are rounded to milliseconds, because
        the last digits of a logarithm differ between machines. They are rounded up: whoever waits
        for `time` would otherwise wake just before it and wait again forever."""
        due = ceil(time * 1000) / 1000
        if due < time:
            due = (ceil(time * 1000) + 1) / 1000
        if due < self.now:
            due = self.now
        heappush(self._queue, (due, next(self._number), act))

    def step(self, until: float) -> bool:
        """Lets the next event happen. Returns False if there is none before `until`."""
        queue = self._queue
        if not queue or queue[0][0] > until:
            self.now = max(self.now, until)
            return False
        time, _, act = heappop(queue)
        if time > self.now:
            self.now = time
        act()
        return True


class VirtualClock(Clock):
    """The clocks of a machine: the wall clock, which can be set; the time since boot; and the time
    awake, which stops during sleep."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.offset_s = 0.0  # of the wall clock
        self.slept_s = 0.0
        self.booted_at = 0.0

    def now(self) -> float:
        return EPOCH + self._schedule.now + self.offset_s

    def elapsed(self) -> float:
        return self._schedule.now - self.booted_at

    def awake(self) -> float:
        return self._schedule.now - self.slept_s

    @contextmanager
    def beating(self) -> Iterator[None]:
        yield

    def wait(self, files: Sequence[int], timeout_s: float) -> None:
        """Returns at once, because whoever drives the loop plans its next turn."""
