"""What a text says, weighed with how it reads as a whole.

A wording, a claim or a status speaks for a reason; the words of the whole text make each reason
more or less likely (`claims/likeness.py`). How likely the text makes a reason and how far a sign of
this kind can be trusted are multiplied. The product decides where a kind of sentence, a claim, a
phrase or a status speaks, or nothing does. A sentence that is known word for word, or a provider's
own code, keeps its reason unless the text is almost certainly no stop; there the likeness says how
sure the verdict is. Records are not read here.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from msgspec.structs import replace

from segue.core.stops.claims.likeness import NO_STOP, Likeness, words_of
from segue.core.stops.claims.statements import is_condition, is_guess, is_human, may_claim
from segue.core.stops.claims.vocabulary import Vocabulary
from segue.core.stops.composition import STATEMENT, is_family, ordered
from segue.core.stops.confidence import is_hard
from segue.core.stops.plain.text import Unit
from segue.core.stops.plain.voice import Voice
from segue.core.stops.reasons import StopReason
from segue.core.stops.text.reader import MessageReader, is_side_job, quote_of, tells_of_retries
from segue.core.stops.text.text_verdict import TextVerdict
from segue.core.stops.types import Evidence, Rank, Sign, Strength

RULE = "likeness"
_UNITS = 12
_UNIT_CHARS = 1_500
_SHOWN_WORDS = 6
_CLEAR = 0.5
"""How likely the words must make a reason to count."""
_SILENCES = {"nothing": 0.5, STATEMENT: 0.5, "sentence": 0.9, "hard": 0.9, "own": 2.0}
_SILENCING = 0.7
"""How likely they must make it that a text is no stop, to silence a sign of this kind. Nothing
overrules a wording of the user's own."""
_FINAL = (StopReason.COMPLETED, StopReason.USER_EXIT, StopReason.NEEDS_USER)
_FINAL_ENOUGH = 0.6
"""That nothing is left to do, or only for the user, must be plainer than that something failed,
and does not replace what a rule found."""
_FORMS = (
    ("@tick", re.compile(r"`[^`]+`")),
    ("@person", re.compile(r"\b(?:I|[Ww]e|[Mm]y|[Oo]ur)\b")),
    ("@brace", re.compile(r"\{")),
    ("@sentences", re.compile(r"[.!?]\s+[A-Z]")),
    ("@equals", re.compile(r"=")),
    ("@call", re.compile(r"\w\(")),
)
_ZONES = {Voice.ERROR: "e:", Voice.PLAIN: "p:"}
_REST = "m:"
_LAST = "l:"
_LAST_UNITS = 2
_WHY_WORDS = 3
_LONGEST = 7
_MAX_UNITS = 4
_FOREIGN = 0.2
"""Below this a text is so unlike a message that even a known sentence in it is not acted on."""
_UNLIKE = 0.8
"""The same for a general sentence, which many programs print: where the words doubted it so far, it
was right in 3 of 8 cases. A crash reads like no other message, so the words do not count there."""
_EVEN = 0.5
_WHOLE = 0.8
_MAX_ALONE = 0.75
"""A plain line is not acted on alone, whatever its words are."""
_BODY = re.compile(r"^\{.{0,200}\"(?:message|error)\"\s?:")
"""An error's body, without anything before it."""
_ERROR_BODY = re.compile(r"[{(]\s?[\"']?(?:error|type|code|message)[\"']?\s?:")
_SHOWN = re.compile(r"[\"`“”«»]|(?:^|[\s=(])'")
_DISMISSED = "dismissed"
_DOUBTFUL = 0.25
_DOUBTED = {"sentence": 0.05, "hard": 0.0, "code": 0.05, "exit": 0.0, "own": 0.0}
"""Below this the sign and the words around it contradict each other, and neither is believed."""
_DISAGREES = "the words around it say something else"
_READS_ABOUT = "the whole text reads like one about stops, not like one"
_READS_AS = "the whole text reads like another reason"
_WAITED_FOR = (StopReason.RATE_LIMIT, StopReason.OVERLOADED)
_KEPT = ("sentence", "hard", "own")


def temper(
    read: TextVerdict,
    units: list[Unit],
    reader: MessageReader,
    where: str,
    *,
    may_fill: bool = True,
) -> TextVerdict:
    """What was heard in a text, with the likeness of the text counted in. `may_fill`: whether it
    may be a stop though no rule found one."""
    likeness = reader.catalogue.likeness
    if likeness is None:
        return read
    marks = set(marks_of(units, reader.catalogue.vocabulary, read))
    best = ordered(read.signs)[0] if read.signs else None
    kind = kind_of(best, dismissed=is_dismissed(read, units))
    verdict = NO_STOP if best is None else best.reason
    likely = likeness.likely(marks, verdict, kind)
    if best is None and not may_fill:
        return replace(read, sure=likely[NO_STOP])
    if best is None:
        return _filled(read, units, reader, where, kind, likely, marks)
    reason = _read_as(likely, kind)
    if reason is None or reason in _FINAL or (kind in _KEPT and reason is not NO_STOP):
        reason = verdict
    if verdict is StopReason.NEEDS_USER and kind != STATEMENT:
        return read  # too few such texts were weighed to say what they read like
    doubted = _DOUBTED.get(kind, _DOUBTFUL)
    if (reason is NO_STOP or likely[verdict] < doubted) and _ends_in_body(
        verdict, read, units, where
    ):
        sure = min(max(likely[verdict], _EVEN), _MAX_ALONE)
        signs = tuple(replace(s, sure=sure) if s.reason is verdict else s for s in read.signs)
        return replace(read, signs=signs)
    if kind == "sentence" and _is_plain(best, units, where):
        doubted = 0.0
    if reason is verdict and likely[verdict] < doubted:
        lost = tuple(replace(s, lost=_DISAGREES) for s in read.signs)
        return replace(read, signs=(), lost=(*read.lost, *lost), sure=likely[NO_STOP])
    if reason is verdict:
        stated: float | None = likely[verdict]
        if kind in _KEPT and likely[verdict] >= _foreign(best):
            stated = None  # known word for word: how often that is right was counted
        elif kind in (STATEMENT, *_KEPT):
            stated = min(likely[verdict], _MAX_ALONE)
        signs = tuple(replace(s, sure=stated) if s.reason is verdict else s for s in read.signs)
        return replace(read, signs=signs)
    if reason is NO_STOP:
        lost = tuple(replace(s, lost=_READS_ABOUT) for s in read.signs)
        return replace(read, signs=(), lost=(*read.lost, *lost), sure=likely[NO_STOP])
    lost = tuple(replace(s, lost=_READS_AS, outdone=True) for s in read.signs)
    sign = _sign(reason, units, marks, likeness, reader, where)
    is_error = _loudest(reason, units, likeness).voice is Voice.ERROR
    sure = likely[reason] if is_error else min(likely[reason], _MAX_ALONE)
    return replace(read, signs=(replace(sign, sure=sure),), lost=(*read.lost, *lost))


def _foreign(best: Sign) -> float:
    """How likely the words must make a sentence that is known word for word."""
    is_general = best.evidence.rule.startswith("general.")
    return _UNLIKE if is_general and best.reason is not StopReason.CRASH else _FOREIGN


def _is_plain(best: Sign, units: list[Unit], where: str) -> bool:
    """Whether a sentence that is known word for word is said as an error, or is all that is
    said."""
    whole = sum(len(unit.text) for unit in units)
    return len(best.evidence.quote) >= _WHOLE * whole or any(
        u.voice is Voice.ERROR and best.evidence.where == f"{where}:{u.line}" for u in units
    )


def _ends_in_body(told: StopReason, heard: TextVerdict, units: list[Unit], where: str) -> bool:
    """Whether a text ends in a provider's error with its code in it. That is an ending, whatever
    the words of its message resemble."""
    last = units[-1]
    if last.voice is not Voice.ERROR or not _ERROR_BODY.search(last.text):
        return False
    return any(
        s.reason is told
        and s.strength is Strength.CODE
        and s.evidence.where == f"{where}:{last.line}"
        for s in heard.signs
    )


def _filled(
    read: TextVerdict,
    units: list[Unit],
    reader: MessageReader,
    where: str,
    kind: str,
    likely: dict[StopReason, float],
    marks: set[str],
) -> TextVerdict:
    """What a text says in which no rule found anything: what it reads like, if it stands there like
    a message. What the rules heard and dismissed stays dismissed."""
    likeness = reader.catalogue.likeness
    reason = _read_as(likely, kind)
    quiet = replace(read, sure=likely[NO_STOP])
    if likeness is None or kind == _DISMISSED or reason is None or reason is NO_STOP:
        return quiet
    loudest = _loudest(reason, units, likeness)
    is_error = loudest.voice is Voice.ERROR
    if _is_about(loudest) or (reason in _FINAL and not _is_notice(loudest, units)):
        return quiet
    if reason is StopReason.ERROR and (loudest.log or not is_error):
        return quiet  # in a log, errors are common
    sign = _sign(reason, units, marks, likeness, reader, where)
    if is_error:
        return replace(read, signs=(replace(sign, sure=likely[reason]),))
    sure = min(likely[reason], _MAX_ALONE)
    return replace(read, signs=(replace(sign, sure=sure, rank=Rank.EXIT),))


def _read_as(likely: dict[StopReason, float], kind: str) -> StopReason | None:
    """What a text reads like, if that is likely enough to count beside a sign of this kind."""
    reason = max(likely, key=lambda label: (likely[label], -label.priority))
    enough = _FINAL_ENOUGH if reason in _FINAL else _CLEAR
    if reason is NO_STOP:
        enough = _SILENCES.get(kind, _SILENCING)
    return reason if likely[reason] >= enough else None


def _loudest(reason: StopReason, units: list[Unit], likeness: Likeness) -> Unit:
    """The unit whose words speak most for a reason."""

    def weight(unit: Unit) -> int:
        return likeness.weight(reason, words_of(unit.text[:_UNIT_CHARS]))

    return max(units[-_UNITS:], key=weight)


def _is_about(unit: Unit) -> bool:
    """Whether a unit, by its form, talks about a message instead of being one."""
    if unit.item or unit.voice is Voice.MUTED or is_side_job(unit):
        return True
    if unit.voice is not Voice.PLAIN or _BODY.match(unit.text):
        return False
    text = unit.text
    told = is_human(text) or is_condition(text) or is_guess(text)
    return told or bool(_SHOWN.search(text))


def _is_notice(unit: Unit, units: list[Unit]) -> bool:
    """Whether a unit has the form of a message, and nothing around it is a document's."""
    in_document = any(u.voice is Voice.MUTED and u.text.startswith("#") for u in units)
    return may_claim(unit, unit.text) and not in_document


def kind_of(best: Sign | None, *, dismissed: bool = False) -> str:
    """What a verdict on a text rests on, as its reliability is counted."""
    if best is None:
        return _DISMISSED if dismissed else "nothing"
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
    """Did the rules hear something, and find that it is no stop?"""
    return bool(read.lost) or any(tells_of_retries(unit.text) for unit in units)


def marks_of(units: list[Unit], vocabulary: Vocabulary | None, read: TextVerdict) -> Iterator[str]:
    """Everything about a text that has a weight."""
    for unit in units[-_LAST_UNITS:]:
        yield from (f"{_LAST}{word}" for word in words_of(unit.text[:_UNIT_CHARS]))
    for unit in units[-_UNITS:]:
        text = unit.text[:_UNIT_CHARS]
        yield f"@{unit.voice.name}"
        if unit.log:
            yield "@log"
        if unit.speaker:
            yield "@speaker"
        if unit.item:
            yield "@item"
        words = list(words_of(text))
        yield from words
        yield from (f"{_ZONES.get(unit.voice, _REST)}{word}" for word in words)
        yield from (f"{first} {second}" for first, second in pairwise(words))
        yield f"@length {min(_LONGEST, len(words).bit_length())}"
        if words:
            yield f"^{words[0]}"
        yield from (name for name, form in _FORMS if form.search(text))
        if vocabulary is not None:
            yield from (f"~{name}" for name in vocabulary.terms_in(text))
    for sign in read.lost:
        yield "!" + " ".join(sign.lost.split()[:_WHY_WORDS])
        yield f"!!{sign.reason.value}"
    if is_dismissed(read, units):
        yield "!dismissed"
    yield f"@units {min(_MAX_UNITS, len(units).bit_length())}"
    if units:
        yield f"@first {units[0].voice.name}"
        yield f"@last {units[-1].voice.name}"


def _is_word(mark: str) -> bool:
    return (mark[0].isalpha() or mark[0] == "#") and mark[1:2] != ":"


def _sign(
    reason: StopReason,
    units: list[Unit],
    marks: set[str],
    likeness: Likeness,
    reader: MessageReader,
    where: str,
) -> Sign:
    unit = _loudest(reason, units, likeness)
    weighed = sorted(marks, key=lambda mark: (-likeness.weight(reason, (mark,)), mark))
    quote = quote_of(unit.text)
    return Sign(
        reason=reason,
        rank=Rank.TEXT,
        strength=Strength.PHRASE,
        evidence=Evidence(f"{RULE}.{reason.value}", quote, f"{where}:{unit.line}"),
        message=quote,
        reset=reader.reset_in(unit.text) if reason in _WAITED_FOR else None,
        words=tuple(mark for mark in weighed if _is_word(mark))[:_SHOWN_WORDS],
    )
