"""How long to wait, and how much of it is left when clocks change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs.stepping import AT, stop

from segue.core.policy import Policy
from segue.core.runs.types import Wait
from segue.core.runs.waits import remaining_s, wait_after
from segue.core.stops.reasons import StopReason

LIMIT, OVERLOAD = StopReason.RATE_LIMIT, StopReason.OVERLOADED
draws = st.floats(0, 1)


def wait(
    reason: StopReason = LIMIT,
    *,
    draw: float = 0.5,
    tries: int = 1,
    policy: Policy | None = None,
    **of_stop: float,
) -> Wait:
    return wait_after(stop(reason, **of_stop), policy or Policy(), at=AT, draw=draw, tries=tries)


@pytest.mark.parametrize(("draw", "jitter_s"), [(0.0, 5), (0.5, 32.5), (1.0, 60)])
def test_a_known_reset_is_waited_for_and_5_to_60_seconds_more(draw: float, jitter_s: float) -> None:
    found = wait(retry_at=AT + 3_600, draw=draw)
    assert found.until == AT + 3_600 + jitter_s
    assert (found.reset_at, found.is_relative, found.draw) == (AT + 3_600, False, draw)


def test_a_reset_told_in_seconds_is_relative() -> None:
    found = wait(retry_after_s=60, draw=0)
    assert (found.until, found.reset_at, found.is_relative) == (AT + 65, AT + 60, True)


@pytest.mark.parametrize(
    ("tries", "wait_s"), [(1, 30), (2, 60), (3, 120), (4, 240), (5, 300), (6, 300), (10**6, 300)]
)
@pytest.mark.parametrize("reason", [LIMIT, OVERLOAD])
def test_an_unknown_reset_is_waited_for_twice_as_long_each_time_up_to_300_seconds(
    reason: StopReason, tries: int, wait_s: float
) -> None:
    found = wait(reason, tries=tries)
    assert (found.until - AT, found.reset_at, found.tries) == (wait_s, None, tries)
    assert wait(reason, tries=tries, draw=0).until == pytest.approx(AT + wait_s * 0.9)
    assert wait(reason, tries=tries, draw=1).until == pytest.approx(AT + wait_s * 1.1)


@pytest.mark.parametrize("retry_at", [AT, AT - 1, AT - 1e6, 0.0, float("nan"), float("inf")])
def test_a_reset_in_the_past_counts_as_unknown(retry_at: float) -> None:
    found = wait(retry_at=retry_at)
    assert (found.until, found.reset_at) == (AT + 30, None)


def test_an_overload_with_a_stated_time_is_not_tried_before() -> None:
    assert wait(OVERLOAD, retry_at=AT + 500).until == AT + 500
    assert wait(OVERLOAD, retry_at=AT + 1).until == AT + 30


def test_resets_that_were_not_true_are_trusted_less() -> None:
    """A provider that always says "in a second" is not asked every few seconds for days."""
    found = [wait(retry_at=AT + 1, draw=0, tries=tries).until - AT for tries in (1, 2, 3, 4, 9)]
    assert found == pytest.approx([6, 6, 27, 54, 270])


@given(
    st.sampled_from([LIMIT, OVERLOAD]),
    draws,
    st.integers(1, 50),
    st.none() | st.floats(AT - 1e6, AT + 1e6),
)
def test_no_wait_ends_before_its_reset_or_at_once(
    reason: StopReason, draw: float, tries: int, retry_at: float | None
) -> None:
    found = wait_after(stop(reason, retry_at=retry_at), Policy(), at=AT, draw=draw, tries=tries)
    assert found.until > AT
    if retry_at is not None:
        assert found.until >= retry_at


@given(draws, draws)
def test_runs_stopped_by_the_same_limit_wake_apart(one: float, other: float) -> None:
    waits = [wait(retry_at=AT + 100, draw=draw).until for draw in (one, other)]
    assert abs(waits[0] - waits[1]) == pytest.approx(abs(one - other) * 55, abs=1e-6)


# What is left


def test_a_stated_time_ends_by_the_wall_clock_alone() -> None:
    found = wait(retry_at=AT + 3_600, draw=0)
    assert remaining_s(found, AT) == 3_605
    assert remaining_s(found, AT - 7_200) == 3_605 + 7_200  # set back: longer
    assert remaining_s(found, AT + 3_000) == 605  # set forward: shorter
    assert remaining_s(found, AT, elapsed_s=9_999) == 3_605
    assert remaining_s(found, AT + 3_605) == 0
    assert remaining_s(found, AT + 1e9) == 0


def test_a_number_of_seconds_is_not_moved_by_a_clock_that_is_set() -> None:
    found = wait(retry_after_s=600, draw=0)
    assert remaining_s(found, AT - 9_999, elapsed_s=5) == 600
    assert remaining_s(found, AT + 9_999, elapsed_s=5) == 600
    assert remaining_s(found, AT, elapsed_s=605) == 0


def test_a_number_of_seconds_after_a_restart_goes_by_the_wall_clock_and_is_never_longer() -> None:
    found = wait(retry_after_s=600, draw=0)
    assert remaining_s(found, AT + 100) == 505
    assert remaining_s(found, AT - 9_999) == 605
    assert remaining_s(found, AT + 9_999) == 0


def test_a_guess_is_a_number_of_seconds() -> None:
    assert wait().is_relative


@given(st.floats(AT - 1e6, AT + 1e6), st.floats(0, 1e6), draws)
def test_a_wait_for_a_stated_reset_is_never_over_before_it(
    now: float, ahead_s: float, draw: float
) -> None:
    found = wait(retry_at=AT + 1 + ahead_s, draw=draw)
    if remaining_s(found, now, elapsed_s=1e9) == 0:
        assert now >= AT + 1 + ahead_s
