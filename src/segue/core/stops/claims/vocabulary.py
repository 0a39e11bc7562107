"""What a message says if no wording matches it: its claims, weighed together.

A wording matches a known sentence. But most error messages say one of a dozen things, each with a
small vocabulary: *a limit* was *reached*, *the prompt* is *too long*, *credits* are *used up*, *a
key* is *invalid*, *a server* is *down*. A **claim** is a subject with its predicate nearby in the
same sentence, or a term that needs no other ("segmentation fault"). A code is read as a sentence
(`insufficient_quota`) and counts less. Each claim adds weight to one reason; HTTP statuses and
other signs add theirs. The heaviest reason wins if it is heavy enough.

Three rules keep this honest. Advice ("Please check your network") weighs less than a statement, and
a condition weighs nothing. A cause takes weight from the reasons it resembles: a full window is
also "a limit that was exceeded". And a denial ("not your usage limit") is not a claim.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import re2
from msgspec import Struct

from segue.core.lazy_pattern import lazy_pattern
from segue.core.stops.claims import statements
from segue.core.stops.claims.table import (
    ADVISED,
    BY_STATUS,
    CLAIMS,
    CODED,
    SERVER_STATUS,
    SUBJECTS,
    SURE,
    TAKEN,
    TAKES,
    TELLING,
    TELLING_ALONE,
    TELLS_WHY,
    VAGUE,
    Claim,
)
from segue.core.stops.reasons import StopReason
from segue.core.stops.text.literals import may_match, required

Spoken = tuple[StopReason, float, str]
"""Other evidence for a reason: the reason, its weight, and what it is."""
_Span = tuple[int, int]
_Found = dict[tuple[StopReason, str], tuple[float, str]]
_ADVISED = "advised "
"""Prefix of a subject that counts even in advice; it counts half if something is stated as well."""

_MAX_CHARS = 4_000
_NEAR_CHARS = 70
_HITS_EACH = 6
_MAX_SENTENCES = 24
_MAX_CODES = 12
_STATUS = lazy_pattern(
    r"(?i)(?:\b(?:https?|status(?:[ _]?code)?|error(?:[ _]code)?|code)[\"']?\s?[:=/(\[]?\s?[\"']?"
    r"|^\W{0,3}|[(\[<]|:\s)([45]\d\d)(?![\d.,:]\d)\b"
)
_CODE = lazy_pattern(
    r"\b(?!max_(?:\w+_)?tokens\b)(?:[A-Za-z]+(?:_[A-Za-z]+)+|[A-Z][a-z]+(?:[A-Z][a-z]+)+|[A-Z]{2,}(?:_[A-Z]+)+)\b"
)
_EMPTY_FIELD = lazy_pattern(
    r"[\"']?\b\w{2,40}[\"']?\s?:\s?(?:null|None|undefined|\"\"|''|\[\]|\{\})(?=\s*[,}\n]|\s*$)"
)  # a name without a value says nothing
_SEAM = lazy_pattern(r"_|(?<=[a-z])(?=[A-Z])")
_SENTENCES = lazy_pattern(r"(?<=[.!?。！])\s+|\s[·∙•|]\s|;\s|\\n|\n\s*\n|\s(?=[a-z_]{2,20}=)")
_LINES = lazy_pattern(r"\s*\n\s*")
_DENIED = lazy_pattern(
    r"(?i)(?:\b(?:not|without|never|no|almost|nearly|about to|close to)|n't)"
    r"\s+(?:your|the|an?|any|been|yet|be)?\s*$"
)
_DENIED_WITHIN = 16
_TOLD = 2.5
_ONLY_CODED = 2.0
_LESS = 0.5


class Weighed(Struct, frozen=True):
    """What a text claims: the heaviest reason, and the words that support it."""

    reason: StopReason
    weight: float
    quote: str  # "" if only a status or another sign supports it
    coded: bool = False  # only a code claims it, no words


class Vocabulary:
    """The terms of claims, compiled when first needed."""

    def __init__(self, terms: Mapping[str, str]) -> None:
        self._terms = dict(terms)
        self._compiled: dict[str, Any] = {}
        self.weigh = lru_cache(maxsize=64)(self._weigh)

    def stated(self, text: str) -> bool:
        """Whether a text that nothing else shows to be an error says right away that something
        happened."""
        if statements.is_personal(text):
            return False
        sentence = _flat(_SENTENCES.split(text[:_MAX_CHARS], maxsplit=1)[0])
        if statements.is_long(sentence) or statements.is_condition(sentence):
            return False
        spans = self._finder(sentence)
        ordered = statements.is_order(sentence)
        for claim in CLAIMS:
            place = _place(claim, spans, sentence)
            if place is None:
                continue
            start, end = place
            if not claim.says and statements.is_name(sentence[start:end]):
                continue
            if ordered and claim.of not in TELLING_ALONE:
                continue
            if statements.is_explained(sentence[end:]):
                return False
            if statements.is_taken_back(sentence[end:]):
                continue
            if statements.comes_to_the_point(sentence, start, end):
                return True
        return False

    def terms_in(self, text: str) -> list[str]:
        """Which terms a text uses, in any sense."""
        folded = text.casefold()
        return [name for name in self._terms if self._spans(name, text, folded, hits=1)]

    def _weigh(self, text: str, others: tuple[Spoken, ...] = ()) -> Weighed | None:
        """What a text claims, or None. `others` is other evidence."""
        text = _EMPTY_FIELD.sub(" ", text[:_MAX_CHARS])
        found: _Found = {}
        for sentence in _SENTENCES.split(_CODE.sub(" ", text))[:_MAX_SENTENCES]:
            self._add_claims(_flat(sentence), found)
        for code in list(dict.fromkeys(_CODE.findall(text)))[:_MAX_CODES]:
            self._add_code(code, found)
        for status in _STATUS.finditer(text):
            number = int(status[1])
            stated = BY_STATUS.get(number, SERVER_STATUS if number >= 500 else None)
            if stated is not None:
                found.setdefault((stated[0], "status"), (stated[1], ""))
        for reason, weight, name in others:
            found.setdefault((reason, name), (weight, ""))
        # the answer is capped, the window is not full
        if (StopReason.ERROR, "answer_cap") in found:
            found.pop((StopReason.CONTEXT_EXHAUSTED, "window"), None)
        # a model that is not offered, though its server is up
        if (StopReason.ERROR, "named_model") in found:
            found.pop((StopReason.OVERLOADED, "far"), None)
        return _heaviest(found, waits=bool(self._finder(_flat(text))("later")))

    def _add_claims(self, sentence: str, found: _Found) -> None:
        if not sentence or statements.is_condition(sentence):
            return
        advice = statements.is_advice(sentence)
        spans = self._finder(sentence)
        for claim in CLAIMS:
            place = _place(claim, spans, sentence)
            if place is None:
                continue
            weight = claim.weight * (ADVISED if advice and claim.of not in TELLING else 1.0)
            key = (claim.reason, f"{_ADVISED}{claim.of}" if advice else claim.of)
            if key not in found or found[key][0] < weight:
                found[key] = (weight, sentence[place[0] : place[1]])

    def _add_code(self, code: str, found: _Found) -> None:
        """Adds a code once to each reason that it claims, whatever else claims that reason."""
        claimed: _Found = {}
        self._add_claims(_SEAM.sub(" ", code), claimed)
        for (reason, _), (weight, _) in claimed.items():
            if found.get((reason, "code"), (0.0, ""))[0] < weight * CODED:
                found[reason, "code"] = (weight * CODED, code)

    def _finder(self, sentence: str) -> Callable[[str], list[_Span]]:
        """Finds each term in a sentence, once."""
        known: dict[str, list[_Span]] = {}
        folded = sentence.casefold()

        def find(name: str) -> list[_Span]:
            if name not in known:
                known[name] = self._spans(name, sentence, folded)
            return known[name]

        return find

    def _spans(self, name: str, sentence: str, folded: str, hits: int = _HITS_EACH) -> list[_Span]:
        """Where a sentence has a term. `folded` is the sentence with its case folded: a term is
        compiled when a sentence has the words that it needs."""
        compiled = self._compiled.get(name)
        if compiled is None:
            if not may_match(required(self._terms[name]), folded):
                return []
            options = re2.Options()
            options.log_errors = False  # RE2 would write to stderr by itself
            compiled = re2.compile(f"(?i){self._terms[name]}", options=options)
            self._compiled[name] = compiled
        return [(match.start(), match.end()) for match in islice(compiled.finditer(sentence), hits)]


_GO_CONTEXT = lazy_pattern(r"(?i)\bcontext (?=deadline|cancell?ed)")  # Go's, not the model's
_PERIOD = lazy_pattern(r"(?i)\bbilling (?=cycle|period)")  # a month, not a bill
_SIZE = lazy_pattern(r"(?i)\btoken (?=(?:cap|count|budget|usage)\b)")  # how many, not a key
_TOOL = lazy_pattern(r"(?i)\b(?:mcp|language|lsp|dev|debug) server\b")  # not the provider's
_SYSTEM = lazy_pattern(
    r"(?i)\bpermission denied\W{1,3}(?:os error|errno|EACCES|publickey)"
    r"|\bEACCES\b[^.\n]{0,12}permission denied"
)  # the operating system's


def _flat(sentence: str) -> str:
    flat = _GO_CONTEXT.sub("", _LINES.sub(" ", sentence).strip())
    flat = _TOOL.sub("tool", _PERIOD.sub("", flat))
    return _SYSTEM.sub(" ", _SIZE.sub("tokens ", flat))


def _place(claim: Claim, spans: Callable[[str], list[_Span]], sentence: str) -> _Span | None:
    """Where a sentence makes a claim, or None."""
    for start, end in spans(claim.of):
        if _is_denied(sentence, start):
            continue
        if not claim.says:
            return start, end
        for first, last in spans(claim.says):
            inside = first >= start and last <= end
            near = max(first - end, start - last) <= _NEAR_CHARS
            if not inside and near and not _is_denied(sentence, first):
                return min(start, first), max(end, last)
    return None


def _is_denied(sentence: str, start: int) -> bool:
    return bool(_DENIED.search(sentence[max(0, start - _DENIED_WITHIN) : start]))


def _weights(found: _Found, *, waits: bool) -> dict[StopReason, float]:
    """The weight of each reason. If one thing is said in several ways, the heaviest counts in full
    and the others half. "Bad request" counts once, because each part of an answer repeats it.
    Advice counts half if something else is stated (advice to pay, only if waiting also helps), and
    a code that is not also put into words loses to one that is."""
    stated = {r for (r, name), (weight, _) in found.items() if name in SUBJECTS and weight >= _TOLD}
    by_reason: dict[StopReason, list[float]] = defaultdict(list)
    weights: dict[StopReason, float] = defaultdict(float)
    for (reason, name), (weight, _) in found.items():
        advised = name.startswith(_ADVISED)
        if advised and stated - {reason} and (waits or reason is not StopReason.BILLING):
            weight *= ADVISED
        if advised or name in SUBJECTS or name == "code":
            by_reason[reason].append(weight)
        else:
            weights[reason] += weight
    for reason, entries in by_reason.items():
        weights[reason] += max(entries) + (sum(entries) - max(entries)) / 2
    for reason in weights:
        if reason is StopReason.ERROR:
            weights[reason] = max(w for (r, _), (w, _) in found.items() if r is reason)
        elif stated and not any(r is reason and n in SUBJECTS for r, n in found):
            weights[reason] = min(weights[reason], _ONLY_CODED)
    return weights


def _heaviest(found: _Found, *, waits: bool = False) -> Weighed | None:
    if not found:
        return None
    weights = _weights(found, waits=waits)
    for taker in [reason for reason, weight in weights.items() if weight >= SURE]:
        for taken in TAKES.get(taker, ()):
            if taken in weights:
                weights[taken] -= TAKEN
                if taken in VAGUE and taker in TELLS_WHY:
                    weights[taken] = min(weights[taken], weights[taker] - _LESS)
    best = min(weights, key=lambda reason: (-weights[reason], reason.priority))
    own = [
        (weight, quote)
        for (r, n), (weight, quote) in found.items()
        if r is best and n.removeprefix(_ADVISED) in SUBJECTS
    ]
    code = found.get((best, "code"))
    quote = max(own)[1] if own else code[1] if code else ""
    return Weighed(best, weights[best], quote, coded=not own)
