"""Decides when to look at what changed. Pure: the time is an argument."""

from heapq import heappop, heappush

FIRST_S, MAX_S = 0.2, 1.0
"""How long a change waits for more of the same; and how long if there is always more."""
PRESSING_S = 0.02
"""How long a change waits if every single one matters."""
_CALM_S = 2.0
_SHARE = 20  # looks at one file may take at most this share of the time
_PRESSING_SHARE = 3  # and this one, if every change matters


class Pace:
    """A path that changes is due a little later, and at most once until then, however often it
    changes. One that keeps changing is due less and less often, down to once in MAX_S,
    unless it is pressing."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._order: list[tuple[float, str]] = []
        self._looks: dict[str, tuple[float, float]] = {}  # when, and the minimum pause after it
        self._pressing: set[str] = set()

    def touch(self, path: str, now: float) -> None:
        """The path has changed."""
        if path not in self._due:
            at, pause_s = self._looks.get(path, (now, 0.0))
            first_s = PRESSING_S if path in self._pressing else FIRST_S
            self._set(path, max(now + first_s, at + pause_s))

    def press(self, path: str, is_so: bool) -> None:
        """Whether every change of the path matters from now on."""
        if is_so:
            self._pressing.add(path)
        else:
            self._pressing.discard(path)

    def hurry(self, path: str, now: float) -> None:
        """The path has changed, and something is waiting for a look at it."""
        self._set(path, now)

    def next_at(self) -> float:
        """When the next path is due."""
        while self._order and self._due.get(self._order[0][1]) != self._order[0][0]:
            heappop(self._order)
        return self._order[0][0] if self._order else float("inf")

    def due(self, now: float) -> str | None:
        """Returns one path that is due, and removes it."""
        if self.next_at() > now:
            return None
        _, path = heappop(self._order)
        del self._due[path]
        return path

    def note_look(self, path: str, at: float, took_s: float) -> None:
        """The path was looked at, which took this long."""
        last_at, pause_s = self._looks.get(path, (float("-inf"), 0.0))
        is_calm = at > last_at + _CALM_S
        pause_s = FIRST_S if is_calm else min(MAX_S, max(FIRST_S, 2 * pause_s))
        # The first look may be slow for other reasons, and its result is needed soon.
        rest_s = min(_SHARE * took_s, MAX_S + 2 * took_s)
        if path in self._pressing:
            pause_s, rest_s = PRESSING_S, _PRESSING_SHARE * took_s
        self._looks[path] = (at, max(pause_s, rest_s))

    def tidy(self, now: float) -> None:
        """Drops paths that no longer change."""
        self._looks = {
            path: (at, pause_s)
            for path, (at, pause_s) in self._looks.items()
            if now < at + pause_s + _CALM_S
        }

    def _set(self, path: str, at: float) -> None:
        self._due[path] = at
        heappush(self._order, (at, path))
