"""A stated confidence is never higher than what was measured."""

from collections import defaultdict

import pytest
from conftest import lines

from segue import api
from segue.agents.ending import Ending, Source
from segue.core.policy import Policy
from segue.core.stops.codes import PROVIDER_CODES
from segue.core.stops.confidence import HARD_CODES, SOFT_CODES, confidence, is_hard
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Evidence, Rank, Sign, Strength


def sign(rank: Rank, strength: Strength, reason: StopReason = StopReason.ERROR) -> Sign:
    evidence = Evidence("rule", "quote", "where")
    return Sign(reason=reason, rank=rank, strength=strength, evidence=evidence)


def test_confidence_rises_with_strength_within_a_rank() -> None:
    for rank in Rank:
        stated = [confidence(sign(rank, strength)) for strength in Strength]
        assert stated == sorted(stated)


def test_structure_is_surer_than_text_and_text_surer_than_an_exit_code() -> None:
    for strength in (Strength.HINT, Strength.SENTENCE):
        reason = StopReason.RATE_LIMIT  # of which most was seen in each rank
        stated = [confidence(sign(rank, strength, reason)) for rank in sorted(Rank)]
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


def test_codes_are_as_sure_as_they_are_counted_reason_by_reason() -> None:
    hard: dict[StopReason, list[bool]] = defaultdict(list)
    soft: dict[StopReason, list[bool]] = defaultdict(list)
    for record in lines("stops.jsonl"):
        source = Source(text=record["text"], channel=record["channel"])
        ending = Ending(sources=(source,), agent=record["agent"], exit_code=record["exit_code"])
        heard = [s for s in api.examine(ending, now=0.0).signs if s.rank is Rank.TEXT]
        for reason in {s.reason for s in heard if is_hard(s)}:
            hard[reason].append(reason.value == record["label"])
        codes = [s for s in heard if s.strength is Strength.CODE and not is_hard(s)]
        for reason in {s.reason for s in codes} - {StopReason.ERROR}:
            soft[reason].append(reason.value == record["label"])
    for stated, found in ((HARD_CODES, hard), (SOFT_CODES, soft)):
        assert stated == {reason: (sum(each), len(each)) for reason, each in found.items()}


@pytest.mark.parametrize("code", PROVIDER_CODES)
def test_a_providers_own_code_is_acted_on(code: str) -> None:
    evidence = Evidence("rule", code, "stderr:1")
    for strength in (Strength.PHRASE, Strength.CODE):
        hard = Sign(
            reason=PROVIDER_CODES[code], rank=Rank.TEXT, strength=strength, evidence=evidence
        )
        assert Policy().min_confidence <= confidence(hard) < 0.97


def test_a_guess_is_not_acted_on_alone() -> None:
    """A bare SIGTERM, a bare exit code: below what a policy acts on by itself."""
    least = Policy().min_confidence
    assert confidence(sign(Rank.EXIT, Strength.HINT)) < least
    assert confidence(sign(Rank.TEXT, Strength.PHRASE)) < least
    assert confidence(sign(Rank.TEXT, Strength.SENTENCE)) >= least
    assert confidence(None, read=False) < least
