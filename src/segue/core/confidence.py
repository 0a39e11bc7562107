"""How sure a verdict is: the share of right ones among those that rest on such a sign.

Not measured where the rules were made (there it would be 1), but on messages that were collected
afterwards, from the same kinds of places, and read by the rules as they then were.
"""

from segue.core.stop import Rank, Sign, Strength

_RIGHT: dict[tuple[Rank, Strength], float] = {
    (Rank.STRUCTURE, Strength.OWN): 0.99,
    (Rank.STRUCTURE, Strength.SENTENCE): 0.99,
    (Rank.STRUCTURE, Strength.CODE): 0.98,
    (Rank.STRUCTURE, Strength.PHRASE): 0.90,
    (Rank.STRUCTURE, Strength.HINT): 0.90,
    (Rank.TEXT, Strength.OWN): 0.97,
    (Rank.TEXT, Strength.SENTENCE): 0.97,
    (Rank.TEXT, Strength.CODE): 0.77,
    (Rank.TEXT, Strength.PHRASE): 0.75,
    (Rank.TEXT, Strength.HINT): 0.70,
    (Rank.EXIT, Strength.OWN): 0.95,
    (Rank.EXIT, Strength.SENTENCE): 0.95,  # the driver said who ended it
    (Rank.EXIT, Strength.CODE): 0.90,
    (Rank.EXIT, Strength.PHRASE): 0.70,
    (Rank.EXIT, Strength.HINT): 0.50,
}
_UNKNOWN = 0.5


def confidence(best: Sign | None) -> float:
    """The share of right verdicts among those that rest on such a sign."""
    return _UNKNOWN if best is None else _RIGHT[best.rank, best.strength]
