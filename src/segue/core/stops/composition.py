"""Which of several signs is the verdict: status, code, phrase and sentence weighed together.

Rank and strength come first (see `classify`). But a message often holds a sentence for one reason
and one for another: "504 Gateway Timeout: upstream connect error". Then, in this order:

1. **Word for word before by kind.** A sentence that is known as a whole goes before one that only
   looks like others of its kind (`is_family`).
2. **Cause before consequence.** A timer that fired drops the connection, an engine that died
   answers 500: the first of each pair is why, the second is what it looked like (`_CAUSES`).
3. **What more kinds of evidence agree on.** A status, a code and a phrase each add their weight to
   the reason that they speak for; the same kind twice says nothing new (`_WEIGHTS`).
4. **The order of the reasons**, as everywhere.
"""

from collections import defaultdict
from collections.abc import Iterable

from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Rank, Sign, Strength

_CAUSES: dict[StopReason, tuple[StopReason, ...]] = {
    StopReason.CONTEXT_EXHAUSTED: (StopReason.OVERLOADED,),
    StopReason.BILLING: (StopReason.OVERLOADED,),
    StopReason.AUTH: (StopReason.OVERLOADED,),
    StopReason.REFUSAL: (StopReason.OVERLOADED,),
    StopReason.TIMEOUT: (StopReason.OVERLOADED,),
    StopReason.CRASH: (StopReason.OVERLOADED, StopReason.ERROR),
    StopReason.MAX_TURNS: (StopReason.ERROR, StopReason.COMPLETED),
    StopReason.MAX_BUDGET: (StopReason.ERROR, StopReason.COMPLETED),
}
"""Reasons, and what they look like from outside."""
_WEIGHTS = {
    Strength.HINT: 1,
    Strength.PHRASE: 2,
    Strength.CODE: 4,
    Strength.SENTENCE: 8,
    Strength.OWN: 16,
}
"""Each outweighs all weaker ones together, so composition never overturns strength."""


CONCEPT = "concept"
"""How a rule is named by which claims inside an error are weighed."""
STATEMENT = "statement"
"""The same in a plain line, which only its form shows to be a message."""
_FAMILY = ("family.", f"{CONCEPT}.", f"{STATEMENT}.")


def is_family(rule: str) -> bool:
    """A sentence that is known by its kind alone says less than one that is known word for word."""
    return rule.startswith(_FAMILY)


def ordered(signs: Iterable[Sign]) -> list[Sign]:
    """The signs, the one that decides first."""
    listed = list(signs)
    support = _support(listed)
    peaks: dict[tuple[Rank, StopReason], Strength] = {}
    for sign in listed:
        key = (sign.rank, sign.reason)
        peaks[key] = max(sign.strength, peaks.get(key, Strength.HINT))

    def weight(sign: Sign) -> tuple[int, int, bool, bool, int, int, bool]:
        caused = any(
            sign.reason in effects and peaks.get((sign.rank, cause), -1) >= sign.strength
            for cause, effects in _CAUSES.items()
        )
        # The last only orders what says the same: an agent's own wording tells more.
        own = not sign.evidence.rule.startswith("general.")
        total = support[sign.rank, sign.reason]
        exact = not is_family(sign.evidence.rule)
        strength = sign.strength
        if sign.reason is StopReason.OVERLOADED and strength is Strength.SENTENCE:
            # A timer's code beside "fetch failed": the code is why.
            timer = peaks.get((sign.rank, StopReason.TIMEOUT), Strength.HINT)
            strength = Strength.PHRASE if timer is Strength.CODE else strength
        return (sign.rank, strength, exact, not caused, total, -sign.reason.priority, own)

    return sorted(listed, key=weight, reverse=True)


def is_aftermath(now: Iterable[Sign], before: Iterable[Sign]) -> bool:
    """Is all that is said now only how the cause that was named before looks from outside?"""
    peaks: dict[StopReason, Strength] = {}
    for sign in before:
        peaks[sign.reason] = max(sign.strength, peaks.get(sign.reason, Strength.HINT))
    return all(
        any(
            sign.reason in _CAUSES.get(cause, ()) and strength >= sign.strength
            for cause, strength in peaks.items()
        )
        for sign in now
    )


def _support(signs: list[Sign]) -> dict[tuple[Rank, StopReason], int]:
    """How much speaks for each reason, each kind of evidence counted once."""
    kinds: dict[tuple[Rank, StopReason], set[Strength]] = defaultdict(set)
    for sign in signs:
        kinds[sign.rank, sign.reason].add(sign.strength)
    return {key: sum(_WEIGHTS[kind] for kind in found) for key, found in kinds.items()}
