"""What kind of text is this? All its words weighed together, with what its rules found.

A wording knows a sentence and a claim knows two terms. Neither knows how a whole text reads: a
message that stops an agent is short, states one thing and names its cause; release notes, tests,
tables and advice use the same words in another company. So each mark of a text and each fact about
it (`marks.py`) has a weight for each reason, and for "no stop", in a table that was fitted to real
messages and to texts written for it (`wordings/concepts/likeness.json`, docs/classify.md). Their
sum says how likely each reason is.

`tempering.py` decides what follows from that.
"""

import math
import re
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from segue.core.stops.reasons import StopReason

NO_STOP = StopReason.UNKNOWN
FACT = "="
"""How the name of what a rule found begins."""
_WORD_CHARS = 12
_ASCII_WORD = re.compile(r"[A-Za-z]+|[0-9]+")
_SYLLABLES = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Letters of scripts that write no space between words, or inflect within them."""
_WORD = re.compile(rf"[{_SYLLABLES}]|(?:(?![{_SYLLABLES}])[^\W\d_])+|[0-9]+")
_SEAM = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_STATUS_DIGITS = 3
_DENIES = {"not", "never", "without", "cannot"}
_DENIES_WITH_T = {"aren", "can", "couldn", "didn", "doesn", "don", "hadn", "hasn", "haven"}
_DENIES_WITH_T |= {"isn", "wasn", "weren", "won", "wouldn"}
_DENIED_WORDS = 3
SHARED = 3.0
"""How much the marks of a text weigh together, however many they are."""
STEPS = 25
"""Weights are kept as whole numbers of one byte, in 25ths."""
_MAX_STEPS = 127


class Table(Struct, frozen=True):
    """What was fitted: for each mark of a text and each fact about it, a weight for each label."""

    labels: tuple[StopReason, ...]
    bias: tuple[float, ...]
    marks: tuple[str, ...]
    rows: bytes
    """For each mark, a signed byte for each label."""

    @classmethod
    def of(
        cls,
        labels: Sequence[StopReason],
        bias: Sequence[float],
        weights: Mapping[str, Sequence[int]],
    ) -> "Table":
        """A table with these weights, in steps."""
        flat = [max(-_MAX_STEPS, min(_MAX_STEPS, w)) for row in weights.values() for w in row]
        return cls(tuple(labels), tuple(bias), tuple(weights), array("b", flat).tobytes())


class Likeness:
    """The table, read when it is first needed."""

    def __init__(self, read: Callable[[], Table]) -> None:
        self._read = read

    @cached_property
    def _table(self) -> Table:
        return self._read()

    @cached_property
    def _places(self) -> dict[str, int]:
        size = len(self._table.labels)
        return {mark: place * size for place, mark in enumerate(self._table.marks)}

    @cached_property
    def _row(self) -> struct.Struct:
        return struct.Struct(f"{len(self._table.labels)}b")

    def likely(self, marks: Iterable[str], facts: Iterable[str]) -> dict[StopReason, float]:
        """How likely each reason is, for a text with these marks and facts."""
        table = self._table
        shared, found = self._sum(marks)
        scale = SHARED / math.sqrt(max(1, found))
        stated, _ = self._sum(facts)
        scores = [
            (scale * of_marks + of_facts) / STEPS + bias
            for of_marks, of_facts, bias in zip(shared, stated, table.bias, strict=True)
        ]
        top = max(scores)
        shares = [math.exp(score - top) for score in scores]
        total = sum(shares)
        return dict(zip(table.labels, (share / total for share in shares), strict=True))

    def _sum(self, marks: Iterable[str]) -> tuple[list[int], int]:
        rows = list(self._found(marks))
        if not rows:
            return [0] * len(self._table.labels), 0
        return [sum(column) for column in zip(*rows, strict=True)], len(rows)

    def _found(self, marks: Iterable[str]) -> Iterator[tuple[int, ...]]:
        places, rows, row = self._places, self._table.rows, self._row
        for mark in marks:
            place = places.get(mark)
            if place is not None:
                yield row.unpack_from(rows, place)

    def weight(self, reason: StopReason, marks: Iterable[str]) -> int:
        """How much more marks speak for a reason than for no stop."""
        labels = self._table.labels
        place, none = labels.index(reason), labels.index(NO_STOP)
        return sum(row[place] - row[none] for row in self._found(marks))


def words_of(text: str) -> Iterator[str]:
    """The words of a text, small and short; of numbers, only HTTP statuses are told apart, and what
    is denied is another word than what is said ("not-full")."""
    denied, before = 0, ""
    for word in _plain_words(text):
        yield f"not-{word}" if denied else word
        denied -= denied > 0
        if word in _DENIES or (word == "t" and before in _DENIES_WITH_T):
            denied = _DENIED_WORDS
        before = word


def _plain_words(text: str) -> Iterator[str]:
    for match in (_ASCII_WORD if text.isascii() else _WORD).finditer(text):
        word = match[0]
        if not word.isascii():
            yield word.casefold()[:_WORD_CHARS]
        elif word.isdecimal():
            status = len(word) == _STATUS_DIGITS and word[0] in "45"
            yield f"#{word}" if status else "#"
        else:
            yield from (part.lower()[:_WORD_CHARS] for part in _SEAM.split(word))
