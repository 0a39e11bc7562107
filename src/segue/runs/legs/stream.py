"""Parses a leg's output once for everyone who needs it: the follower, the verdict at its end,
and the run's checkpoint."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from segue.agents.contracts.drive import StreamWatch
from segue.agents.contracts.profile import Profile
from segue.agents.shared.live import Live
from segue.core.stops.events import Event
from segue.core.stops.fold import LastTurn, Turn
from segue.sessions.salvage import Salvager
from segue.system.files.stream import Tail


class LegStream:
    """A leg's standard output, from its first byte.

    `tail` returns lines; `feed` takes them and returns their events, each once. The reader passes
    every line to `feed`, in order. `turn` and `salvager` are then as good as reading the whole file
    again.
    """

    def __init__(self, path: Path, profile: Profile, cwd: str = "") -> None:
        self.tail, self.live = Tail(path), Live(profile)
        self.salvager = Salvager(cwd)
        self._profile, self._last = profile, LastTurn()
        self._is_known = False  # at least one record is from this agent

    def feed(self, lines: list[bytes], now: float = 0.0) -> list[Event]:
        """The events of these lines."""
        events = self.live.feed(lines, now)
        records = self.live.records
        self._is_known = self._is_known or any(map(self._knows, records))
        self.salvager.see_records(records)
        return self._take(events)

    def finish(self, now: float = 0.0) -> list[Event]:
        """The events that come only at its end; call it once, after all lines were fed."""
        return self._take(self.live.close(now))

    def replay(self) -> Iterator[Event]:
        """All events of a leg that has ended."""
        with self.tail:
            while (lines := self.tail.read()) or self.tail.has_more:
                yield from self.feed(lines)
            if rest := self.tail.rest():
                yield from self.feed([rest])
        yield from self.finish()

    @property
    def turn(self) -> Turn | None:
        """Its last turn. None if it contains anything except complete records, one per line, or no
        record that is certainly this agent's: then its text has to be read."""
        if not self._is_known or self.live.has_text:
            return None
        turn = self._last.turn()
        return turn if turn.seen or turn.unread else None

    def _knows(self, record: dict[str, Any]) -> bool:
        resembles = self._profile.resembles
        return self._profile.knows(record) or (resembles is not None and resembles(record))

    def _take(self, events: list[Event]) -> list[Event]:
        self.salvager.feed(events)
        for event in events:
            self._last.feed(event)
        return events


class TurnEnd:
    """Whether the agent's turn has ended (`is_over`), according to its records.

    Some agents say so; for others only silence shows it, so `settle` is called whenever there is
    nothing more to read. Times are on the monotonic clock.
    """

    def __init__(self, watch: StreamWatch) -> None:
        self.watch, self.is_over = watch, False
        self.maybe_since: float | None = None

    def begin(self) -> None:
        """Another turn begins, because it was sent a message."""
        self.is_over, self.maybe_since = False, None

    def feed(self, record: dict[str, Any], at: float, *, is_asked: bool) -> None:
        """Takes a record. `is_asked`: a checkpoint is expected."""
        over = self.watch.over(record)
        if over == "yes" and not is_asked:
            self.is_over, self.maybe_since = True, None
        elif over == "no":
            # What follows the end of a turn does not undo it, unless an answer is expected.
            self.is_over = self.is_over and not is_asked
            self.maybe_since = None
        else:
            # When asked for a checkpoint, the turn before the answer may be the one that ended.
            self.maybe_since = at

    def settle(self, at: float) -> None:
        """Nothing arrived for a while, so what may have been the end was the end."""
        if self.maybe_since is not None and at - self.maybe_since >= self.watch.settle_s:
            self.maybe_since, self.is_over = None, True
