"""Fits the weights by which segue reads a text as a whole (`wordings/concepts/likeness.json`).

    pip install numpy scipy
    python tests/support/likeness.py [MESSAGES.jsonl …] [--out FILE]

Learns from `tests/data` (real messages, and texts written for this), from the examples of the
wordings, and from MESSAGES: lines of {text, label, channel?, weight?}, where a label is a stop
reason or "none". The rules were made on most of the real messages, so these are read without the
sentences that are known word for word: otherwise the words would learn to rely on rules that are
never wrong. How far a sentence can be trusted is learned from the messages for which no rule was
written, and from the written texts.

Multinomial logistic regression with a quadratic penalty, fitted by L-BFGS.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import segue.agents.ending as ending
from segue import api
from segue.core.stops.claims.likeness import NO_STOP, SHARED, STEPS, Likeness, Table
from segue.core.stops.claims.marks import facts_of, marks_of
from segue.core.stops.composition import is_family
from segue.core.stops.plain.text import Unit
from segue.core.stops.reasons import StopReason
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
EXAMPLES = 0.5
UNSEEN = ("f18-", "f19-", "t21-")
"""How the ids of real messages begin for which hardly any rule was written."""
LABELS = tuple(sorted(reason.value for reason in StopReason))
_SELDOM = 3  # how often a mark must be seen
_PENALTY = 1.0
_ROUNDS = 120
_WORTH = 3
"""In steps: a mark whose weights are all smaller is left out."""


class Row(NamedTuple):
    """A text as it is learned from."""

    marks: tuple[str, ...]
    facts: tuple[str, ...]
    label: str
    weight: float


def weighed(
    text: str, channel: str, agent: str | None, catalogue: Catalogue
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The marks of a text and the facts about it, as a verdict on it would see them; None if it is
    not read as a whole."""
    found: list[tuple[tuple[str, ...], tuple[str, ...]]] = []

    def note(
        read_text: TextVerdict,
        units: list[Unit],
        reader: MessageReader,
        where: str,
        *,
        channel: str,
        **_: bool,
    ) -> TextVerdict:
        marks = set(marks_of(units, reader.catalogue.vocabulary, read_text, channel))
        facts = set(facts_of(read_text, units, where, channel))
        found.append((tuple(sorted(marks)), tuple(sorted(facts))))
        return read_text

    temper = vars(ending)["temper"]
    vars(ending)["temper"] = note
    try:
        source = ending.Source(text=text, channel=channel)  # type: ignore[arg-type]
        api.examine(ending.Ending(sources=(source,), agent=agent), now=0.0, catalogue=catalogue)
    finally:
        vars(ending)["temper"] = temper
    return found[0] if found else None


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
    return list(_rows(files))


def _rows(files: Iterable[Path]) -> Iterator[Row]:
    whole, less = load(), without_sentences()
    for file, of_set in [
        *((DATA / f"{name}.jsonl", w) for name, w in SETS),
        *((f, 1.0) for f in files),
    ]:
        for line in file.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            is_seen = of_set > 1 and not record.get("id", "").startswith(UNSEEN)
            found = weighed(
                record["text"],
                record.get("channel") or "stdout",
                record.get("agent"),
                less if is_seen else whole,
            )
            if found is not None:
                yield Row(*found, _label(record["label"]), of_set * record.get("weight", 1.0))
    for file in sorted(PACKAGED.glob("*.toml")):
        for wording in read(file)[0]:
            for text in wording.example:
                if (found := weighed(text, "stderr", None, whole)) is not None:
                    yield Row(*found, _label(wording.reason), EXAMPLES)


def _label(name: str) -> str:
    return NO_STOP.value if name == "none" else name


def fit(learned: list[Row]) -> Table:
    """A weight for each mark, fact and label, and the bias."""
    numpy, sparse = import_module("numpy"), import_module("scipy.sparse")
    known = _known(learned)
    places = {name: place for place, name in enumerate(known)}
    matrix = _matrix(learned, places, numpy, sparse)
    labels = numpy.array([LABELS.index(row.label) for row in learned])
    counts = numpy.array([row.weight for row in learned])
    fitted = _fitted(matrix, labels, counts, numpy)
    fitted -= fitted.mean(axis=1, keepdims=True)  # only differences between labels count
    steps = numpy.rint(fitted * STEPS).astype(int)
    weights = {
        name: steps[place].tolist()
        for name, place in sorted(places.items())
        if abs(steps[place]).max() >= _WORTH
    }
    labels_in_order = [StopReason(label) for label in LABELS]
    return Table.of(labels_in_order, [round(float(v), 2) for v in fitted[-1]], weights)


def _known(learned: list[Row]) -> list[str]:
    counts = Counter(name for row in learned for name in (*row.marks, *row.facts))
    return sorted(name for name, count in counts.items() if count >= _SELDOM)


def _matrix(learned: list[Row], places: dict[str, int], numpy: Any, sparse: Any) -> Any:
    entries: list[float] = []
    columns: list[int] = []
    starts = [0]
    for row in learned:
        marks = [places[mark] for mark in row.marks if mark in places]
        facts = [places[fact] for fact in row.facts if fact in places]
        columns += [*marks, *facts, len(places)]
        share = SHARED / max(1, len(marks)) ** 0.5
        entries += [share] * len(marks) + [1.0] * (len(facts) + 1)
        starts.append(len(columns))
    shape = (len(learned), len(places) + 1)
    return sparse.csr_matrix((numpy.array(entries), columns, starts), shape=shape)


def _fitted(matrix: Any, labels: Any, counts: Any, numpy: Any) -> Any:
    size, across = (matrix.shape[1], len(LABELS)), matrix.T.tocsr()
    right = numpy.eye(len(LABELS))[labels]

    def loss(flat: Any) -> tuple[float, Any]:
        weights = flat.reshape(size)
        scores = matrix @ weights
        scores -= scores.max(axis=1, keepdims=True)
        shares = numpy.exp(scores)
        totals = shares.sum(axis=1, keepdims=True)
        missed = counts @ (numpy.log(totals[:, 0]) - (scores * right).sum(axis=1))
        slopes = across @ ((shares / totals - right) * counts[:, None]) + _PENALTY * weights
        return missed + _PENALTY * (weights**2).sum() / 2, slopes.ravel()

    minimize = import_module("scipy.optimize").minimize
    start = numpy.zeros(size[0] * size[1])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": _ROUNDS})
    return found.x.reshape(size)


def main() -> None:
    """Fits, and writes the file."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("messages", type=Path, nargs="*")
    asked.add_argument("--out", type=Path, default=LIKENESS)
    given = asked.parse_args()
    given.out.write_bytes(msgspec.json.encode(fit(rows(given.messages))) + b"\n")


if __name__ == "__main__":
    main()
