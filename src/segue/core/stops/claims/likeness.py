"""What kind of text is this? All its words weighed together, beside what its wordings say.

A wording knows a sentence and a claim knows two terms. Neither knows how a whole text reads: a
message that stops an agent is short, states one thing and names its cause; release notes, tests,
tables and advice use the same words in another company. So each word, pair of words, term of a
claim and mark of form has a weight for each reason, and for "no stop", in a table that was fitted
to real messages (`wordings/concepts/likeness.json`, docs/classify.md). Their sum says how likely
each reason is.

That is one more witness, not a judge: `tempering.py` weighs it with the other signs.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from msgspec import Struct

from segue.core.stops.reasons import StopReason

NO_STOP = StopReason.UNKNOWN
_WORD_CHARS = 12
_WORD = re.compile(r"[A-Za-z]+|[0-9]+|[^\x00-\x7f]")
_SEAM = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_STATUS_DIGITS = 3
_DENIES = {"not", "never", "without", "cannot"}
_DENIES_WITH_T = {"aren", "can", "couldn", "didn", "doesn", "don", "hadn", "hasn", "haven"}
_DENIES_WITH_T |= {"isn", "wasn", "weren", "won", "wouldn"}
_DENIED_WORDS = 3
_STEPS = 10
"""Weights are kept as whole numbers, in tenths."""


class Table(Struct, frozen=True):
    """What was fitted: for each mark of a text, a weight for each label."""

    labels: tuple[StopReason, ...]
    bias: tuple[float, ...]
    weights: dict[str, tuple[int, ...]]
    trust: dict[str, float]
    """For each kind of sign, how much it adds to the reason that it speaks for."""
    temper: float
    """How much of the likeness counts beside a sign."""


class Likeness:
    """The table, read when it is first needed."""

    def __init__(self, read: Callable[[], Table]) -> None:
        self._read = read

    @cached_property
    def table(self) -> Table:
        """The fitted weights."""
        return self._read()

    def likely(
        self, marks: Iterable[str], reason: StopReason, kind: str
    ) -> dict[StopReason, float]:
        """How likely each reason is, where a sign of this kind tells one of them."""
        table = self.table
        sums = [0.0] * len(table.labels)
        found = 1
        for mark in marks:
            row = table.weights.get(mark)
            if row is None:
                continue
            found += 1
            for place, weight in enumerate(row):
                sums[place] += weight
        scale = math.sqrt(found)
        pairs = zip(sums, table.bias, strict=True)
        shares = _logs([(total / _STEPS + bias) / scale for total, bias in pairs])
        trust = table.trust.get(kind, 0.0)
        scores = [
            table.temper * share + (trust if label is reason else 0.0)
            for label, share in zip(table.labels, shares, strict=True)
        ]
        return dict(zip(table.labels, map(math.exp, _logs(scores)), strict=True))

    def weight(self, reason: StopReason, marks: Iterable[str]) -> int:
        """How much more marks speak for a reason than for no stop."""
        labels = self.table.labels
        place, none = labels.index(reason), labels.index(NO_STOP)
        rows = (self.table.weights.get(mark) for mark in marks)
        return sum(row[place] - row[none] for row in rows if row is not None)


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
    for match in _WORD.finditer(text):
        word = match[0]
        if word[0].isdigit():
            status = len(word) == _STATUS_DIGITS and word[0] in "45"
            yield f"#{word}" if status else "#"
        elif word.isascii():
            yield from (part.lower()[:_WORD_CHARS] for part in _SEAM.split(word))
        elif word.isalpha():
            yield word


def _logs(scores: list[float]) -> list[float]:
    """Scores as the logarithms of shares that add up to one."""
    top = max(scores)
    total = math.log(sum(math.exp(score - top) for score in scores))
    return [score - top - total for score in scores]
