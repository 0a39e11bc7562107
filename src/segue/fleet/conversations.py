"""The conversation of a run as it grows: read from the run's output if this machine has it,
otherwise from what the run's own machine published."""

import time
from collections.abc import Callable, Iterator

from segue.core.runs.types import Run
from segue.fleet import output
from segue.fleet.database import FleetDatabase
from segue.fleet.output import Piece
from segue.runs.legs.words import Conversation, LegWords, Utterance
from segue.runs.results import is_here
from segue.runs.store.port import Store
from segue.system.config import config

_LAST_S = 5.0
"""How long the last words of a finished run may take to arrive from another machine."""


class RunWords:
    """Returns each message once."""

    def __init__(self, store: Store, run: Run) -> None:
        self._db = store if isinstance(store, FleetDatabase) and not is_here(run) else None
        self._reader: LegWords | None = None
        self._leg, self._number = 1, 0

    def look(self, run: Run) -> list[Piece]:
        """What was said since the last look. `run` is its current state. Raises StateError."""
        if self._db is not None:
            found = output.words(self._db, run.id, self._number)
            self._number = found[-1].number if found else self._number
            return found
        found = []
        while self._leg <= run.leg:
            reader = self._reader = self._reader or LegWords(run, self._leg)
            utterances: list[Utterance] = []
            while (new := reader.look()) or reader.has_more:
                utterances += new
            is_over = self._leg < run.leg or run.state.is_final
            utterances += reader.finish() if is_over else []
            if utterances:
                found.append(Piece(number=0, leg=self._leg, at=0.0, utterances=utterances))
            if not is_over:
                break
            self._leg, self._reader = self._leg + 1, None
        return found


def whole(store: Store, run: Run) -> dict[int, list[Utterance]]:
    """Everything known of the conversation by leg, with tools and their results. Raises
    StateError."""
    found: dict[int, Conversation] = {}
    for piece in RunWords(store, run).look(run):
        conversation = found.setdefault(piece.leg, Conversation())
        for each in piece.utterances:
            conversation.add(each)
    return {leg: conversation.utterances for leg, conversation in found.items()}


def following(store: Store, run: Run, wait: Callable[[], None]) -> Iterator[Piece]:
    """Yields what is said until the run ends, and calls `wait` between looks. Raises StateError."""
    words, version = RunWords(store, run), None
    while True:
        if (now := store.version()) != version or is_here(run):
            version = now
            # read first: if the run has ended, what is read next is complete
            found = store.run(run.id)
            run = found or run
            if run.state.is_final:
                wait_for_last(store, run, wait)
            yield from words.look(run)
            if found is None or run.state.is_final:
                return
        wait()


def wait_for_last(store: Store, run: Run, wait: Callable[[], None]) -> None:
    """Waits until the machine of a finished run has published everything, or has taken too long.
    Raises StateError."""
    if not isinstance(store, FleetDatabase) or is_here(run):
        return
    until = time.monotonic() + _LAST_S
    while time.monotonic() < until:
        result = output.result(store, run.id)
        # a short run may end before the first result is published
        is_silent = result is None and not config.fleet().output_days
        if is_silent or (result is not None and result.is_final):
            return
        wait()
