"""Fits the weights by which segue reads a text as a whole (`wordings/concepts/likeness.json`).

    python tests/support/likeness.py [MESSAGES.jsonl …] [--out FILE]

Learns from `tests/data` (real messages, and texts written for this), from the examples of the
wordings, and from MESSAGES: lines of {text, label, channel?, weight?}, where a label is a stop
reason or "none". Takes about ten minutes. The rules were made on the real messages, so these are
read without the sentences that are known word for word: otherwise the words would learn to rely
on rules that are never wrong. How far each kind of sign is trusted cannot be fitted to them for
the same reason: those numbers are kept as they are in the file.

Logistic regression without any library: AdaGrad, averaged over the second half of the epochs.
"""

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import segue.agents.ending as ending
from segue import api
from segue.core.stops.claims.likeness import NO_STOP, Likeness
from segue.core.stops.claims.tempering import marks_of
from segue.core.stops.composition import is_family
from segue.core.stops.plain.text import Unit
from segue.core.stops.text.reader import MessageReader
from segue.core.stops.text.text_verdict import TextVerdict
from segue.core.stops.text.wordings import Catalogue
from segue.system.config.wordings import (
    LIKENESS,
    PACKAGED,
    likeness_table,
    load,
    read,
    vocabulary,
)

DATA = Path(__file__).parents[1] / "data"
SETS = (("stops", 2.0), ("collected", 3.0), ("fresh", 3.0), ("written", 1.0))
"""What is learned from in `tests/data`, and how much each text of it counts."""
_EPOCHS = 12
_STEP = 0.5
_DECAY = 1e-4
_SINGLE, _PAIR = 3, 4  # how often a mark must have been seen
_ROUND = 0.15
_WORTH = 1.0


class Row(NamedTuple):
    """A text as it is learned from."""

    marks: tuple[str, ...]
    label: str
    weight: float


def marks(text: str, channel: str, catalogue: Catalogue) -> tuple[str, ...]:
    """The marks of a text, as a verdict on it would see them."""
    seen: list[tuple[str, ...]] = []

    def note(
        heard: TextVerdict, units: list[Unit], ear: MessageReader, where: str, **_: bool
    ) -> TextVerdict:
        del where
        seen.append(tuple(sorted(set(marks_of(units, ear.catalogue.vocabulary, heard)))))
        return heard

    kept = vars(ending)["temper"]
    vars(ending)["temper"] = note
    try:
        source = ending.Source(text=text, channel=channel)  # type: ignore[arg-type]
        api.examine(ending.Ending(sources=(source,)), now=0.0, catalogue=catalogue)
    finally:
        vars(ending)["temper"] = kept
    return seen[0] if seen else ()


def without_sentences() -> Catalogue:
    """The packaged wordings without the sentences that are known word for word."""
    ours = [
        (file.name, wording)
        for file in sorted(PACKAGED.glob("*.toml"))
        for wording in read(file)[0]
        if wording.strength != "sentence" or wording.reason == "none" or is_family(wording.id)
    ]
    return Catalogue([], ours, vocabulary(), Likeness(likeness_table))


def rows(files: Iterable[Path]) -> list[Row]:
    """All that is learned from."""
    whole, less = load(), without_sentences()
    found: list[Row] = []
    for file, of_set in [
        *((DATA / f"{name}.jsonl", w) for name, w in SETS),
        *((f, 1.0) for f in files),
    ]:
        rules = less if of_set > 1 else whole
        for line in file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            channel = record.get("channel") or "stdout"
            weight = of_set * record.get("weight", 1.0)
            found.append(Row(marks(record["text"], channel, rules), record["label"], weight))
    for file in sorted(PACKAGED.glob("*.toml")):
        for wording in read(file)[0]:
            shown = (marks(text, "stderr", whole) for text in wording.example)
            found += (Row(each, wording.reason, 1.0) for each in shown)
    return [row for row in found if row.marks]


def fit(learned: list[Row], labels: list[str], seed: int = 0) -> tuple[dict[str, Any], list[float]]:
    """A weight for each mark and label, and the bias."""
    counts = Counter(mark for row in learned for mark in row.marks)
    known = {m for m, n in counts.items() if n >= (_PAIR if _is_pair(m) else _SINGLE)}
    places = range(len(labels))
    bias = ""
    zero = [0.0 for _ in places]
    weights = {mark: list(zero) for mark in (*known, bias)}
    squares = {mark: [1e-2 for _ in places] for mark in weights}
    sums = {mark: list(zero) for mark in weights}
    order = [([m for m in row.marks if m in known] + [bias], row) for row in learned]
    random = Random(seed)
    for epoch in range(_EPOCHS):
        random.shuffle(order)
        for found, row in order:
            _learn(found, labels.index(row.label), row.weight, weights, squares)
        if epoch >= _EPOCHS // 2:
            for mark, values in weights.items():
                sums[mark] = [a + b for a, b in zip(sums[mark], values, strict=True)]
    times = _EPOCHS - _EPOCHS // 2
    means = {mark: [v / times for v in values] for mark, values in sums.items()}
    level = {m: [v - sum(values) / len(values) for v in values] for m, values in means.items()}
    kept = {
        mark: [0 if abs(v) < _ROUND else round(v * 10) for v in values]
        for mark, values in sorted(level.items())
        if mark and max(map(abs, values)) >= _WORTH
    }
    return kept, [round(v, 2) for v in level[bias]]


def _learn(
    found: list[str],
    right: int,
    weight: float,
    weights: dict[str, list[float]],
    squares: dict[str, list[float]],
) -> None:
    scale = 1 / math.sqrt(len(found))
    scores = [scale * sum(column) for column in zip(*(weights[m] for m in found), strict=True)]
    top = max(scores)
    shares = [math.exp(score - top) for score in scores]
    total = sum(shares)
    missed = [weight * scale * (s / total - (n == right)) for n, s in enumerate(shares)]
    for mark in found:
        values, seen = weights[mark], squares[mark]
        for place, miss in enumerate(missed):
            slope = miss + _DECAY * values[place]
            seen[place] += slope * slope
            values[place] -= _STEP * slope / math.sqrt(seen[place])


def _is_pair(mark: str) -> bool:
    return " " in mark and mark[0] not in "!@"


def main() -> None:
    """Fits, and writes the file."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("messages", type=Path, nargs="*")
    asked.add_argument("--out", type=Path, default=LIKENESS)
    given = asked.parse_args()
    before = likeness_table()
    labels = [("none" if label is NO_STOP else label.value) for label in before.labels]
    weights, bias = fit(rows(given.messages), labels)
    head = {
        "labels": [label.value for label in before.labels],
        "bias": bias,
        "temper": before.temper,
        "trust": before.trust,
    }
    lines = ",\n".join(
        f"{json.dumps(mark, ensure_ascii=False)}:{json.dumps(row, separators=(',', ':'))}"
        for mark, row in weights.items()
    )
    start = json.dumps(head)[:-1]
    given.out.write_text(f'{start}, "weights": {{\n{lines}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
