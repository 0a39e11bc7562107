"""How sure a verdict is: the share of right ones among those that rest on such a sign.

Not counted where the rules were made (there it would be 1), but on messages that were collected
afterwards, each set read by the rules as they were before anybody looked at it: 610 earlier ones
and eight sets of 1,094 (docs/classify.md has the table); signs that such messages hardly have
(records, exits) on the 248 recorded runs. One wrong verdict is added to each count, so that nothing
that was seen seldom is called certain.

Sentences and codes are counted by what they name, too: a farewell is a farewell less often than a
rate limit is one. Each such count is joined with `_WEIGHT` verdicts of the kind as a whole, so that
what was seen twice is not called certain. Codes are counted on all messages of the corpus in which
one was heard, also where a sentence beat it: that is how often the code alone would have been right
(`tests/core/stops/test_confidence.py` counts again).
"""

from segue.core.stops.codes import PROVIDER_CODES
from segue.core.stops.composition import CONCEPT, STATEMENT, is_family
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Rank, Sign, Strength

Count = tuple[int, int]
"""How many were right, of how many."""

_RIGHT_OF: dict[tuple[Rank, Strength], Count] = {
    (Rank.STRUCTURE, Strength.SENTENCE): (109, 109),
    (Rank.STRUCTURE, Strength.CODE): (115, 115),
    (Rank.STRUCTURE, Strength.HINT): (8, 8),
    (Rank.TEXT, Strength.SENTENCE): (547, 569),
    (Rank.TEXT, Strength.CODE): (40, 47),
    (Rank.TEXT, Strength.PHRASE): (34, 43),  # joined with statuses: each alone is too rare
    (Rank.TEXT, Strength.HINT): (34, 43),
    (Rank.EXIT, Strength.CODE): (20, 20),
    (Rank.EXIT, Strength.PHRASE): (9, 9),
    # Only the messages: in the recordings, who sent a SIGTERM was known, as it is not elsewhere.
    (Rank.EXIT, Strength.HINT): (17, 43),
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
    StopReason.RATE_LIMIT: (58, 58),
    StopReason.CONTEXT_EXHAUSTED: (31, 32),
    StopReason.BILLING: (17, 17),
    StopReason.AUTH: (10, 11),
    StopReason.MAX_BUDGET: (6, 6),
    StopReason.MAX_TURNS: (7, 7),
    StopReason.REFUSAL: (14, 14),
    StopReason.OVERLOADED: (26, 31),
    StopReason.TIMEOUT: (11, 12),
    StopReason.CRASH: (14, 14),
    StopReason.ERROR: (7, 8),
    StopReason.USER_EXIT: (13, 15),
}
"""A sentence that is known word for word, at first looks at four sets."""
FAMILIES: Count = (21, 26)
"""A sentence that is known by its kind alone; joined with codes, which err as often."""
CONCEPTS: Count = (26, 29)
"""The claims of an error, weighed: at first looks at the five last sets; joined as families."""
STATEMENTS: Count = (5, 8)
"""The same in a plain line, since its form is looked at: on the four last sets."""
UNKNOWN: Count = (363, 435)
"""Texts in which nothing was found, and that were no stops: on the seven last sets."""
HARD_CODES: dict[StopReason, Count] = {
    StopReason.RATE_LIMIT: (19, 20),
    StopReason.CONTEXT_EXHAUSTED: (4, 4),
    StopReason.AUTH: (4, 4),
    StopReason.OVERLOADED: (7, 8),
}
"""A provider's own code, in an error that the agent printed."""
SOFT_CODES: dict[StopReason, Count] = {
    StopReason.RATE_LIMIT: (14, 15),
    StopReason.CONTEXT_EXHAUSTED: (8, 8),
    StopReason.BILLING: (3, 3),
    StopReason.AUTH: (1, 2),
    StopReason.MAX_BUDGET: (1, 1),
    StopReason.MAX_TURNS: (1, 1),
    StopReason.REFUSAL: (2, 2),
    StopReason.OVERLOADED: (2, 4),
    StopReason.TIMEOUT: (11, 11),
    StopReason.CRASH: (1, 1),
}
"""Other code-like words there: names of exceptions, codes of gateways. A code that names no cause
("error") is as sure as the kind as a whole: only where nothing else speaks does a verdict rest on
it."""
_WEIGHT = 10
_NOTHING_READ = 0.5


def is_hard(sign: Sign) -> bool:
    """Whether it is a provider's own code for this reason, in text."""
    is_code = PROVIDER_CODES.get(sign.evidence.quote) is sign.reason
    return sign.rank is Rank.TEXT and is_code


def confidence(best: Sign | None, *, read: bool = True) -> float:
    """The share of right verdicts among those that rest on such a sign; without one, among those on
    a text in which there is none (`read`: there was a text)."""
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
    return round((count[0] + _WEIGHT * share) / (count[1] + _WEIGHT), 2)
