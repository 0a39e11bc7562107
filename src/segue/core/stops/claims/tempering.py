"""What a text says, weighed with how it reads as a whole.

The marks of a text and what the rules found in it make each reason more or less likely
(`claims/likeness.py`). What is most likely is the verdict, and how likely it is, its confidence.
A few rules bound what words may do: nothing overrules a wording of the user's own; a sentence that
is known word for word is given up only for something much likelier; where no rule found anything,
only a text with the form of a message is a stop; and in a conversation, words only take a verdict
back. Records are not read here.
"""

import re

from msgspec.structs import replace

from segue.core.stops.claims.likeness import NO_STOP, Likeness, words_of
from segue.core.stops.claims.marks import (
    DISMISSED,
    UNIT_CHARS,
    UNITS,
    facts_of,
    is_dismissed,
    is_word,
    kind_of,
    marks_of,
)
from segue.core.stops.claims.statements import is_condition, is_guess, is_human, is_rest, may_claim
from segue.core.stops.composition import STATEMENT, ordered
from segue.core.stops.plain.text import Unit
from segue.core.stops.plain.voice import Voice
from segue.core.stops.reasons import StopReason
from segue.core.stops.text.reader import MessageReader, is_side_job, quote_of, tells_of_retries
from segue.core.stops.text.text_verdict import TextVerdict
from segue.core.stops.types import Evidence, Rank, Sign, Strength

RULE = "likeness"
_SHOWN_WORDS = 6
_MAYBE_NO_STOP = 0.35
"""How likely it may be that a text is no stop, where only its words say that it is one."""
_CLEAR = 0.6
"""How likely a reason must be where the form of the text speaks against it."""
_PLAIN = 0.96
"""The same where the rules found that it is no stop, or it talks about one."""
_LEFT = (StopReason.COMPLETED, StopReason.USER_EXIT, StopReason.NEEDS_USER)
_LIKELY = 0.4
"""How likely a reason must be at least that no rule found."""
_ANOTHER = {"sentence": 0.55, "hard": 0.85}
"""How likely another reason must be to replace a sign of this kind."""
_SILENCING = {"sentence": 0.9, "hard": 0.9}
_SILENCED = 0.7
"""How likely it must be that a text is no stop, to silence a sign of this kind."""
_KEPT = {"sentence": 0.6, "hard": 0.6, "own": 0.95}
"""How often such a sign is right where the words around it speak for another reason."""
_MAX_NO_STOP_IN_TALK = 0.12
"""How likely it may be that a text is no stop, where a conversation mentions one."""
_MAX_ALONE = 0.75
"""A plain line is not acted on alone, whatever its words are."""
_TALKS = "transcript"
_BODY = re.compile(r"^\{.{0,200}\"(?:message|error)\"\s?:")
"""An error's body, without anything before it."""
_SHOWN = re.compile(r"[\"`“”«»]|(?:^|[\s=(])'")
_READS_ABOUT = "the whole text reads like one about stops, not like one"
_READS_AS = "the whole text reads like another reason"
_WAITED_FOR = (StopReason.RATE_LIMIT, StopReason.OVERLOADED)


def temper(
    read: TextVerdict,
    units: list[Unit],
    reader: MessageReader,
    where: str,
    *,
    channel: str,
    may_fill: bool = True,
) -> TextVerdict:
    """What was read in a text, with the likeness of the text counted in. `may_fill`: whether it
    may be a stop though no rule found one."""
    likeness = reader.catalogue.likeness
    if likeness is None:
        return read
    talks = channel.startswith(_TALKS)
    best = ordered(read.signs)[0] if read.signs else None
    if best is None and talks:
        return read
    marks = set(marks_of(units, reader.catalogue.vocabulary, read, channel))
    likely = likeness.likely(marks, set(facts_of(read, units, where, channel)))
    kind = kind_of(best, dismissed=is_dismissed(read, units))
    if best is None:
        quiet = replace(read, sure=likely[NO_STOP])
        if not may_fill or any(tells_of_retries(unit.text) for unit in units):
            return quiet
        sign = _filled(units, reader, where, likely, marks, dismissed=kind == DISMISSED)
        return quiet if sign is None else replace(read, signs=(sign,))
    reason = _verdict(best, kind, likely)
    if talks and kind != "own" and likely[NO_STOP] > _MAX_NO_STOP_IN_TALK:
        reason = NO_STOP
    if reason is best.reason or (talks and reason is not NO_STOP):
        sure: float | None = max(likely[best.reason], _KEPT.get(kind, 0.0))
        if kind == STATEMENT:
            sure = min(likely[best.reason], _MAX_ALONE)
        elif kind == "hard":
            sure = None  # a provider's own code: how often that is right was counted
        signs = tuple(replace(s, sure=sure) if s.reason is best.reason else s for s in read.signs)
        return replace(read, signs=signs)
    if reason is NO_STOP:
        lost = tuple(replace(s, lost=_READS_ABOUT) for s in read.signs)
        return replace(read, signs=(), lost=(*read.lost, *lost), sure=likely[NO_STOP])
    others = (s for s in read.signs if s.reason is not reason)
    lost = tuple(replace(s, lost=_READS_AS, outdone=True) for s in others)
    agreeing = [s for s in read.signs if s.reason is reason]
    sure = likely[reason]
    if not agreeing and _loudest(reason, units, likeness).voice is not Voice.ERROR:
        sure = min(sure, _MAX_ALONE)
    found = agreeing or [_sign(reason, units, marks, likeness, reader, where)]
    signs = tuple(replace(s, sure=sure) for s in found)
    return replace(read, signs=signs, lost=(*read.lost, *lost))


def _verdict(best: Sign, kind: str, likely: dict[StopReason, float]) -> StopReason:
    """What a text with a sign says: what is likeliest, if that is likely enough to overrule a sign
    of this kind."""
    reason = max(likely, key=lambda label: (likely[label], -label.priority))
    if kind == "own" or reason is best.reason:
        return best.reason
    enough = _ANOTHER.get(kind, _LIKELY)
    if reason is NO_STOP:
        enough = _SILENCING.get(kind, _SILENCED)
    if reason in _LEFT or likely[reason] < enough:
        return best.reason
    return reason


def _filled(
    units: list[Unit],
    reader: MessageReader,
    where: str,
    likely: dict[StopReason, float],
    marks: set[str],
    *,
    dismissed: bool,
) -> Sign | None:
    """What a text says in which no rule found anything: what it reads like, if it stands there like
    a message."""
    likeness = reader.catalogue.likeness
    reason = max(likely, key=lambda label: (likely[label], -label.priority))
    if likeness is None or reason is NO_STOP or likely[NO_STOP] > _MAYBE_NO_STOP:
        return None
    loudest = _loudest(reason, units, likeness)
    is_error = loudest.voice is Voice.ERROR
    if loudest.item or loudest.voice is Voice.MUTED or is_side_job(loudest):
        return None
    if any(u.voice is Voice.MUTED and u.text.startswith("#") for u in units):
        return None  # a document
    is_odd = reason in _LEFT and not may_claim(loudest, loudest.text)
    if is_odd and reason is not StopReason.NEEDS_USER:
        return None
    if reason is StopReason.ERROR:
        is_odd = loudest.log or not is_error  # in a log, errors are common
    is_doubtful = dismissed or _is_about(loudest)
    if likely[reason] < (_PLAIN if is_doubtful else _CLEAR if is_odd else _LIKELY):
        return None
    # Words alone rank no higher than an exit: programs complain while somebody ends them.
    sign = replace(_sign(reason, units, marks, likeness, reader, where), rank=Rank.EXIT)
    return replace(sign, sure=likely[reason] if is_error else min(likely[reason], _MAX_ALONE))


def _loudest(reason: StopReason, units: list[Unit], likeness: Likeness) -> Unit:
    """The unit whose words speak most for a reason."""

    def weight(unit: Unit) -> int:
        return likeness.weight(reason, words_of(unit.text[:UNIT_CHARS]))

    return max(units[-UNITS:], key=weight)


def _is_about(unit: Unit) -> bool:
    """Whether a unit, by its form, talks about a message instead of being one."""
    if unit.voice is not Voice.PLAIN or _BODY.match(unit.text):
        return False
    text = unit.text
    talks = is_human(text) or is_condition(text) or is_guess(text) or is_rest(text)
    return talks or bool(_SHOWN.search(text))


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
        words=tuple(mark for mark in weighed if is_word(mark))[:_SHOWN_WORDS],
    )
