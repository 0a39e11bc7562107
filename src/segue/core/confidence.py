"""How sure a verdict is: the share of right ones among those that rest on such a sign.

Not counted where the rules were made (there it would be 1), but on three sets of messages that were
collected afterwards (610 of them), each read by the rules as they were before anybody looked at it;
signs that such messages hardly have (records, exits) on the 248 recorded runs. One wrong verdict
is added to each count, so that nothing that was seen seldom is called certain.
"""

from segue.core.stop import Rank, Sign, Strength

_RIGHT_OF: dict[tuple[Rank, Strength], tuple[int, int]] = {
    (Rank.STRUCTURE, Strength.SENTENCE): (109, 109),
    (Rank.STRUCTURE, Strength.CODE): (115, 115),
    (Rank.STRUCTURE, Strength.HINT): (8, 8),
    (Rank.TEXT, Strength.SENTENCE): (289, 298),
    (Rank.TEXT, Strength.CODE): (17, 22),
    (Rank.TEXT, Strength.PHRASE): (7, 9),
    (Rank.TEXT, Strength.HINT): (13, 18),
    (Rank.EXIT, Strength.CODE): (20, 20),
    (Rank.EXIT, Strength.PHRASE): (9, 9),
    # Only the messages: in the recordings, who sent a SIGTERM was known, as it is not elsewhere.
    (Rank.EXIT, Strength.HINT): (5, 10),
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
_UNKNOWN = 0.5


def confidence(best: Sign | None) -> float:
    """The share of right verdicts among those that rest on such a sign."""
    if best is None:
        return _UNKNOWN
    kind = (best.rank, best.strength)
    right, of = _RIGHT_OF[_AS.get(kind, kind)]
    return round(right / (of + 1), 2)
