"""What is said in a run, as it grows: from its output if this machine has it, else as its own
machine tells the others."""

import time
from collections.abc import Callable, Iterator

from segue.core.runs.types import Run
from segue.fleet import output
from segue.fleet.database import FleetDatabase
from segue.fleet.output import Piece
from segue.runs.legs.words import Conversation, LegWords, Said
from segue.runs.results import is_here
from segue.runs.store.port import Store

_LAST_S = 5.0
"""For so long the last words of a run that is over may take to come from another machine."""


class RunWords:
    """Gives each thing out once."""

    def __init__(self, store: Store, run: Run) -> None:
        self._db = store if isinstance(store, FleetDatabase) and not is_here(run) else None
        self._reader: LegWords | None = None
        self._leg, self._number = 1, 0

    def look(self, run: Run) -> list[Piece]:
        """What was said since the last look at the run, which stands so now. Raises StateError."""
        if self._db is not None:
            found = output.words(self._db, run.id, self._number)
            self._number = found[-1].number if found else self._number
            return found
        found = []
        while self._leg <= run.leg:
            reader = self._reader = self._reader or LegWords(run, self._leg)
            said: list[Said] = []
            while (new := reader.look()) or reader.has_more:
                said += new
            is_over = self._leg < run.leg or run.state.is_final
            said += reader.finish() if is_over else []
            if said:
                found.append(Piece(number=0, leg=self._leg, at=0.0, said=said))
            if not is_over:
                break
            self._leg, self._reader = self._leg + 1, None
        return found


def whole(store: Store, run: Run) -> dict[int, list[Said]]:
    """All that is known of it, leg by leg, tools with their results. Raises StateError."""
    found: dict[int, Conversation] = {}
    for piece in RunWords(store, run).look(run):
        conversation = found.setdefault(piece.leg, Conversation())
        for each in piece.said:
            conversation.add(each)
    return {leg: conversation.said for leg, conversation in found.items()}


def following(store: Store, run: Run, wait: Callable[[], None]) -> Iterator[Piece]:
    """What is said, until the run is over. `wait` is called between two looks. Raises
    StateError."""
    words, version = RunWords(store, run), None
    while True:
        if (now := store.version()) != version or is_here(run):
            version = now
            found = store.run(run.id)  # first: if it is over, what is read next is all of it
            run = found or run
            if run.state.is_final:
                wait_for_last(store, run, wait)
            yield from words.look(run)
            if found is None or run.state.is_final:
                return
        wait()


def wait_for_last(store: Store, run: Run, wait: Callable[[], None]) -> None:
    """Of a run that is over on another machine: until that one has told all of it, or takes too
    long. Raises StateError."""
    if not isinstance(store, FleetDatabase) or is_here(run):
        return
    until = time.monotonic() + _LAST_S
    while time.monotonic() < until:
        result = output.result(store, run.id)
        if result is None or result.is_final:
            return
        wait()
