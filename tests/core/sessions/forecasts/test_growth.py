"""How fast a session fills up, and what tasks have cost: from the sizes after its replies."""

from itertools import accumulate
from statistics import median_low

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.sessions.forecasts.growth import (
    MIN_TASKS,
    Growth,
    Sample,
    Typical,
    growth,
    task_costs,
    typical_task,
)

K = 1_000
START = 1_768_000_000.0


def session(
    steps: list[int], *, every_s: float = 30.0, replies: int = 1, first: int = 20 * K
) -> list[Sample]:
    """A reply that opens the session, then one a step; a turn has so many replies."""
    used = accumulate(steps, initial=first)
    return [Sample(START + n * every_s, u, (n - 1) // replies) for n, u in enumerate(used)]


def of(samples: list[Sample]) -> Growth:
    found = growth(samples)
    assert found is not None
    return found


def per_minute(samples: list[Sample]) -> float:
    found = of(samples).tokens_per_minute
    assert found is not None
    return found


def per_turn(samples: list[Sample]) -> float:
    found = of(samples).tokens_per_turn
    assert found is not None
    return found


def test_growth_is_reported_per_minute_turn_and_reply() -> None:
    found = of(session([500] * 40, every_s=60, replies=4))
    assert found == Growth(
        tokens_per_minute=500.0,
        tokens_per_turn=2_000.0,
        tokens_per_reply=500.0,
        large_reply_tokens=500,
        reply_s=60.0,
        replies=41,
        turns=11,  # the opening reply belongs to a turn that nothing is known of
        compactions=0,
        active_s=2_400.0,
        large_by_share=(500,) * 8,
    )


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [Sample(START, 20 * K, 1)],
        [Sample(START, 20 * K, 1), Sample(START, 20 * K, 1)],
        [Sample(START, 90 * K, 1), Sample(START + 60, 20 * K, 1)],  # nothing but a compaction
    ],
)
def test_growth_is_unknown_until_two_replies_can_be_compared(samples: list[Sample]) -> None:
    assert growth(samples) is None


@given(
    st.floats(1, 5_000),
    st.lists(st.integers(1, 290), min_size=1, max_size=60).filter(lambda gaps: sum(gaps) >= 60),
)
def test_a_constant_rate_is_found_however_uneven_the_steps(rate: float, gaps: list[int]) -> None:
    elapsed = list(accumulate(gaps, initial=0))
    scale = 1_000_000  # whole tokens, so large that rounding them does not show
    samples = [
        Sample(START + s, scale * 20 * K + round(scale * rate * s / 60), n)
        for n, s in enumerate(elapsed)
    ]
    assert per_minute(samples) == pytest.approx(scale * rate, rel=1e-6)


@given(st.integers(1, 50 * K), st.integers(1, 80), st.integers(1, 6))
def test_a_constant_step_is_found_exactly(step: int, count: int, replies: int) -> None:
    found = of(session([step] * count * replies, replies=replies))
    assert found.tokens_per_reply == step
    assert found.tokens_per_turn == step * replies


@given(
    st.lists(st.integers(1, 5 * K), min_size=3, max_size=40), st.data(), st.integers(0, 2_000 * K)
)
def test_one_spike_moves_growth_no_more_than_the_largest_usual_step_would(
    steps: list[int], data: st.DataObject, spike: int
) -> None:
    index = data.draw(st.integers(0, len(steps) - 1))
    raised = [*steps]
    raised[index] += spike
    usual, largest = sum(steps) / len(steps), max(steps)
    assert per_turn(session(raised)) >= per_turn(session(steps))
    assert per_turn(session(raised)) <= usual + 2 * largest / (len(steps) - 1)


def test_one_huge_file_does_not_change_a_steady_growth() -> None:
    calm, spiked = [1_000] * 30, [1_000] * 15 + [80 * K] + [1_000] * 14
    for measure in (per_minute, per_turn, lambda s: of(s).tokens_per_reply):
        assert measure(session(spiked)) == pytest.approx(measure(session(calm)))


def test_a_spike_in_a_step_of_a_minute_counts_no_more_than_in_one_of_two_seconds() -> None:
    gaps = [2.0, 60.0] * 10
    times = list(accumulate(gaps, initial=START))
    for spiked in (8, 9):
        steps = [100 * K if n == spiked else 1_000 for n in range(20)]
        used = accumulate(steps, initial=20 * K)
        samples = [Sample(t, u, 1) for t, u in zip(times, used, strict=True)]
        assert per_minute(samples) == pytest.approx(2_000 / 62 * 60)


def test_what_most_tokens_come_from_is_not_taken_for_spikes() -> None:
    """Every fourth step reads a file: a median would see a tenth of the growth."""
    steps = [200, 200, 200, 9_000] * 10
    assert per_turn(session(steps)) == pytest.approx(2_400, rel=0.1)


@given(
    st.lists(st.integers(1, 3 * K), min_size=6, max_size=40),
    st.data(),
    st.floats(0.01, 0.8),
    st.integers(1, 4),
)
def test_a_compaction_anywhere_never_makes_growth_negative(
    steps: list[int], data: st.DataObject, kept: float, replies: int
) -> None:
    samples = session(steps, replies=replies)
    index = data.draw(st.integers(1, len(samples) - 1))
    lost = samples[index].used_tokens - round(samples[index - 1].used_tokens * kept)
    after = [
        msgspec.structs.replace(s, used_tokens=s.used_tokens - lost) if n >= index else s
        for n, s in enumerate(samples)
    ]
    found = of(after)
    assert found.compactions == 1
    for value in (found.tokens_per_minute, found.tokens_per_turn, found.tokens_per_reply):
        assert value is not None
        assert min(steps) <= value <= max(steps) * max(2, replies)
    assert all(cost > 0 for cost in task_costs(after))


def test_growth_continues_after_a_compaction_as_it_was() -> None:
    steps = [2_000] * 40
    steps[20] = -45 * K
    found = of(session(steps))
    assert (found.tokens_per_reply, found.tokens_per_turn) == (2_000, 2_000)
    assert found.tokens_per_minute == pytest.approx(4_000)
    assert found.compactions == 1


def test_a_session_that_only_shrinks_does_not_grow() -> None:
    found = of(session([-100] * 40, first=50 * K))
    assert (found.tokens_per_minute, found.tokens_per_turn, found.tokens_per_reply) == (0, 0, 0)
    assert found.compactions == 0


def test_tokens_left_out_and_filled_again_are_counted_once() -> None:
    """The thinking of a turn is gone in the next: net 1,000 a turn, not 3,000."""
    steps = [3_000, -2_000] * 20
    assert per_turn(session(steps, replies=2, first=50 * K)) == pytest.approx(1_000)


def test_many_small_drops_are_a_compaction_once_a_tenth_is_gone() -> None:
    steps = [-1_000] * 12 + [500] * 30
    found = of(session(steps, first=100 * K))
    assert found.compactions == 1
    assert found.tokens_per_reply == pytest.approx(28 * 500 / 41)


# Time


def test_an_hour_away_does_not_water_down_the_rate() -> None:
    samples = session([500] * 40, every_s=60)
    later = [msgspec.structs.replace(s, at=(s.at or 0) + 3_600 * (s.turn >= 20)) for s in samples]
    assert per_minute(later) == pytest.approx(500)
    assert of(later).active_s == pytest.approx(39 * 60)


def test_a_tool_of_twenty_minutes_is_work_and_a_pause_of_twenty_minutes_is_not() -> None:
    """Delegation, where the main thread waits for others, grows slowly."""
    waiting = session([1_000] * 10, every_s=1_200, replies=100)
    assert per_minute(waiting) == pytest.approx(50)
    pausing = [msgspec.structs.replace(s, turn=n // 2) for n, s in enumerate(waiting)]
    assert of(pausing).active_s == pytest.approx(5 * 1_200)


def test_who_always_comes_back_late_has_a_rate_nevertheless() -> None:
    samples = session([500] * 10, every_s=1_000)
    assert per_minute(samples) == pytest.approx(100)


def test_equal_time_stamps_lose_no_tokens() -> None:
    samples = [Sample(START + n // 4 * 60, 20 * K + n * 250, 1) for n in range(81)]
    assert per_minute(samples) == pytest.approx(1_000)


def test_a_clock_set_back_costs_one_step_only() -> None:
    samples = session([500] * 40, every_s=60)
    back = [msgspec.structs.replace(s, at=(s.at or 0) - 7_200 * (s.turn >= 20)) for s in samples]
    found = of(back)
    assert found.tokens_per_minute == pytest.approx(500)
    assert found.active_s == pytest.approx(39 * 60)
    assert found.tokens_per_turn == 500


def test_tokens_of_a_reply_without_a_time_go_with_the_next() -> None:
    samples = [
        msgspec.structs.replace(s, at=None if n % 3 else s.at)
        for n, s in enumerate(session([500] * 42, every_s=60))
    ]
    assert per_minute(samples) == pytest.approx(500)


@pytest.mark.parametrize("unit", [None, float("nan"), float("inf"), 1_000.0])
def test_without_times_in_seconds_the_rate_is_unknown_and_the_rest_is_not(
    unit: float | None,
) -> None:
    steady = session([500] * 9)
    found = of([msgspec.structs.replace(s, at=unit and (s.at or 0) * unit) for s in steady])
    assert found.tokens_per_minute is None
    assert (found.tokens_per_turn, found.tokens_per_reply) == (500, 500)


def test_a_clock_set_back_at_every_third_reply_does_not_hurry_the_rest() -> None:
    samples = [
        msgspec.structs.replace(s, at=START + n % 3 * 60 - n)
        for n, s in enumerate(session([500] * 90))
    ]
    assert per_minute(samples) == pytest.approx(500 / 59 * 60)


def test_limits_of_idleness_below_zero_make_no_negative_time() -> None:
    found = growth(session([500] * 9), idle_s=-5, stall_s=-5)
    assert found is not None
    assert (found.active_s, found.tokens_per_minute) == (0, None)


def test_long_stretches_weigh_more_than_short_ones() -> None:
    gaps = [300.0, 600.0] * 5
    times = list(accumulate(gaps, initial=START))
    samples = [Sample(t, 20 * K + n * 500, 1) for n, t in enumerate(times)]
    assert per_minute(samples) == pytest.approx(5_000 / 75)


def test_a_short_rest_at_the_end_does_not_let_a_spike_through() -> None:
    times = [*(START + 60 * n for n in range(11)), START + 602]
    steps = [1_000] * 4 + [100 * K] + [1_000] * 6
    samples = [
        Sample(t, u, 1) for t, u in zip(times, accumulate(steps, initial=20 * K), strict=True)
    ]
    assert per_minute(samples) < 1_200


@pytest.mark.parametrize("every_s", [30.1, 33.3, 44.4, 47.7, 59.9])
def test_equal_steps_make_equal_blocks_however_they_are_rounded(every_s: float) -> None:
    steps = [100 * n * n for n in range(1, 41)]
    exact = per_minute(session(steps, every_s=32))
    assert per_minute(session(steps, every_s=every_s)) == pytest.approx(exact * 32 / every_s)


def test_the_burst_at_the_start_makes_no_rate() -> None:
    assert of(session([9_000] * 5, every_s=3)).tokens_per_minute is None


@given(st.lists(st.integers(1, 9 * K), min_size=4, max_size=40), st.integers(-(10**9), 10**9))
def test_shifting_all_times_changes_nothing(steps: list[int], shift: int) -> None:
    samples = session(steps)
    moved = [msgspec.structs.replace(s, at=(s.at or 0) + shift) for s in samples]
    assert growth(moved) == growth(samples)


@given(st.lists(st.integers(1, 9 * K), min_size=4, max_size=40), st.floats(0.6, 9))
def test_scaling_all_times_scales_the_rate_only(steps: list[int], scale: float) -> None:
    one, other = session(steps), session(steps, every_s=30 * scale)
    assert per_minute(other) == pytest.approx(per_minute(one) / scale, rel=1e-6)
    assert (of(other).tokens_per_turn, of(other).tokens_per_reply) == (
        of(one).tokens_per_turn,
        of(one).tokens_per_reply,
    )


@given(st.lists(st.integers(1, 9 * K), min_size=4, max_size=40), st.integers(2, 50))
def test_scaling_all_sizes_scales_growth(steps: list[int], scale: int) -> None:
    one = of(session(steps))
    other = of(session([step * scale for step in steps], first=20 * K * scale))
    assert other.tokens_per_turn == pytest.approx((one.tokens_per_turn or 0) * scale)
    assert other.tokens_per_minute == pytest.approx((one.tokens_per_minute or 0) * scale)


# Duplicates, zeros, turns


@given(st.lists(st.integers(1, 9 * K), min_size=4, max_size=40), st.integers(2, 4))
def test_samples_written_twice_change_nothing(steps: list[int], times: int) -> None:
    samples = session(steps)
    assert growth([s for s in samples for _ in range(times)]) == growth(samples)
    assert growth(samples * times) == growth(samples)  # a history copied on resuming


def test_a_size_shown_again_and_again_is_not_activity() -> None:
    """A status line repeats the last size while the user is away."""
    samples = session([500] * 40, every_s=60)
    away = [Sample(START + 20 * 60 + n * 10, 30 * K, 19) for n in range(1, 360)]
    later = [msgspec.structs.replace(s, at=(s.at or 0) + 3_600) for s in samples[21:]]
    assert per_minute([*samples[:21], *away, *later]) == pytest.approx(500)


def test_the_zeros_of_a_synthetic_record_are_not_a_compaction() -> None:
    samples = session([500] * 20)
    zeros = [Sample(START + n * 30 + 1, 0, n) for n in range(20)]
    mixed = [s for pair in zip(samples, zeros, strict=False) for s in pair]
    found = of([*mixed, samples[-1]])
    assert found.compactions == 0
    assert found.tokens_per_reply == 500


def test_the_last_turn_is_not_a_reason_to_expect_less() -> None:
    steps = [2_000] * 12 + [100]
    assert per_turn(session(steps)) == 2_000


def test_turn_numbers_that_fall_or_jump_are_new_turns() -> None:
    turns = [1, 1, 2, 2, 7, 7, 1, 1]
    samples = [Sample(None, 20 * K + n * 500, turn) for n, turn in enumerate(turns)]
    assert task_costs(samples) == [500, 1_000, 1_000, 1_000]


def test_growth_follows_a_change_of_work() -> None:
    """500 tokens a minute by hand, 50 with delegation."""
    found = of(session([500] * 400 + [50] * 400, every_s=60))
    assert found.tokens_per_minute == pytest.approx(50)
    assert (found.tokens_per_turn, found.tokens_per_reply) == (50, 50)


def test_of_two_turns_the_mean_counts_and_of_three_the_largest_no_more_than_the_next() -> None:
    assert per_turn(session([500, 700])) == 600
    assert per_turn(session([700, 500])) == 600
    for steps in ([90 * K, 500, 600], [500, 90 * K, 600], [600, 500, 90 * K]):
        assert per_turn(session(steps)) == pytest.approx(1_700 / 3)


def test_of_a_hundred_thousand_samples_only_the_last_ones_are_looked_at() -> None:
    many = session([n % 700 + 1 for n in range(100_000)])
    assert growth(many) == growth(many[-10_000:])


# What tasks cost


def test_costs_are_per_turn_and_the_first_counts_from_its_first_reply() -> None:
    turns = [(1, 20_000), (1, 21_500), (2, 22_000), (2, 25_000), (3, 25_100), (4, 25_100)]
    samples = [Sample(None, used, turn) for turn, used in turns]
    assert task_costs(samples) == [1_500, 3_500, 100]


def test_a_first_turn_of_one_reply_has_no_known_cost() -> None:
    assert task_costs([Sample(None, 20 * K, 1), Sample(None, 21 * K, 2)]) == [1_000]
    assert task_costs([Sample(None, 20 * K, 1)]) == task_costs([]) == []


def test_a_turn_that_added_nothing_is_not_a_task() -> None:
    samples = [Sample(None, used, turn) for turn, used in enumerate([20_000, 19_500, 21_000])]
    assert task_costs(samples) == [1_000]


def test_a_task_with_a_compaction_costs_what_grew_before_and_after_it() -> None:
    sizes = [100 * K, 110 * K, 150 * K, 30 * K, 35 * K]
    assert task_costs([Sample(None, used, 1) for used in sizes]) == [55 * K]


def test_with_too_little_history_nothing_is_typical() -> None:
    assert typical_task([]) is None
    assert typical_task([1_000] * (MIN_TASKS - 1)) is None
    assert typical_task([0] * 50 + [-7] * 50) is None
    assert typical_task([1_000] * MIN_TASKS) == Typical(median_tokens=1_000, tasks=MIN_TASKS)


def test_the_median_of_one_to_a_hundred() -> None:
    found = typical_task(n * 100 for n in range(100, 0, -1))
    assert found == Typical(median_tokens=5_000, tasks=100)


@given(st.lists(st.integers(1, 10**6), min_size=MIN_TASKS, max_size=60))
def test_the_typical_cost_is_the_median(
    costs: list[int],
) -> None:
    found = typical_task(costs)
    assert found is not None
    assert found.median_tokens == median_low(costs)


# Any input

numbers = st.floats() | st.integers(-(2**70), 2**70).map(float) | st.sampled_from([1e308, -1e308])
integers = st.integers() | st.sampled_from([10**5000, -(10**5000), 2**63])
any_samples = st.lists(st.builds(Sample, st.none() | numbers, integers, integers), max_size=30)


@given(any_samples, numbers, numbers)
def test_no_samples_raise_and_growth_is_never_negative(
    samples: list[Sample], idle_s: float, stall_s: float
) -> None:
    for found in (growth(samples), growth(samples, idle_s=idle_s, stall_s=stall_s)):
        for rate in (found or Growth()).tokens_per_minute, (found or Growth()).tokens_per_turn:
            assert rate is None or 0 <= rate < float("inf")
    assert all(cost > 0 for cost in task_costs(samples))


@given(st.lists(integers, max_size=30))
def test_no_costs_raise(costs: list[int]) -> None:
    found = typical_task(costs)
    assert found is None or found.median_tokens > 0
