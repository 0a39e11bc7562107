"""From words to signs: which wordings a message or a tail of text really says.

A hit is not yet a sign. It is dropped, and the reason kept for `segue explain`, if it is
negated, only mentioned, a part of a longer word, or the middle of a wrapped sentence; if the
agent went on after it; or if a counter-wording stands in the same unit.
"""

import re
from collections.abc import Iterable
from datetime import tzinfo
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from segue.core import resets
from segue.core.stop import Evidence, Rank, Reset, Sign, StopReason, Strength, Tokens
from segue.core.text import Unit, clean, unescape
from segue.core.voice import Voice, is_client_error, is_code, is_stack, wraps
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
_TALK = re.compile(rf"{_CONDITIONAL.pattern}|(?i:^\W*(?:i|we|my|our|it|they|the docs?)\b)")
_QUOTE_CHARS = 200
_DIGITS = 12
_ANSWER_WORDS = 2
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
_CAUSES_IN_A_LIST = 4
_STATUSES_IN_A_TABLE = 3
_STATUS_LEAD = re.compile(r"^\W{0,3}([45]\d\d)\b")
_RAISED = re.compile(r"^[A-Z]\w*(?:Error|Exception)\b")
_SPEECH_CHARS = 60  # a shorter line under the model's bullet is a notice, not speech


class Heard(Struct, frozen=True):
    """The signs that count, newest last word only, and those that were heard and lost."""

    signs: tuple[Sign, ...] = ()
    lost: tuple[Sign, ...] = ()
    foreign: bool = False  # not the agent but another program speaks
    view: bool = False  # a report or a view that the user asked for
    answered: bool = False  # the last thing said is an answer, as far as one can tell


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

    def text(self, units: Iterable[Unit], source: str, *, generic_errors: bool = True) -> Heard:
        """The signs of the last thing said. `generic_errors`: an error that no wording knows is
        at least an error (not so in logs, where errors are daily bread)."""
        signs: list[Sign] = []
        lost: list[Sign] = []
        causes: set[StopReason] = set()
        statuses: set[str] = set()
        foreign = answered = view = False
        last_error: Unit | None = None
        retrying: Unit | None = None
        for unit in units:
            where = f"{source}:{unit.line}"
            spoken = unit.voice is Voice.PLAIN and len(unit.text.split()) >= _ANSWER_WORDS
            answered = spoken or (answered and unit.voice is Voice.MUTED)
            if retrying is not None and unit.indent > retrying.indent:
                hangs = unit.result and not (retrying.result or is_client_error(unit.text))
                if hangs or _RAISED.match(unit.text):
                    continue  # the cause of a retry, shown below it
            retrying = None
            if unit.voice is Voice.RUNNING:
                lost += _lose(signs, "the agent is still at work below it")
                signs, last_error = [], None
                continue
            heard = self._unit(unit, where)
            if heard is None:  # it goes on by itself
                lost += _lose(signs, "the agent tries again by itself below it")
                signs, last_error, retrying = [], None, unit
                continue
            view = view or heard.view
            foreign = foreign or heard.foreign
            lost += heard.lost
            statuses |= set(_STATUS_LEAD.findall(unit.text))
            causes |= {
                s.reason
                for s in (*heard.signs, *heard.lost)
                if s.strength >= Strength.SENTENCE and not s.lost.startswith(_NOT_A_STOP)
            }
            if heard.signs:  # "Done." is an answer, and an error is none
                answered = all(s.reason is StopReason.COMPLETED for s in heard.signs)
            if heard.signs:
                signs, dropped = _newest(signs, heard.signs)
                lost += dropped
                last_error = None
            elif unit.speaker and len(unit.text) >= _SPEECH_CHARS:
                lost += _lose(signs, "the agent speaks on below it")
                signs, last_error = [], None
            elif unit.voice is Voice.ERROR and not heard.lost and not unit.log:
                last_error = unit
            elif unit.voice is Voice.MUTED and not is_stack(unit.text):
                last_error = None  # a file, not an ending
                if is_code(unit.text) and all(s.strength < Strength.SENTENCE for s in signs):
                    lost, signs = [*lost, *_lose(signs, "code follows it")], []
        if foreign and all(s.strength < Strength.CODE for s in signs):
            lost, signs = [*lost, *_lose(signs, _FOREIGN)], []
        if view:
            return Heard((), (*lost, *_lose(signs, _VIEW)), answered=answered)
        if len(causes) >= _CAUSES_IN_A_LIST or len(statuses) >= _STATUSES_IN_A_TABLE:
            listed = _lose(signs, "a list of causes, not one of them")
            return Heard((), (*lost, *listed), answered=answered)
        if not signs and last_error is not None and generic_errors:
            signs = [_generic(last_error, f"{source}:{last_error.line}")]
        return Heard(tuple(signs), tuple(lost), answered=answered)

    def _unit(self, unit: Unit, where: str) -> Heard | None:
        """None: the unit says that the agent goes on by itself."""
        text = unit.text
        if unit.voice in (Voice.ERROR, Voice.PLAIN) and self._retries(text):
            # What is said below the last of such lines may still be an end.
            *_, last = _RETRYING.finditer(text)
            rest = text[last.end() :].partition("\n")[2]
            heard = self._unit(replace(unit, text=rest), where) if rest else None
            return heard if heard is not None and heard.signs else None
        places = _PLACES[unit.voice, unit.under_tool]
        if not self.in_errors:
            places = tuple(place for place in places if place != "error")
        hits = _longest(
            [h for place in places for h in self.catalogue.find(text, place, self.agent)]
        )
        at = resets.stamp(text, self.tz) if unit.log else None
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
                sign = replace(sign, lost=f"{_NOT_A_STOP}{counter.wording.id}")
            (lost if sign.lost else signs).append(sign)
        if counters and not lost and not signs:
            lost.append(_generic(unit, where, lost=f"{_NOT_A_STOP}{counters[0].wording.id}"))
        foreign = any(c.wording.covers == "source" for c in counters)
        view = any(c.wording.covers == "all" for c in counters)
        return Heard(tuple(signs), tuple(lost), foreign, view)

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
_NOT_A_STOP = "not a stop: "
_OLDER = "something newer was said"
_VIEW = "a view that the user asked for"
_FOREIGN = "another service speaks here"


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


def _newest(before: list[Sign], now: tuple[Sign, ...]) -> tuple[list[Sign], list[Sign]]:
    """What is said last counts, but a farewell does not undo the error before it (seed 001 AC6),
    and a code without a cause does not undo one with a cause."""
    said = max(s.strength for s in now)
    weak = (
        all(s.reason in (StopReason.USER_EXIT, StopReason.COMPLETED) for s in now)
        or (said < Strength.CODE and any(s.strength > said for s in before))
        or all(s.reason is StopReason.ERROR and s.strength < Strength.SENTENCE for s in now)
    )
    if before and weak and any(s.reason is not StopReason.ERROR for s in before):
        return before, _outdo(list(now), "an error was said before it")
    if {s.reason for s in now} == {s.reason for s in before}:
        return [*now, *before], []  # the same again, in other words
    return list(now), _outdo(before, _OLDER)


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


def _generic(unit: Unit, where: str, lost: str = "") -> Sign:
    return Sign(
        reason=StopReason.ERROR,
        rank=Rank.EXIT,  # an error that nobody knows says no more than an exit code
        strength=Strength.HINT,
        evidence=Evidence("text.error_voice", _quote(unit.text), where),
        message=_quote(unit.text),
        lost=lost,
    )


def _outdo(signs: list[Sign], why: str) -> list[Sign]:
    return [replace(sign, lost=why, outdone=True) for sign in signs]


def _lose(signs: list[Sign], why: str) -> list[Sign]:
    return [replace(sign, lost=why) for sign in signs]


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
