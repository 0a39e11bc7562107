"""From words to signs: which wordings a message or a tail of text really says.

A hit is not yet a sign. It is dropped, and the reason kept for `segue explain`, if it is
negated, only mentioned, a part of a longer word, or the middle of a wrapped sentence, or if a
counter-wording stands in the same unit. What follows from the order of units is told in
`segue.core.hearing`.
"""

import re
from datetime import tzinfo
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from segue.core import resets
from segue.core.stop import Evidence, Rank, Reset, Sign, StopReason, Strength, Tokens
from segue.core.text import Unit, clean, unescape
from segue.core.voice import Voice, wraps
from segue.core.wording import NOT_A_STOP, Catalogue, Hit, Where

LONG_RETRY_S = 60.0
"""An agent that retries within this time is at work; one that sits longer has stopped."""

_RETRYING = re.compile(
    r"(?i)(?<!before\s)(?<!when\s)(?<!of\s)(?<!after\s)\b(?:re-?trying|reconnecting|will retry"
    r"|retry (?:attempt )?\d+ ?(?:/|of) ?\d+)\b"
    r"|\battempt:? ?#?\d+\b|(?m:^retry in \d)|\bperforming (?:\w+ )?compaction\b"
    r"|إعادة المحاولة|重试中"
)
_NEGATION = re.compile(
    r"(?i)(?:\b(?:not?|never|without|isn't|wasn't|aren't|weren't|hasn't|haven't|didn't|doesn't|don't"
    r"|won't|nor|neither|avoid(?:s|ed|ing)?|prevents?|unless|if|when(?:ever)?|before|until|once)\b"
    r"[^.:;,·\n({\[\"]{0,24})\Z"
)
_NOT = re.compile(r"(?i)\b(?:not?|never|nor|without)\b|n't\b")
_MENTION = re.compile(
    r"(?i)^[\"'`\s)]{0,3}(?:is (?:the|a|an|shown|printed|what|when|not|one)"
    r"|(?:was|is now|has been) (?:the|a|shown|printed|added|fixed|resolved|handled)"
    r"|means|appears|indicates|shows up"
    r"|messages? (?:is|are|was|appears?)|patterns?\b|handling|handler|tests?\b|/ )"
)
_CONDITIONAL = re.compile(
    r"(?i)^\W*(?:when(?:ever)?|if|because|since|although|while|once|after|before|until|unless|as|how"
    r"|why|what|whether|this (?:lets|pr|change|issue|fix|is|was|happens)|these|those)\b"
)
_STAMP = re.compile(r"^\W?(?:\d{2,4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d[\d.,:Z+]*\W?\s+(?:[-|]\s)?")
_TALK = re.compile(rf"{_CONDITIONAL.pattern}|(?i:^\W*(?:i|we|my|our|it|they|the docs?)\b)")
_QUOTE_CHARS = 200
_DIGITS = 12
_SCOPES = tuple(
    (name, re.compile(rf"(?i){form}"))
    for name, form in (
        ("five_hour", r"\b(?:5|five)[- ]?h(?:our|r)?s?\b|\bsession (?:usage )?limit"),
        ("model", r"\b(?:opus|sonnet|haiku|fable)(?: \d[\d.]*)? (?:weekly )?limit"),
        ("seven_day", r"\bweekly\b|\b7[- ]days?\b"),
        ("monthly", r"\bmonthly\b|\bper month\b"),
        ("daily", r"\bdaily\b|\bper[- ]?day\b|\b[RT]PD\b"),
        ("minute", r"\bper[- ]?min(?:ute)?\b|\b[RT]PM\b"),
        ("concurrency", r"\bconcurren(?:t|cy)\b"),
    )
)


class Said(Struct, frozen=True):
    """What one unit says: signs that count, and those that were heard and lost."""

    signs: tuple[Sign, ...] = ()
    lost: tuple[Sign, ...] = ()
    foreign: bool = False  # not the agent but another program speaks
    view: bool = False  # a report or a view that the user asked for


class Ear(Struct, frozen=True, kw_only=True):
    """What is needed to understand words: wordings, and the time and place to read times in."""

    catalogue: Catalogue
    now: float
    tz: tzinfo
    agent: str | None = None
    in_errors: bool = True  # whether a phrase inside an error counts; not so in a conversation

    def message(self, message: str, where: str, at: float | None = None) -> list[Sign]:
        """The signs of an error message that came in a structured record."""
        text = unescape("\n".join(clean(line) for line in message.splitlines()))
        if not text:
            return []
        hits = _longest(
            [h for place in _STRUCTURED for h in self.catalogue.find(text, place, self.agent)]
        )
        signs = []
        for hit in hits:
            sign = self._sign(hit, text, Rank.STRUCTURE, where, at)
            if sign is not None and not sign.lost:
                signs.append(sign)
        return signs

    def unit(self, unit: Unit, where: str) -> Said | None:
        """What a unit of plain text says; None if it says that the agent goes on by itself."""
        at = resets.stamp(unit.text, self.tz) if unit.log else None
        text = _STAMP.sub("", unit.text, count=1) if unit.log else unit.text
        if unit.voice in (Voice.ERROR, Voice.PLAIN) and self._retries(text):
            # What is said below the last of such lines may still be an end.
            *_, last = _RETRYING.finditer(text)
            rest = text[last.end() :].partition("\n")[2]
            said = self.unit(replace(unit, text=rest), where) if rest else None
            return said if said is not None and said.signs else None
        places = _PLACES[unit.voice, unit.under_tool]
        if not self.in_errors:
            places = tuple(place for place in places if place != "error")
        hits = _longest(
            [h for place in places for h in self.catalogue.find(text, place, self.agent)]
        )
        counters = [h for h in hits if h.wording.reason == NOT_A_STOP]
        signs: list[Sign] = []
        lost: list[Sign] = []
        for hit in hits:
            sign = self._sign(hit, text, Rank.TEXT, where, at)
            if sign is None:
                continue
            talk = _CONDITIONAL if not hit.wording.lead else _TALK
            clause = talk.match(hit.quote) and not talk.match(hit.wording.pattern)
            if unit.voice is Voice.PLAIN and not sign.lost and clause:
                sign = replace(sign, lost="prose: it opens like a clause, not like a message")
            counter = next((c for c in counters if _silences(c, hit, text)), None)
            if counter is not None and not sign.lost:
                sign = replace(sign, lost=f"{SILENCED}{counter.wording.id}")
            (lost if sign.lost else signs).append(sign)
        if counters and not lost and not signs:
            lost.append(unexplained(unit, where, lost=f"{SILENCED}{counters[0].wording.id}"))
        foreign = any(c.wording.covers == "source" for c in counters)
        view = any(c.wording.covers == "all" for c in counters)
        return Said(tuple(signs), tuple(lost), foreign, view)

    def _retries(self, text: str) -> bool:
        if not _RETRYING.search(text):
            return False
        wait = _reset_of(text, self.now, self.tz)
        return wait is None or wait.after_s is None or wait.after_s <= LONG_RETRY_S

    def _sign(self, hit: Hit, text: str, rank: Rank, where: str, at: float | None) -> Sign | None:
        if hit.wording.reason == NOT_A_STOP:
            return None
        reason = StopReason(hit.wording.reason)
        return Sign(
            reason=reason,
            rank=rank,
            strength=hit.strength,
            evidence=Evidence(hit.wording.id, _quote(hit.quote), where),
            scope=hit.wording.scope or (_scope(text) if reason is StopReason.RATE_LIMIT else None),
            reset=self._reset(reason, text, at),
            tokens=_tokens(hit.groups),
            message=_quote(text),
            lost=_why_lost(hit, text),
        )

    def _reset(self, reason: StopReason, text: str, at: float | None) -> Reset | None:
        if reason not in (StopReason.RATE_LIMIT, StopReason.OVERLOADED):
            return None
        return _reset_of(text, self.now if at is None else at, self.tz)


@lru_cache(maxsize=64)
def _reset_of(text: str, now: float, tz: tzinfo) -> Reset | None:
    """Cached: every sign of a message has the same."""
    return resets.parse(text, now=now, tz=tz)


_STRUCTURED: tuple[Where, ...] = ("error", "start", "line", "tool")
_PLACES: dict[tuple[Voice, bool], tuple[Where, ...]] = {
    (Voice.ERROR, False): ("error", "start", "line", "tool"),
    (Voice.PLAIN, False): ("start", "line", "tool"),
    (Voice.PROMPT, False): ("prompt",),
    (Voice.MUTED, False): (),
    (Voice.MUTED, True): ("tool",),
}
SILENCED = "not a stop: "


def _silences(counter: Hit, hit: Hit, text: str) -> bool:
    """A counter-wording silences its whole unit, or only what stands on its own line."""
    if counter.wording.covers != "line":
        return True
    return "\n" not in text[min(counter.end, hit.end) : max(counter.start, hit.start)]


def _longest(hits: list[Hit]) -> list[Hit]:
    """Without sentences that are the beginning, the end or the middle of a longer sentence with
    another reason: "exceeded your quota, please check your billing" is one thing, not two."""
    return [hit for hit in hits if not any(_covers(other, hit) for other in hits)]


def _covers(longer: Hit, hit: Hit) -> bool:
    return (
        longer.wording.reason not in (hit.wording.reason, NOT_A_STOP)
        and hit.wording.reason != NOT_A_STOP
        and longer.strength == hit.strength >= Strength.SENTENCE
        and longer.start < hit.end
        and hit.start < longer.end
        and longer.end - longer.start > hit.end - hit.start
    )


def _why_lost(hit: Hit, text: str) -> str:
    before, after = text[: hit.start], text[hit.end :]
    if _NEGATION.search(before[-48:]):
        return "negated or conditional"
    if _NOT.search(hit.quote) and not _NOT.search(hit.wording.pattern):
        return "negated"
    if "start" not in hit.wording.where and "line" not in hit.wording.where:
        return ""
    if after[:1].isalnum() and text[hit.end - 1 : hit.end].isalnum():
        return "a part of a longer word"
    if _MENTION.match(after) and text[hit.end - 1 : hit.end] not in ".!":
        return "only mentioned"
    line_before = before.rstrip("\n").rsplit("\n", 1)[-1] if before.endswith("\n") else ""
    if wraps(line_before):
        return "the middle of a sentence"
    return ""


def unexplained(unit: Unit, where: str, lost: str = "") -> Sign:
    """The sign of an error that no wording knows."""
    return Sign(
        reason=StopReason.ERROR,
        rank=Rank.EXIT,  # an error that nobody knows says no more than an exit code
        strength=Strength.HINT,
        evidence=Evidence("text.error_voice", _quote(unit.text), where),
        message=_quote(unit.text),
        lost=lost,
    )


def _tokens(groups: dict[str, str]) -> Tokens | None:
    used, limit = (groups.get(name, "").replace(",", "") for name in ("used", "limit"))
    if not (used.isdigit() and len(used) < _DIGITS and len(limit) < _DIGITS):
        return None
    return Tokens(int(used), (int(limit) or None) if limit.isdigit() else None)


def _scope(text: str) -> str | None:
    return next((name for name, form in _SCOPES if form.search(text)), None)


def _quote(text: str) -> str:
    short = " ".join(text.split())
    return short if len(short) <= _QUOTE_CHARS else f"{short[: _QUOTE_CHARS - 1]}…"
