"""What can be weighed about a text: its words and its form, and what the rules found in it.

A **mark** is a word, a pair of words, a term of a claim or a form, with who says it and where. A
**fact** is what a rule found: the reason, the kind of sign, the wording, where it stands, and what
was found but does not count. Facts are few and weigh as they are; the weight of marks is shared
among all that a text has, because a long text has more of them (`likeness.py`).
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from segue.core.stops.claims.likeness import FACT, words_of
from segue.core.stops.claims.vocabulary import Vocabulary
from segue.core.stops.composition import is_family, ordered
from segue.core.stops.confidence import is_hard
from segue.core.stops.plain.text import Unit
from segue.core.stops.plain.voice import Voice
from segue.core.stops.text.reader import tells_of_retries
from segue.core.stops.text.text_verdict import TextVerdict
from segue.core.stops.types import Rank, Sign, Strength

DISMISSED = "dismissed"
UNITS = 12
UNIT_CHARS = 1_500
_FORMS = (
    ("@tick", re.compile(r"`[^`]+`")),
    ("@person", re.compile(r"\b(?:I|[Ww]e|[Mm]y|[Oo]ur)\b")),
    ("@brace", re.compile(r"\{")),
    ("@sentences", re.compile(r"[.!?]\s+[A-Z]")),
    ("@equals", re.compile(r"=")),
    ("@call", re.compile(r"\w\(")),
    ("@asks", re.compile(r"\?")),
    ("@colon", re.compile(r":\s*\Z")),
    ("@trails", re.compile(r"(?:…|\.\.\.)\s*\Z")),
)
_ZONES = {Voice.ERROR: "e:", Voice.PLAIN: "p:"}
_REST = "m:"
_LAST = "l:"
_STEM = "<"
_LAST_UNITS = 2
_WHY_WORDS = 3
_LONGEST = 7
_MAX_UNITS = 4
_STEM_CHARS = 6
_QUOTE_PARTS = 5
_TALK = "transcript"


def kind_of(best: Sign | None, *, dismissed: bool = False) -> str:
    """What a verdict on a text rests on, as its reliability is counted."""
    if best is None:
        return DISMISSED if dismissed else "nothing"
    if best.rank is Rank.EXIT:
        return "exit"
    if is_family(best.evidence.rule):
        return best.evidence.rule.partition(".")[0]
    if is_hard(best):
        return "hard"
    return {
        Strength.OWN: "own",
        Strength.SENTENCE: "sentence",
        Strength.CODE: "code",
    }.get(best.strength, "hint")


def is_dismissed(read: TextVerdict, units: Iterable[Unit]) -> bool:
    """Whether the rules found something, and found that it is no stop."""
    return bool(read.lost) or any(tells_of_retries(unit.text) for unit in units)


def is_word(mark: str) -> bool:
    """Whether a mark is a word or a pair of words, said anywhere."""
    return (mark[0].isalpha() or mark[0] == "#") and mark[1:2] != ":"


def marks_of(
    units: list[Unit], vocabulary: Vocabulary | None, read: TextVerdict, channel: str
) -> Iterator[str]:
    """Everything about a text that has a weight, but for what the rules found."""
    shown = units[-UNITS:]
    for number, unit in enumerate(shown, start=1):
        text = unit.text[:UNIT_CHARS]
        words = list(words_of(text))
        zone = _ZONES.get(unit.voice, _REST)
        yield from words
        yield from (f"{zone}{word}" for word in words)
        yield from (f"{first} {second}" for first, second in pairwise(words))
        yield from (f"{_STEM}{word[:_STEM_CHARS]}" for word in words if len(word) > _STEM_CHARS)
        if number > len(shown) - _LAST_UNITS:
            yield from (f"{_LAST}{word}" for word in words)
            yield f"@in {_place(channel)} {unit.voice.name}"
        if words:
            yield f"^{words[0]}"
        if vocabulary is not None:
            yield from (f"~{name}" for name in vocabulary.terms_in(text))
        yield f"@length {min(_LONGEST, len(words).bit_length())}"
        yield from (name for name, form in _FORMS if form.search(text))
        yield from _forms_of(unit)
    for sign in read.lost:
        yield "!" + " ".join(sign.lost.split()[:_WHY_WORDS])
        yield f"!!{sign.reason.value}"
    if is_dismissed(read, units):
        yield "!dismissed"
    yield f"@units {min(_MAX_UNITS, len(units).bit_length())}"
    if units:
        yield f"@first {units[0].voice.name}"
        yield f"@last {units[-1].voice.name}"


def _forms_of(unit: Unit) -> Iterator[str]:
    yield f"@{unit.voice.name}"
    if unit.log:
        yield "@log"
    if unit.speaker:
        yield "@speaker"
    if unit.item:
        yield "@item"


def facts_of(read: TextVerdict, units: list[Unit], where: str, channel: str) -> Iterator[str]:
    """What the rules found in a text."""
    best = ordered(read.signs)[0] if read.signs else None
    kind = kind_of(best, dismissed=is_dismissed(read, units))
    talk = " talk" if _place(channel) == _TALK else ""
    yield f"{FACT}{kind}{talk}"
    for sign in read.lost:
        if sign.strength >= Strength.SENTENCE:
            yield f"{FACT}lost {sign.reason.value}"
    if best is None:
        return
    reason = best.reason.value
    yield f"{FACT}reason {reason}{talk}"
    yield f"{FACT}{kind} {reason}"
    yield f"{FACT}{best.strength.name} {reason}"
    yield f"{FACT}rule {best.evidence.rule}"
    said = [u for u in units if best.evidence.where == f"{where}:{u.line}"]
    if said:
        yield f"{FACT}by {said[0].voice.name}"
        yield f"{FACT}{kind} by {said[0].voice.name}"
        yield f"{FACT}{'last' if said[0] is units[-1] else 'before'}"
    whole = max(1, sum(len(unit.text) for unit in units))
    share = min(_QUOTE_PARTS, _QUOTE_PARTS * len(best.evidence.quote) // whole)
    yield f"{FACT}share {share}"
    others = {sign.reason.value for sign in read.signs} - {reason}
    yield from (f"{FACT}also {other}" for other in sorted(others))


def _place(channel: str) -> str:
    return _TALK if channel.startswith(_TALK) else channel
