"""A stated confidence is never higher than what was measured."""

from collections import defaultdict

from conftest import lines

from segue import api
from segue.core.confidence import confidence
from segue.core.policy import Policy
from segue.core.stop import Evidence, Rank, Sign, StopReason, Strength
from segue.ending import Ending, Source


def sign(rank: Rank, strength: Strength) -> Sign:
    evidence = Evidence("rule", "quote", "where")
    return Sign(reason=StopReason.ERROR, rank=rank, strength=strength, evidence=evidence)


def test_confidence_rises_with_strength_within_a_rank() -> None:
    for rank in Rank:
        stated = [confidence(sign(rank, strength)) for strength in Strength]
        assert stated == sorted(stated)


def test_structure_is_surer_than_text_and_text_surer_than_an_exit_code() -> None:
    for strength in (Strength.HINT, Strength.SENTENCE):
        stated = [confidence(sign(rank, strength)) for rank in sorted(Rank)]
        assert stated == sorted(stated)


def test_no_confidence_is_stated_above_the_share_of_right_verdicts() -> None:
    right: dict[float, list[bool]] = defaultdict(list)
    for record in lines("stops.jsonl"):
        source = Source(text=record["text"], channel=record["channel"])
        ending = Ending(sources=(source,), agent=record["agent"], exit_code=record["exit_code"])
        stop = api.examine(ending, now=0.0).stop
        wanted = "unknown" if record["label"] == "none" else record["label"]
        right[stop.confidence].append(stop.reason.value == wanted)
    for stated, found in right.items():
        assert sum(found) / len(found) >= stated, stated


def test_a_guess_is_not_acted_on_alone() -> None:
    """A bare SIGTERM, a bare exit code: below what a policy acts on by itself."""
    least = Policy().least_confidence
    assert confidence(sign(Rank.EXIT, Strength.HINT)) < least
    assert confidence(sign(Rank.TEXT, Strength.PHRASE)) < least
    assert confidence(sign(Rank.TEXT, Strength.SENTENCE)) >= least
    assert confidence(None) < least
