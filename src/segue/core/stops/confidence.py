"""How certain a verdict is: the share of right verdicts among those based on such a sign.

The share is not counted on the messages for which the rules were written (there it would be 1), but
on messages that were collected afterwards, each set scored with the rules as they were before
anybody looked at it: 610 earlier messages and ten sets of 1,759; sentences known word for word
also on two later sets of 336 (docs/classify.md has the table).
Signs that such messages rarely have (records, exits) are counted on the 248 recorded runs. One
wrong verdict is added to each count, so that nothing rare is called certain.

Sentences and codes are also counted by reason, because a goodbye is a goodbye less often than a
rate limit is a rate limit. Each such count is combined with `_WEIGHT` verdicts of the kind as a
whole, so that something seen twice is not called certain. Codes are counted on all messages of the
corpus that contain one, even if a sentence beat it: that is how often the code alone would have
been right (`tests/core/stops/test_confidence.py` counts again).
"""

from segue.core.stops.codes import PROVIDER_CODES
from segue.core.stops.composition import CONCEPT, STATEMENT, is_family
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Rank, Sign, Strength

Count = tuple[int, int]
"""How many were right, and how many there were."""

_RIGHT_OF: dict[tuple[Rank, Strength], Count] = {
    (Rank.STRUCTURE, Strength.SENTENCE): (112, 112),
    (Rank.STRUCTURE, Strength.CODE): (127, 127),
    (Rank.STRUCTURE, Strength.HINT): (8, 8),
    (Rank.TEXT, Strength.SENTENCE): (901, 956),
    (Rank.TEXT, Strength.CODE): (57, 68),
    # combined with statuses, because each is too rare alone
    (Rank.TEXT, Strength.PHRASE): (45, 56),
    (Rank.TEXT, Strength.HINT): (45, 56),
    (Rank.EXIT, Strength.CODE): (20, 20),
    (Rank.EXIT, Strength.PHRASE): (9, 9),
    # Only the messages: in the recordings it was known who sent a SIGTERM, which is not so
    # elsewhere.
    (Rank.EXIT, Strength.HINT): (19, 52),
}
# Not counted: a phrase in a record is as sure as a status there, the user's own wording as a
# sentence of ours, and that the driver says who ended it as a signal is.
_AS: dict[tuple[Rank, Strength], tuple[Rank, Strength]] = {
    (Rank.STRUCTURE, Strength.PHRASE): (Rank.STRUCTURE, Strength.HINT),
    (Rank.STRUCTURE, Strength.OWN): (Rank.STRUCTURE, Strength.SENTENCE),
    (Rank.TEXT, Strength.OWN): (Rank.TEXT, Strength.SENTENCE),
    (Rank.EXIT, Strength.SENTENCE): (Rank.EXIT, Strength.CODE),
    (Rank.EXIT, Strength.OWN): (Rank.EXIT, Strength.CODE),
}
SENTENCES: dict[StopReason, Count] = {
    StopReason.RATE_LIMIT: (153, 160),
    StopReason.CONTEXT_EXHAUSTED: (76, 80),
    StopReason.BILLING: (44, 46),
    StopReason.AUTH: (38, 44),
    StopReason.MAX_BUDGET: (16, 16),
    StopReason.MAX_TURNS: (24, 24),
    StopReason.REFUSAL: (30, 30),
    StopReason.OVERLOADED: (68, 79),
    StopReason.TIMEOUT: (26, 31),
    StopReason.CRASH: (38, 43),
    StopReason.NEEDS_USER: (4, 4),
    StopReason.ERROR: (25, 27),
    StopReason.USER_EXIT: (24, 26),
}
"""Sentences known word for word, at first looks at the last sets."""
FAMILIES: Count = (29, 36)
"""Sentences known only by their kind; combined with codes, which are wrong as often."""
CONCEPTS: Count = (34, 44)
"""The weighed claims of an error, at first looks at the last six sets; combined like families."""
STATEMENTS: Count = (10, 14)
"""The same in a plain line, since its form is considered: on the last five sets."""
UNKNOWN: Count = (322, 338)
"""Texts in which nobody speaks (code, tables, a conversation), and that were no stops, with those
of which the words said so as surely: on the five last sets. Where somebody speaks, the words of the
text say how sure it is."""
HARD_CODES: dict[StopReason, Count] = {
    StopReason.RATE_LIMIT: (18, 19),
    StopReason.CONTEXT_EXHAUSTED: (4, 4),
    StopReason.AUTH: (4, 4),
    StopReason.OVERLOADED: (7, 8),
}
"""A provider's own code in an error that the agent printed."""
SOFT_CODES: dict[StopReason, Count] = {
    StopReason.RATE_LIMIT: (14, 15),
    StopReason.CONTEXT_EXHAUSTED: (8, 8),
    StopReason.BILLING: (3, 3),
    StopReason.AUTH: (1, 2),
    StopReason.MAX_BUDGET: (1, 1),
    StopReason.MAX_TURNS: (1, 1),
    StopReason.REFUSAL: (2, 2),
    StopReason.OVERLOADED: (2, 4),
    StopReason.TIMEOUT: (10, 10),
    StopReason.CRASH: (1, 1),
}
"""Other code-like words there: names of exceptions, codes of gateways. A code that names no cause
("error") is as certain as the kind as a whole: a verdict is based on it only if nothing else is
found."""
_WEIGHT = 10
_MAX_CONFIDENCE = 0.99  # no text is certain
_MAX_BY_WORDS = 0.98
_MIN_BY_WORDS = 0.15
_NOTHING_READ = 0.5


def is_hard(sign: Sign) -> bool:
    """Whether a sign is a provider's own code for this reason, in text."""
    is_code = PROVIDER_CODES.get(sign.evidence.quote) is sign.reason
    return sign.rank is Rank.TEXT and is_code


def weighed(share: float) -> float:
    """What a share that words were weighed to is worth: where it was higher, it was right no more
    often, and where it was lower, no less often."""
    return max(_MIN_BY_WORDS, min(_MAX_BY_WORDS, round(share, 2)))


def confidence(best: Sign | None, *, read: bool = True) -> float:
    """The share of right verdicts among those based on such a sign; without a sign, among those on
    texts without one (`read`: there was a text)."""
    if best is not None and best.sure is not None:
        return weighed(best.sure)
    if best is None:
        return round(UNKNOWN[0] / (UNKNOWN[1] + 1), 2) if read else _NOTHING_READ
    kind = _AS.get((best.rank, best.strength), (best.rank, best.strength))
    whole = _RIGHT_OF[kind]
    if is_hard(best):
        counts = HARD_CODES.values()
        whole = (sum(count[0] for count in counts), sum(count[1] for count in counts))
        return _joined(HARD_CODES.get(best.reason, (0, 0)), whole)
    if kind == (Rank.TEXT, Strength.CODE) and best.reason in SOFT_CODES:
        return _joined(SOFT_CODES[best.reason], whole)
    if kind == (Rank.TEXT, Strength.SENTENCE):
        if is_family(best.evidence.rule):
            name = best.evidence.rule.partition(".")[0]
            count = {CONCEPT: CONCEPTS, STATEMENT: STATEMENTS}.get(name, FAMILIES)
            return _joined(count, _RIGHT_OF[Rank.TEXT, Strength.CODE])
        return _joined(SENTENCES.get(best.reason, (0, 0)), whole)
    return round(whole[0] / (whole[1] + 1), 2)


def _joined(count: Count, whole: Count) -> float:
    share = whole[0] / (whole[1] + 1)
    return min(_MAX_CONFIDENCE, round((count[0] + _WEIGHT * share) / (count[1] + _WEIGHT), 2))
