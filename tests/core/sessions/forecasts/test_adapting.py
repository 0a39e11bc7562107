"""Adaptive marks: how large a turn segue plans for."""

from random import Random

import pytest
from support.runs.stepping import led

from segue.core.policy import Policy
from segue.core.runs.types import Abilities
from segue.core.sessions.forecasts.adapting import HIGHEST, LOWEST, adapted
from segue.core.stops.reasons import StopReason

ADAPTIVE = Policy(adaptive=True)


def test_a_late_request_raises_it_and_one_in_time_lowers_it_a_little_within_bounds() -> None:
    assert adapted(None, 0.91) == 0.938
    assert adapted(None, 0.90) == 0.898
    up = down = 0.9
    for _ in range(1_000):
        up, down = adapted(up, 1.0), adapted(down, 0.8)
    assert (up, down) == (HIGHEST, LOWEST)


@pytest.mark.parametrize("evenness", [1.0, 1.05, 1.2])
def test_in_the_long_run_one_of_twenty_is_late(evenness: float) -> None:
    """However much of the turns a quantile of earlier ones foretells."""
    random, quantile, late = Random(3), 0.9, 0
    for number in range(5_000):
        is_late = random.random() > quantile * evenness
        late += is_late and number >= 1_000
        quantile = adapted(quantile, 0.95 if is_late else 0.85)
    assert late / 4_000 == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize("policy", [Policy(), ADAPTIVE], ids=["off", "on"])
def test_a_run_counts_each_handoff_once_and_only_if_it_is_switched_on(policy: Policy) -> None:
    run = led(policy, abilities=Abilities(talks=True))
    run.reads(0.86)
    run.reads(0.93)
    run.reads(0.94)
    assert run.run.quantile == (0.938 if policy.adaptive else None)


def test_a_window_that_is_full_counts_as_a_late_handoff() -> None:
    run = led(ADAPTIVE)
    run.reads(0.5)
    run.ends(StopReason.CONTEXT_EXHAUSTED, progressed=True)
    assert run.run.quantile == 0.938


def test_a_run_that_looks_further_ahead_hands_over_earlier() -> None:
    """Sizes of 1% a turn, and now and then one of 6%: at 74% two such turns pass 85%."""
    due = []
    for quantile in (0.75, 0.99):
        run = led(ADAPTIVE, quantile=quantile)
        size = 0.40
        for number in range(30):
            size += 0.06 if number % 15 == 7 else 0.01
            run.reads(round(size, 4))
            if run.run.is_due:
                break
        due.append(size)
    assert due[1] < due[0] - 0.02
