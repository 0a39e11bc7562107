"""From words to signs: which wordings a message or the end of a text really contains.

A match is not a sign yet. It is dropped, and the reason kept for `segue explain`, if it is negated,
only mentioned, a part of a longer word or the middle of a wrapped sentence, or if a counter-wording
is in the same unit. `segue.core.stops.text.text_verdict` handles the order of units.

All in one file, because the questions about a line are asked in one order.
"""

from datetime import tzinfo
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from segue.core.lazy_pattern import lazy_pattern
from segue.core.stops import resets
from segue.core.stops.claims.statements import (
    is_change_note,
    is_human,
    is_narrated,
    is_only_warned,
    is_quiet,
    is_rest,
    may_claim,
)
from segue.core.stops.claims.table import ENOUGH, ENOUGH_ALONE, FAULT, VAGUE
from segue.core.stops.claims.vocabulary import Spoken
from segue.core.stops.composition import CONCEPT, STATEMENT, is_family
from segue.core.stops.plain.text import Unit
from segue.core.stops.plain.unwrap import DEPTH, clean, unbroken, unescape
from segue.core.stops.plain.voice import Voice, is_client_error, wraps
from segue.core.stops.reasons import StopReason
from segue.core.stops.text.wordings import NOT_A_STOP, Catalogue, Hit, Where
from segue.core.stops.types import Evidence, Rank, Reset, Sign, Strength, Tokens

LONG_RETRY_S = 60.0
"""An agent that retries within this time is working; one that waits longer has stopped."""

_RETRYING = lazy_pattern(
    r"(?i)(?<!before\s)(?<!when\s)(?<!of\s)(?<!after\s)\b(?:re-?trying|reconnecting|will retry"
    r"|retry (?:attempt )?\d+ ?(?:/|of) ?\d+)\b"
    r"|\battempt:? ?#?\d+\b|\bon try \d+\b|(?m:^retry in \d)|\bperforming (?:\w+ )?compaction\b"
    r"|\bsleeping (?:for )?[\d.]+ ?(?:s|sec|seconds|ms)\b|\bbacking off\b"
    r"|إعادة المحاولة|重试中|正在重试"
    r"|\bwaiting (?:for )?[\d.]+ ?(?:s|sec|seconds|ms|milliseconds)\b|\bfailed \d+/\d+ times\b"
    r"|\bsleeping for an? (?:bit|while|moment)\b"
    r"|\bcompressing \(\d+/\d+\)|[—-] stepping down\b"
    r"|\bre-?sending(?:…|\.{2,3}| (?:the |your )?(?:request|prompt|message))"
    r"|(?<!before\s)\btrying (?:once more|one more time|again|(?:the )?next)\b"
    r"(?! (?:later|at|in|on)\b)"
    r"|\battempting to (?:refresh|reconnect|recover|retry|renew|re-?auth\w*|resume|fall back)\b"
    r"|\bresuming at \d"
    r"|\brescheduled (?:for|in|at)\b|\breconnected\b"
)
_COUNTED = lazy_pattern(r"\b(\d+) ?(?:/|of) ?(\d+)\b")
_NEGATION = lazy_pattern(
    r"(?i)(?:\b(?:not?|never|without|isn't|wasn't|aren't|weren't|hasn't|haven't|didn't|doesn't|don't"
    r"|won't|nor|neither|close to|nearly|almost|avoid(?:s|ed|ing)?|prevents?|unless|if"
    r"|when(?:ever)?|before|until|once)\b"
    r"[^.:;,·\n({\[\"]{0,24})\Z"
)
_NOT = lazy_pattern(r"(?i)\b(?:not?|never|nor|without)\b|n't\b")
_MENTION = lazy_pattern(
    r"(?i)^[\"'`\s)]{0,3}(?:is (?:the|a|an|shown|printed|what|when|not|one)\b"
    r"|(?:was|is now|has been) (?:the|a|shown|printed|added|fixed|resolved|handled)"
    r"|means|appears|indicates|shows up"
    r"|messages? (?:is|are|was|appears?)|patterns?\b|handling|handler|tests?\b|/ "
    r"|when (?:combined|you|a|an|the)\b|(?:if|once|unless|whenever) \w"
    r"|[—–-] (?:re-?try|re-?route|switch|truncate|fall back|back off|cool ?down|then|the agent)\b)"
)
_CONDITIONAL = lazy_pattern(
    r"(?i)^\W*(?:when(?:ever)?|if|because|since|although|while|once|after|before|until|unless|as|how"
    r"|why|what|whether|this (?:lets|pr|change|issue|fix|is|was|happens)|these|those)\b"
)
_STAMP = lazy_pattern(r"^\W?(?:\d{2,4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d[\d.,:Z+]*\W?\s+(?:[-|]\s)?")
_TALK = lazy_pattern(rf"{_CONDITIONAL.pattern}|(?i:^\W*(?:i|we|my|our|it|they|the docs?)\b)")
_QUOTE_CHARS = 200
_DIGITS = 12
_SCOPES = tuple(
    (name, lazy_pattern(rf"(?i){form}"))
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


class MatchedMessage(Struct, frozen=True):
    """What one unit says: signs that count, and signs that were found but lost."""

    signs: tuple[Sign, ...] = ()
    lost: tuple[Sign, ...] = ()
    foreign: bool = False  # another program is speaking, not the agent
    view: bool = False  # a report or a view that the user asked for


class MessageReader(Struct, frozen=True, kw_only=True):
    """What is needed to understand messages: the wordings, and the time and zone for reading
    times."""

    catalogue: Catalogue
    now: float
    tz: tzinfo
    agent: str | None = None
    in_errors: bool = True  # whether a phrase inside an error counts; not in a conversation

    def message(
        self, message: str, where: str, at: float | None = None, spoken: tuple[Spoken, ...] = ()
    ) -> list[Sign]:
        """The signs of an error message from a structured record. `spoken` is what the record says
        besides it."""
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
        if not any(hit.wording.reason == NOT_A_STOP for hit in hits):
            signs, _ = self._weighed(signs, text, where, at, Rank.STRUCTURE, spoken)
        return signs

    def _weighed(
        self,
        signs: list[Sign],
        text: str,
        where: str,
        at: float | None,
        rank: Rank = Rank.TEXT,
        spoken: tuple[Spoken, ...] = (),
        *,
        alone: bool = False,
    ) -> tuple[list[Sign], list[Sign]]:
        """If no wording matches the sentence: the signs that count and those that lost, from its
        claims weighed with its other signs. `alone`: nothing else shows that it is an error."""
        vocabulary = self.catalogue.vocabulary
        exact = (s for s in signs if not is_family(s.evidence.rule))
        if vocabulary is None or any(s.strength >= Strength.SENTENCE for s in exact):
            return signs, []
        others = (*spoken, *(_spoken(sign) for sign in signs if sign.strength is not Strength.CODE))
        weighed = vocabulary.weigh(text, tuple(dict.fromkeys(others)))
        if weighed is None or not weighed.quote:
            return signs, []
        if weighed.weight < (ENOUGH_ALONE if alone else ENOUGH):
            return signs, []
        if alone and not vocabulary.stated(text):
            return signs, []
        reason = weighed.reason
        if reason is StopReason.BILLING and _AGAIN.search(text) and self.reset_in(text):
            reason = StopReason.RATE_LIMIT  # what comes back by itself need not be paid
        remaining = [s for s in signs if s.reason is reason or s.strength < Strength.SENTENCE]
        lost = [replace(s, lost=_OUTWEIGHED, outdone=True) for s in signs if s not in remaining]
        vague = reason is StopReason.ERROR
        if vague and not alone:  # it is known to be an error anyway; "quota" may mean a size
            phrases = [
                s
                for s in remaining
                if s.strength is Strength.PHRASE and s.reason is StopReason.RATE_LIMIT
            ]
            lost += [replace(s, lost=_OUTWEIGHED) for s in phrases]
            remaining = [s for s in remaining if s not in phrases]
            if remaining or (
                not phrases and (weighed.coded or weighed.weight < FAULT or not _OURS.search(text))
            ):
                return remaining, lost
        if any(s.strength >= Strength.SENTENCE for s in remaining):
            return remaining, lost
        strength = Strength.SENTENCE
        if weighed.coded:  # it says no more than a code, but more than one without a cause
            strength = Strength.CODE
            remaining = [s for s in remaining if s.reason is not StopReason.ERROR]
        kind = STATEMENT if alone else CONCEPT
        sign = Sign(
            reason=reason,
            rank=Rank.EXIT if vague else rank,
            strength=Strength.HINT if vague else strength,
            evidence=Evidence(f"{kind}.{reason.value}", quote_of(weighed.quote), where),
            scope=_scope(text) if reason is StopReason.RATE_LIMIT else None,
            reset=self._reset(reason, text, at),
            message=quote_of(text),
        )
        return [*remaining, sign], lost

    def unit(self, unit: Unit, where: str, depth: int = DEPTH) -> MatchedMessage | None:
        """What a unit of plain text says; None if it says that the agent continues by itself.
        `depth` is the maximum number of errors around the one that is the cause."""
        at = resets.stamp(unit.prefix or unit.text, self.tz) if unit.log else None
        text = _STAMP.sub("", unit.text, count=1) if unit.log else unit.text
        if unit.voice in (Voice.ERROR, Voice.PLAIN) and self._retries(text):
            # Below the last of such lines, something may still be an ending.
            *_, last = _RETRYING.finditer(text)
            rest = text[last.end() :].partition("\n")[2]
            if has_tries_left(text[last.start() :].partition("\n")[0]):
                return None  # the cause of this try, shown below its count
            matched = self.unit(replace(unit, text=rest), where) if rest else None
            return matched if matched is not None and matched.signs else None
        places = _PLACES[unit.voice, unit.under_tool]
        in_errors = self.in_errors or is_client_error(text)
        if not in_errors:
            places = tuple(place for place in places if place != "error")
        hits, text = self._hits(text, places, unit.wrapped)
        counters = [h for h in hits if h.wording.reason == NOT_A_STOP]
        if is_side_job(unit):
            return MatchedMessage()
        if unit.voice is Voice.PLAIN and depth and (named := _SOURCE.match(text)):
            matched = self.unit(replace(unit, text=text[named.end() :]), where, 0)
            if not hits or (matched is not None and matched.signs):
                return matched
        signs: list[Sign] = []
        lost: list[Sign] = []
        for hit in hits:
            sign = self._sign(hit, text, Rank.TEXT, where, at)
            if sign is None:
                continue
            inside = unit.voice is Voice.ERROR and "error" in hit.wording.where
            if inside and sign.lost == _MIDDLE:
                sign = replace(sign, lost="")  # all lines of an error belong to it
            talk = _CONDITIONAL if not hit.wording.lead else _TALK
            clause = talk.match(hit.quote) and not talk.match(hit.wording.pattern)
            is_cut = bool(hit.wording.lead) and is_rest(hit.quote)
            clause = clause or _is_prose(hit, unit) or is_cut
            asks = sign.reason is StopReason.NEEDS_USER  # the agent may ask in its own words
            if unit.voice is Voice.PLAIN and not sign.lost and clause and not (asks and not is_cut):
                sign = replace(sign, lost="prose: it opens like a clause, not like a message")
            quoted = text.count('"', 0, hit.start) % 2 and "\n" in text[: hit.start]
            if unit.voice is Voice.PLAIN and not sign.lost and quoted:
                sign = replace(sign, lost="inside quotes that opened above")
            if not sign.lost and is_family(hit.wording.id) and is_quiet(unit):
                sign = replace(sign, lost="its own log calls it harmless")
            listed = unit.item and sign.reason is not StopReason.COMPLETED
            if listed and not sign.lost and is_family(hit.wording.id):
                sign = replace(sign, lost="an item of a list")
            if unit.voice is Voice.PLAIN and not sign.lost and is_change_note(text):
                sign = replace(sign, lost="a note on a change")
            if unit.voice is Voice.PLAIN and not sign.lost and is_narrated(text):
                sign = replace(sign, lost="prose: it tells of another time or place")
            if unit.voice is Voice.PLAIN and not sign.lost and is_human(text) and not asks:
                sign = replace(sign, lost="prose: somebody speaks of what they think or did")
            counter = next((c for c in counters if _silences(c, hit, text)), None)
            if counter is not None and not sign.lost:
                sign = replace(sign, lost=f"{SILENCED}{counter.wording.id}")
            (lost if sign.lost else signs).append(sign)
        # A wording matched and does not count, so its claims do not count either.
        refused = any(unit.voice is Voice.PLAIN or s.lost.startswith(_DENIED) for s in lost)
        if not counters and not refused and in_errors and may_claim(unit, text):
            alone = unit.voice is Voice.PLAIN or is_only_warned(unit)
            signs, outweighed = self._weighed(signs, text, where, at, alone=alone)
            lost += outweighed
        if not counters and unit.voice is Voice.ERROR and depth:
            signs, outweighed = self._innermost(unit, text, where, signs, depth)
            lost += outweighed
        if counters and not lost and not signs:
            lost.append(unexplained(unit, where, lost=f"{SILENCED}{counters[0].wording.id}"))
        foreign = any(c.wording.covers == "source" for c in counters)
        view = any(c.wording.covers == "all" for c in counters)
        return MatchedMessage(tuple(signs), tuple(lost), foreign, view)

    def _innermost(
        self, unit: Unit, text: str, where: str, signs: list[Sign], depth: int
    ) -> tuple[list[Sign], list[Sign]]:
        """The signs that count and those that lost, if one error contains another: "Failed to log
        in: your trial has ended" is about the trial."""
        outside = _OUTSIDE.match(text)
        if outside is None or not signs:
            return signs, []
        inside = replace(unit, text=text[outside.end() :])
        matched = self.unit(inside, where, depth - 1)
        if matched is None or not matched.signs:
            return signs, []
        best = max(s.strength for s in matched.signs)
        causes = {s.reason for s in matched.signs if s.strength is best}
        if best < Strength.SENTENCE or causes & set(VAGUE):
            return signs, []
        lost = [replace(s, lost=_AROUND, outdone=True) for s in signs if s.reason not in causes]
        return list(matched.signs), lost

    def _hits(self, text: str, places: tuple[Where, ...], wrapped: bool) -> tuple[list[Hit], str]:
        """The wordings in a text. A text that a line width broke is read both ways, and the reading
        that says more is the right one."""
        found = _longest([h for p in places for h in self.catalogue.find(text, p, self.agent)])
        if not wrapped or (joined := unbroken(text)) == text:
            return found, text
        other = _longest([h for p in places for h in self.catalogue.find(joined, p, self.agent)])
        more = _weight(other) > _weight(found)
        return (other, joined) if more else (found, text)

    def reset_in(self, text: str) -> Reset | None:
        """The time at which a limit ends, if another unit than the limit states it."""
        return _reset_of(text, self.now, self.tz)

    def waits_long(self, text: str) -> bool:
        """Whether a notice of a retry tells of a wait that is a stop."""
        return tells_of_retries(text) and not self._retries(text)

    def _retries(self, text: str) -> bool:
        found = list(_RETRYING.finditer(text))
        if found and _GAVE_UP.search(text, 0, found[0].start()):
            return False  # what follows lists the tries
        if not found or all(_was_last_try(text[each.start() :]) for each in found):
            return False
        said = text[found[-1].start() :].partition("\n")[0]  # its own wait, not the limit's
        wait = _reset_of(said, self.now, self.tz) or _reset_of(text, self.now, self.tz)
        return wait is None or wait.after_s is None or wait.after_s <= LONG_RETRY_S

    def _sign(self, hit: Hit, text: str, rank: Rank, where: str, at: float | None) -> Sign | None:
        if hit.wording.reason == NOT_A_STOP:
            return None
        reason = StopReason(hit.wording.reason)
        return Sign(
            reason=reason,
            rank=rank,
            strength=hit.strength,
            evidence=Evidence(hit.wording.id, quote_of(hit.quote), where),
            scope=hit.wording.scope or (_scope(text) if reason is StopReason.RATE_LIMIT else None),
            reset=self._reset(reason, text, at),
            tokens=_tokens(hit.groups),
            message=quote_of(text),
            by_name=bool(hit.wording.agents),
            lost=_why_dropped(hit, text),
        )

    def _reset(self, reason: StopReason, text: str, at: float | None) -> Reset | None:
        if reason not in (StopReason.RATE_LIMIT, StopReason.OVERLOADED):
            return None
        return _reset_of(text, self.now if at is None else at, self.tz)


@lru_cache(maxsize=64)
def _reset_of(text: str, now: float, tz: tzinfo) -> Reset | None:
    """Cached, because all signs of a message share it."""
    found = resets.parse(text, now=now, tz=tz)
    if found is None and "\n" in text and (joined := unbroken(text)) != text:
        return resets.parse(joined, now=now, tz=tz)
    return found


_GAVE_UP = lazy_pattern(
    r"(?i)^\W*(?:\w+:\s)?(?:all|every|none|no)\b[^\n]{0,60}\b(?:failed|exhausted|succeeded|answer(?:ed)?"
    r"|worked)\b|^\W*(?:\w+:\s)?(?:failed|gave up|giving up)\b[^\n]{0,40}\bafter \d+"
)
_LAST_TRY = lazy_pattern(r"(?i)^attempt:? ?#?(\d{1,4}) ?(?:/|of) ?(\d{1,4})\b")


def _was_last_try(notice: str) -> bool:
    """Whether this was the last try: nothing follows "attempt 3/3"."""
    counted = _LAST_TRY.match(notice)
    return counted is not None and int(counted[1]) >= int(counted[2])


def has_tries_left(notice: str) -> bool:
    """Whether a notice counts its tries and this is not the last one."""
    if "on try 0" in notice:
        return True  # the first of several
    *_, counted = [None, *_COUNTED.finditer(notice)]
    return counted is not None and int(counted[1][:9]) < int(counted[2][:9])


def is_side_job(unit: Unit) -> bool:
    """Does a part of the agent speak that may fail without ending anything?"""
    return bool(unit.prefix and _SIDE_JOB.search(unit.prefix))


def tells_of_retries(text: str) -> bool:
    """Does a text speak of another try, as a client does that goes on by itself?"""
    return bool(_RETRYING.search(text))


def _weight(hits: list[Hit]) -> tuple[int, int]:
    """How much is said: how exactly, and in how many words."""
    return max(((hit.strength, hit.end - hit.start) for hit in hits), default=(-1, 0))


_WEIGHTS = {Strength.HINT: 1.0, Strength.PHRASE: 1.5, Strength.CODE: 3.0}
_FAMILY_WEIGHT = 2.0
_CAUSELESS = 0.5  # a code that names no cause
_DENIED = "negated"
_OUTWEIGHED = "other claims outweigh it"
_OURS = lazy_pattern(
    r"(?i)\b(?:models?|provider|deployment|conversation|chat|prompt|agent|schema|tools?|mcp)\b"
)
"""What an error in a log must mention to be the agent's own."""
_SIDE_JOB = lazy_pattern(
    r"(?i)\b(?:otel|opentelemetry|telemetry|metrics|analytics|sentry|updater|mcp)\b"
)
"""Parts of an agent that may fail without ending anything, as its logger calls them."""
_AGAIN = lazy_pattern(
    r"(?i)\b(?:until|till|again (?:at|in|on|after)|resets?|renews?|refresh(?:es)?)\b"
)
_SOURCE = lazy_pattern(
    r"(?!(?:note|todo|fix|feat|docs?|tests?|chore|perf|build|tip|hint|info|warn|warning|debug|usage"
    r"|example|title|summary|description|feature|bug|issue|question|user|assistant|human)\b)"
    r"[a-z][\w.-]{1,20}: (?=[A-Z])"
)
"""The name of the program before its message: "groq: Rate limit reached"."""
_AROUND = "the error inside it says why"
_OUTSIDE = lazy_pattern(
    r"(?i)^\W{0,3}(?:(?:failed|unable|could not|couldn't|cannot|error) (?:to )?[\w /'-]{2,60}"
    r"|stream disconnected before completion"
    r"|[\w/'-]{2,20}(?: [\w/'-]{1,20}){0,4} (?:failed|failure|(?:has )?crashed|exception))"
    r": (?=\S)"
)


def _spoken(sign: Sign) -> Spoken:
    """What a sign adds to the claims of its text."""
    if sign.reason is StopReason.ERROR and sign.strength < Strength.SENTENCE:
        return sign.reason, _CAUSELESS, sign.evidence.rule
    return sign.reason, _WEIGHTS.get(sign.strength, _FAMILY_WEIGHT), sign.evidence.rule


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
    """Whether a counter-wording silences a match: in its whole unit, or only on its own line."""
    if hit.wording.reason in counter.wording.spares:
        return False
    if counter.wording.covers != "line":
        return True
    return "\n" not in text[min(counter.end, hit.end) : max(counter.start, hit.start)]


def _longest(hits: list[Hit]) -> list[Hit]:
    """Drops sentences that are part of a longer sentence with another reason: "exceeded your quota,
    please check your billing" is one message, not two."""
    return [hit for hit in hits if not any(_covers(other, hit) for other in hits)]


def _covers(longer: Hit, hit: Hit) -> bool:
    if is_family(hit.wording.id) != is_family(longer.wording.id):
        overlap = longer.start < hit.end and hit.start < longer.end
        return overlap and is_family(hit.wording.id) and longer.wording.reason != NOT_A_STOP
    return (
        longer.wording.reason not in (hit.wording.reason, NOT_A_STOP)
        and hit.wording.reason != NOT_A_STOP
        and longer.strength == hit.strength >= Strength.SENTENCE
        and longer.start < hit.end
        and hit.start < longer.end
        and longer.end - longer.start > hit.end - hit.start
    )


_MEANS = lazy_pattern(
    r"(?i)^[\s\"'`)]{1,3}(?:(?:errors? )?(?:means?|indicates?|(?:is|are) returned (?:when|if)"
    r"|occurs? when)|[–—-] (?:what|how|why|when|causes?|explained))\b"
)
_SET = lazy_pattern(
    r"(?i)^[\"']?\s?(?:is|=|:|set to) ?[\"']?\d[\d.]* ?(?:ms|s|sec|seconds|m|min|minutes)?\b"
    r"(?!.{0,12}(?:exceed|reach|expire))"
)
_SAYS_NO = lazy_pattern(r"(?i)^[\"']?\s?[:=]\s?(?:false|null|none|0)\b(?!\.)")
_PROSE_WORDS = 9
_RELATIVE = lazy_pattern(r"(?i)\w (?:that|which|who) \w")
_FAMILY_WORDS = 4
_MIDDLE = "the middle of a sentence"


_SUBORDINATE = lazy_pattern(
    r"(?i)\b(?:when(?:ever)?|if|that|which|who(?:se)?|caused|returns?|unless)\b"
)


def _is_prose(hit: Hit, unit: Unit) -> bool:
    """Whether a sentence starts in lower case and takes many words to come to the point. A message
    starts with a capital, or with the point."""
    if is_family(hit.wording.id):
        is_spoken = unit.speaker and not is_client_error(unit.text)
        quiet = hit.quote[:1].islower() and len(hit.quote.split()) > _FAMILY_WORDS and not unit.log
        asks = hit.wording.reason == StopReason.NEEDS_USER.value and ": " in hit.quote
        quiet = quiet and not asks
        return is_spoken or quiet or bool(hit.wording.lead and _SUBORDINATE.search(hit.quote))
    if hit.wording.lead and _RELATIVE.search(hit.quote) and not hit.wording.pattern.count("that"):
        return True
    return bool(
        hit.wording.lead
        and hit.quote[:1].islower()
        and not any(sign in hit.quote for sign in (":", "...", '"'))
        and len(hit.quote.split()) > _PROSE_WORDS
    )


def _why_dropped(hit: Hit, text: str) -> str:
    before, after = text[: hit.start], text[hit.end :]
    if _NEGATION.search(before[-48:]):
        return f"{_DENIED} or conditional"
    if _NOT.search(hit.quote) and not _NOT.search(hit.wording.pattern.replace("\\b", " ")):
        return _DENIED
    if _MEANS.match(after):
        return "only mentioned"
    if hit.wording.reason == StopReason.TIMEOUT.value and _SET.match(after):
        return "a setting"
    if hit.wording.strength == "code" and _SAYS_NO.match(after):
        return f"{_DENIED}: the field of this name says no"
    if "start" not in hit.wording.where and "line" not in hit.wording.where:
        return ""
    if after[:1].isalnum() and text[hit.end - 1 : hit.end].isalnum() and not after[0].isdigit():
        return "a part of a longer word"
    if _MENTION.match(after) and text[hit.end - 1 : hit.end] not in ".!":
        return "only mentioned"
    line_before = before.rstrip("\n").rsplit("\n", 1)[-1] if before.endswith("\n") else ""
    if wraps(line_before):
        return _MIDDLE
    return ""


def unexplained(unit: Unit, where: str, lost: str = "") -> Sign:
    """The sign of an error that no wording matches."""
    return Sign(
        reason=StopReason.ERROR,
        rank=Rank.EXIT,  # an unexplained error says no more than an exit code
        strength=Strength.HINT,
        evidence=Evidence("text.error_voice", quote_of(unit.text), where),
        message=quote_of(unit.text),
        lost=lost,
    )


def _tokens(groups: dict[str, str]) -> Tokens | None:
    used, limit = (groups.get(name, "").replace(",", "") for name in ("used", "limit"))
    if not (used.isdigit() and len(used) < _DIGITS and len(limit) < _DIGITS):
        return None
    return Tokens(int(used), (int(limit) or None) if limit.isdigit() else None)


def _scope(text: str) -> str | None:
    return next((name for name, form in _SCOPES if form.search(text)), None)


def quote_of(text: str) -> str:
    """A text as evidence shows it: on one line, and not too long."""
    short = " ".join(text.split())
    return short if len(short) <= _QUOTE_CHARS else f"{short[: _QUOTE_CHARS - 1]}…"
