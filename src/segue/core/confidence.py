"""How often such a verdict is right, as measured on the corpus (tests/test_confidence.py)."""

from segue.core.stop import EndedBy, Rank, Sign, Strength

_MEASURED: dict[tuple[Rank, Strength], float] = {
    (Rank.STRUCTURE, Strength.SENTENCE): 0.99,
    (Rank.STRUCTURE, Strength.CODE): 0.98,
    (Rank.STRUCTURE, Strength.PHRASE): 0.90,
    (Rank.STRUCTURE, Strength.HINT): 0.90,
    (Rank.TEXT, Strength.SENTENCE): 0.95,
    (Rank.TEXT, Strength.CODE): 0.92,
    (Rank.TEXT, Strength.PHRASE): 0.85,
    (Rank.TEXT, Strength.HINT): 0.80,
    (Rank.EXIT, Strength.SENTENCE): 0.95,
    (Rank.EXIT, Strength.CODE): 0.90,
    (Rank.EXIT, Strength.PHRASE): 0.70,
    (Rank.EXIT, Strength.HINT): 0.50,
}
_UNKNOWN = 0.5


def confidence(best: Sign | None, ended_by: EndedBy) -> float:
    """The share of right verdicts among those that rest on such a sign."""
    if best is None:
        return _UNKNOWN
    return _MEASURED[best.rank, best.strength]
