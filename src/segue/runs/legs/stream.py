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

    `tail` gives lines, `feed` takes them and gives their events, each once; whoever reads gives
    every line to `feed`, in order. `turn` and `salvager` are then as good as a second look at the
    whole file."""

    def __init__(self, path: Path, profile: Profile, cwd: str = "") -> None:
        self.tail, self.live = Tail(path), Live(profile)
        self.salvager = Salvager(cwd)
        self._profile, self._last = profile, LastTurn()
        self._is_known = False  # at least one record is of this agent

    def feed(self, lines: list[bytes], now: float = 0.0) -> list[Event]:
        """The events of these lines."""
        events = self.live.feed(lines, now)
        records = self.live.records
        self._is_known = self._is_known or any(map(self._knows, records))
        self.salvager.see_records(records)
        return self._take(events)

    def finish(self, now: float = 0.0) -> list[Event]:
        """What is said only at its end: once, when all lines were fed."""
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
        """Its last turn. None if it holds anything but whole records, one per line, or none that
        is surely this agent's: then its text has to be read."""
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
    """Whether the agent's turn has ended (`is_over`), by its records.

    Some say so, of others only silence tells: `settle` is asked whenever there is nothing more to
    read. Times are those of the clock that nobody sets."""

    def __init__(self, watch: StreamWatch) -> None:
        self.watch, self.is_over = watch, False
        self.maybe_since: float | None = None

    def begin(self) -> None:
        """Another turn begins: it was told something."""
        self.is_over, self.maybe_since = False, None

    def feed(self, record: dict[str, Any], at: float, *, is_asked: bool) -> None:
        """`is_asked`: a checkpoint is awaited."""
        over = self.watch.over(record)
        if over == "yes" and not is_asked:
            self.is_over, self.maybe_since = True, None
        elif over == "no":
            # What comes after the end of a turn does not undo it, unless an answer is awaited.
            self.is_over = self.is_over and not is_asked
            self.maybe_since = None
        else:
            # Asked for a checkpoint: it may be the turn before the answer that has ended.
            self.maybe_since = at

    def settle(self, at: float) -> None:
        """Nothing came for a while: what may have been the end was it."""
        if self.maybe_since is not None and at - self.maybe_since >= self.watch.settle_s:
            self.maybe_since, self.is_over = None, True
