"""Tracks an agent that waits, after its own compaction, for what the summary left out. See
`agents/shared/halts`."""

from pathlib import Path
from typing import Any

from msgspec import Struct

from segue.agents.shared import halts
from segue.runs.folders import read_json, write_json


class Halt(Struct, frozen=True):
    """An agent that waits. `summary` is "" if it did not say."""

    number: int
    summary: str
    since: float


class Halts:
    """The halts of one leg, in its folder."""

    def __init__(self, folder: Path) -> None:
        self.last_received = 0
        """The last of the leg's compactions about which the agent has taken words."""
        self.earlier = ""
        """What the last words said, if there was more to say."""
        self._folder = folder
        self._number = 1  # of the next
        self._given: dict[int, tuple[int, str]] = {}
        """Words that were not taken yet, by halt: about which compaction, and `earlier`."""
        self._last: Halt | None = None

    def waiting(self, awake: float) -> Halt | None:
        """The halt that has no answer yet."""
        while True:
            asked = self._read(halts.asked(self._number))
            if asked is None and not (self._folder / halts.late(self._number)).exists():
                return None
            answered = self._read(halts.answer(self._number), halts.taken(self._number))
            if asked is not None and answered is None:
                if self._last is None or self._last.number != self._number:
                    self._last = Halt(self._number, _text(asked, "summary"), awake)
                return self._last
            if answered is not None and _text(answered, "words"):
                self._give(self._number, answered)
            self._number += 1

    def answer(self, halt: Halt, words: str, compaction: int, *, earlier: str = "") -> None:
        """Lets the agent continue with these words, or without any if they are "". `earlier`: the
        same words, if more has to be said later."""
        record = {"words": words, "compaction": compaction, "earlier": earlier}
        write_json(self._folder / halts.answer(halt.number), record)

    def look(self) -> None:
        """Sees which words were taken."""
        for number, (compaction, earlier) in list(self._given.items()):
            if (self._folder / halts.taken(number)).exists():
                self.last_received, self.earlier = compaction, earlier
                del self._given[number]

    def _give(self, number: int, answered: dict[str, Any]) -> None:
        compaction = answered.get("compaction")
        if isinstance(compaction, int):
            self._given[number] = compaction, _text(answered, "earlier")

    def _read(self, *names: str) -> dict[str, Any] | None:
        for name in names:
            if (self._folder / name).exists():
                found = read_json(self._folder / name)
                return found if isinstance(found, dict) else {}
        return None


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""
