"""Enforces what parsers promise: to accept all records, to end where they end, and never to raise.

A plug-in's parser may break any of these promises, and a run must not hang because of it.
Records that a parser leaves unread are skipped here and counted as unreadable.
"""

from collections.abc import Generator, Iterable, Iterator

from segue.agents.contracts.profile import Parse, Record
from segue.core.stops.events import Event, Other

MAX_EVENTS = 10_000
"""The most events for one record: a parser that yields more of them is taken to be endless."""


class Guarded:
    """The same parser, made to keep its promises. Whenever it gives up (it raises, returns
    before the end, yields no event, or yields events without end), it starts again with the
    next record, and the record that it stopped at counts as unread."""

    def __init__(self, parse: Parse) -> None:
        self.parse = parse

    def __call__(self, records: Iterable[Record]) -> Iterator[Event]:
        given = _CountedRecords(records)
        while not given.is_over:
            before = given.taken
            is_faulty = yield from self._parsed(given)
            if given.is_over or not (is_faulty or given.taken == before):
                continue
            if given.taken == before and next(given, None) is None:
                return
            yield Other(kind="unread", where=given.where, known=False)

    def _parsed(self, given: "_CountedRecords") -> Generator[Event, None, bool]:
        """Yields the parser's events until it gives up; returns whether that was a fault."""
        yielded, at = 0, given.taken
        try:
            for event in self.parse(given):
                yielded, at = (yielded + 1 if at == given.taken else 1), given.taken
                if yielded > MAX_EVENTS or not isinstance(event, Event):
                    return True
                yield event
        except Exception:  # whatever a plug-in raises is not the run's fault
            return True
        return False


class _CountedRecords:
    """Records, and how many of them were taken."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = iter(records)
        self.taken = 0
        self.where = ""  # the last one's
        self.is_over = False

    def __iter__(self) -> "_CountedRecords":
        return self

    def __next__(self) -> Record:
        try:
            record = next(self._records)
        except StopIteration:
            self.is_over = True
            raise
        self.taken += 1
        self.where = record.where
        return record


def guarded(parse: Parse) -> Parse:
    """This parser, made to keep its promises; wrapping it once is enough."""
    return parse if isinstance(parse, Guarded) else Guarded(parse)
