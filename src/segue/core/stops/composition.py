"""Which of several signs is the verdict: status, code, phrase and sentence weighed together.

Rank and strength come first (see `classify`). But a message often contains a sentence for one
reason and one for another: "504 Gateway Timeout: upstream connect error". Then, in this order:

1. **Word for word before by kind.** A sentence that is known as a whole beats one that only looks
   like others of its kind (`is_family`).
2. **Cause before consequence.** A timeout closes the connection, and a crashed engine answers
   with 500: the first of each pair is the cause, the second is its effect (`_CAUSES`).
3. **What more kinds of evidence agree on.** A status, a code and a phrase each add their weight to
   the reason that they support; the same kind twice adds nothing (`_WEIGHTS`).
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
"""Reasons, and the reasons they look like from outside."""
_WEIGHTS = {
    Strength.HINT: 1,
    Strength.PHRASE: 2,
    Strength.CODE: 4,
    Strength.SENTENCE: 8,
    Strength.OWN: 16,
}
"""Each outweighs all weaker ones together, so composition never overturns strength."""
_RESETS = 2


CONCEPT = "concept"
"""The name of the rule that weighs claims inside an error."""
STATEMENT = "statement"
"""The same for a plain line that only its form shows to be a message."""
_FAMILY = ("family.", f"{CONCEPT}.", f"{STATEMENT}.")


def is_family(rule: str) -> bool:
    """Whether a rule knows a sentence only by its kind, which says less than knowing it word for
    word."""
    return rule.startswith(_FAMILY)


def ordered(signs: Iterable[Sign]) -> list[Sign]:
    """The signs, with the deciding one first."""
    listed = list(signs)
    support = _support(listed)
    peaks: dict[tuple[Rank, StopReason], Strength] = {}
    for sign in listed:
        key = (sign.rank, sign.reason)
        peaks[key] = max(sign.strength, peaks.get(key, Strength.HINT))

    def weight(sign: Sign) -> tuple[int, int, bool, bool, int, int, int]:
        caused = any(
            sign.reason in effects and peaks.get((sign.rank, cause), -1) >= sign.strength
            for cause, effects in _CAUSES.items()
        )
        # The last key only orders signs that say the same: an agent's own wording is more specific.
        own = (not sign.evidence.rule.startswith("general.")) + sign.by_name
        total = support[sign.rank, sign.reason]
        if sign.reason is StopReason.RATE_LIMIT and sign.reset is not None:
            total += _RESETS  # what resets by itself need not be paid
        exact = not is_family(sign.evidence.rule)
        strength = sign.strength
        if sign.reason is StopReason.OVERLOADED and strength is Strength.SENTENCE:
            # With a timer's code next to "fetch failed", the code is the cause.
            timer = peaks.get((sign.rank, StopReason.TIMEOUT), Strength.HINT)
            strength = Strength.PHRASE if timer is Strength.CODE else strength
        return (sign.rank, strength, exact, not caused, total, -sign.reason.priority, own)

    return sorted(listed, key=weight, reverse=True)


def is_aftermath(now: Iterable[Sign], before: Iterable[Sign]) -> bool:
    """Whether everything that is said now is only an effect of the cause that was named before."""
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
    """How much evidence each reason has, counting each kind of evidence once."""
    kinds: dict[tuple[Rank, StopReason], set[Strength]] = defaultdict(set)
    for sign in signs:
        kinds[sign.rank, sign.reason].add(sign.strength)
    return {key: sum(_WEIGHTS[kind] for kind in found) for key, found in kinds.items()}
