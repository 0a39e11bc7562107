"""How fast a session fills up, when the handoff comes, and what still fits before it."""

from itertools import accumulate
from statistics import median_low

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.forecast import (
    LEAST_TASKS,
    Ahead,
    Fit,
    Growth,
    Sample,
    Typical,
    fits,
    forecast,
    growth,
    task_costs,
    typical_task,
)
from segue.core.policy import PRESETS, Policy
from segue.core.reading import Reading, Zone

K = 1_000
ORDER = list(Zone)
START = 1_768_000_000.0
OFF = Policy(soft_mark=1.5, hard_mark=1.5)

policies = st.sampled_from([*PRESETS.values(), OFF])
sizes = st.integers(0, 300 * K)
windows = st.integers(1, 2_000_000)
limits = st.none() | st.integers(1, 300 * K)
rates = st.floats(0.01, 100_000)


@st.composite
def percents(draw: st.DrawFn) -> Policy:
    """Any marks in whole percents, which are no whole numbers to a float."""
    four = draw(st.lists(st.integers(1, 100), min_size=4, max_size=4))
    monitor, warning, critical, hard = (percent / 100 for percent in sorted(four))
    return Policy(
        monitor_mark=monitor, warning_mark=warning, critical_mark=critical, hard_mark=hard
    )


def at(used: int, window: int = 200 * K) -> Reading:
    return Reading(input_tokens=used, window_tokens=window)


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


def handoff(used: int, pace: Growth | None, policy: Policy | None = None) -> Ahead:
    return forecast(at(used), pace, policy or Policy()).handoff


# Growth


def test_growth_is_told_per_minute_turn_and_reply() -> None:
    found = of(session([500] * 40, every_s=60, replies=4))
    assert found == Growth(
        tokens_per_minute=500.0,
        tokens_per_turn=2_000.0,
        tokens_per_reply=500.0,
        replies=41,
        turns=11,  # the opening reply belongs to a turn that nothing is known of
        compactions=0,
        active_s=2_400.0,
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


def test_growth_goes_on_after_a_compaction_as_it_was() -> None:
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
    """Seed 004: delegation, where the main thread waits for others, is slow, and that is true."""
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


def test_a_size_shown_again_and_again_is_no_activity() -> None:
    """A status line repeats the last size while the user is away."""
    samples = session([500] * 40, every_s=60)
    away = [Sample(START + 20 * 60 + n * 10, 30 * K, 19) for n in range(1, 360)]
    later = [msgspec.structs.replace(s, at=(s.at or 0) + 3_600) for s in samples[21:]]
    assert per_minute([*samples[:21], *away, *later]) == pytest.approx(500)


def test_the_zeros_of_a_synthetic_record_are_no_compaction() -> None:
    samples = session([500] * 20)
    zeros = [Sample(START + n * 30 + 1, 0, n) for n in range(20)]
    mixed = [s for pair in zip(samples, zeros, strict=False) for s in pair]
    found = of([*mixed, samples[-1]])
    assert found.compactions == 0
    assert found.tokens_per_reply == 500


def test_the_last_turn_is_no_reason_to_expect_less() -> None:
    steps = [2_000] * 12 + [100]
    assert per_turn(session(steps)) == 2_000


def test_turn_numbers_that_fall_or_jump_are_new_turns() -> None:
    turns = [1, 1, 2, 2, 7, 7, 1, 1]
    samples = [Sample(None, 20 * K + n * 500, turn) for n, turn in enumerate(turns)]
    assert task_costs(samples) == [500, 1_000, 1_000, 1_000]


def test_growth_follows_a_change_of_work() -> None:
    """Seed 004: 500 a minute by hand, 50 with delegation."""
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


# What lies ahead


def test_seed_004_by_hand_lasts_six_to_eight_hours() -> None:
    ahead = forecast(at(0), Growth(tokens_per_minute=500), Policy())
    assert ahead.full.seconds == pytest.approx(200 * K / 500 * 60)
    assert 6 <= (ahead.full.seconds or 0) / 3_600 <= 8
    assert ahead.handoff.seconds == pytest.approx(340 * 60)


def test_seed_004_with_delegation_lasts_sixty_to_eighty_hours() -> None:
    ahead = forecast(at(0), Growth(tokens_per_minute=50), Policy())
    assert 60 <= (ahead.full.seconds or 0) / 3_600 <= 80


def test_from_150k_at_500_a_minute_the_handoff_is_forty_minutes_away() -> None:
    pace = Growth(tokens_per_minute=500, tokens_per_turn=4 * K, tokens_per_reply=800)
    found = forecast(at(150 * K), pace, Policy())
    assert found.zone is Zone.CRITICAL
    assert found.handoff == Ahead(
        at_tokens=170 * K, tokens=20 * K, seconds=2_400.0, turns=5.0, replies=25.0
    )
    assert found.soft == Ahead(
        at_tokens=160 * K, tokens=10 * K, seconds=1_200.0, turns=2.5, replies=12.5
    )


def test_zones_already_passed_are_zero_away_even_without_growth() -> None:
    found = forecast(at(150 * K), None, Policy())
    for zone in ORDER[:4]:
        ahead = found.zones[zone]
        assert (ahead.tokens, ahead.seconds, ahead.turns, ahead.replies) == (0, 0, 0, 0)
    assert (found.handoff.tokens, found.handoff.seconds, found.handoff.turns) == (
        20 * K,
        None,
        None,
    )


def test_170k_of_200k_is_the_handoff_at_any_pace() -> None:
    for pace in (None, Growth(tokens_per_minute=500)):
        assert handoff(170 * K, pace).seconds == 0
        assert forecast(at(170 * K), pace, Policy()).zone is Zone.HANDOFF
    assert handoff(169_999, Growth(tokens_per_minute=500)).seconds == pytest.approx(0.12)


@pytest.mark.parametrize("rate", [0.0, -5.0, 1e-300, float("nan"), float("inf"), None])
def test_what_does_not_grow_never_arrives(rate: float | None) -> None:
    pace = Growth(tokens_per_minute=rate, tokens_per_turn=rate, tokens_per_reply=rate)
    found = handoff(100 * K, pace)
    assert (found.tokens, found.seconds, found.turns, found.replies) == (70 * K, None, None, None)


def test_a_hard_mark_above_one_has_no_handoff_ahead() -> None:
    found = forecast(at(199 * K), Growth(tokens_per_minute=500), OFF, enforced_at_tokens=167 * K)
    assert found.handoff == found.soft == Ahead()
    assert found.zone is Zone.CRITICAL
    assert found.full.at_tokens == 167 * K


def test_a_soft_mark_without_handoffs_means_nothing() -> None:
    assert forecast(at(0), None, Policy(soft_mark=0.8, hard_mark=1.5)).soft == Ahead()


def test_other_marks_above_one_are_never_ahead() -> None:
    policy = Policy(critical_mark=1.2, hard_mark=1.2)
    assert forecast(at(150 * K), None, policy).zones[Zone.CRITICAL] == Ahead()
    assert forecast(at(250 * K), None, policy).zone is Zone.CRITICAL


def test_an_enforced_limit_brings_the_handoff_before_it() -> None:
    """Claude's 167,000 less the reserve lies below 85 % of 200,000."""
    found = forecast(at(0), None, Policy(), enforced_at_tokens=167 * K, reserve_tokens=10 * K)
    assert found.handoff.at_tokens == found.soft.at_tokens == 157 * K
    assert found.zones[Zone.CRITICAL].at_tokens == 140 * K
    assert found.full.at_tokens == 167 * K


def test_an_enforced_limit_above_the_marks_changes_nothing() -> None:
    found = forecast(at(0), None, Policy(), enforced_at_tokens=190 * K)
    assert found.handoff.at_tokens == 170 * K


def test_no_zone_begins_after_an_enforced_handoff() -> None:
    found = forecast(at(70 * K), None, Policy(), enforced_at_tokens=80 * K)
    points = [found.zones[zone].at_tokens for zone in ORDER]
    assert points == [0, 60 * K, 70 * K, 70 * K, 70 * K]
    assert found.zone is Zone.HANDOFF


def test_a_reserve_larger_than_the_limit_leaves_half_of_it_for_work() -> None:
    found = forecast(at(0, 8_192), None, Policy(), enforced_at_tokens=7_000)
    assert found.handoff.at_tokens == 3_500
    assert found.zone is Zone.NORMAL


def test_a_window_of_nothing_has_nothing_ahead_but_the_enforced_limit() -> None:
    assert forecast(at(5, 0), None, Policy()).handoff == Ahead()
    assert forecast(at(5, 0), None, Policy(), enforced_at_tokens=50 * K).handoff.tokens == 39_995


@given(sizes, windows, policies | percents())
def test_the_forecasts_zone_is_the_readings(used: int, window: int, policy: Policy) -> None:
    assert forecast(at(used, window), None, policy).zone is at(used, window).zone(policy)


@given(windows, policies | percents())
def test_a_zone_begins_at_exactly_the_tokens_told(window: int, policy: Policy) -> None:
    for zone, ahead in forecast(at(0, window), None, policy).zones.items():
        if ahead.at_tokens:
            assert ORDER.index(at(ahead.at_tokens, window).zone(policy)) >= ORDER.index(zone)
            assert ORDER.index(at(ahead.at_tokens - 1, window).zone(policy)) < ORDER.index(zone)


def test_seven_of_a_hundred_is_seven_percent_whatever_the_floating_point_makes_of_it() -> None:
    assert forecast(at(7, 100), None, Policy(monitor_mark=0.07)).zone is Zone.MONITOR


@given(sizes, sizes, policies, limits, rates)
def test_time_to_a_zone_falls_as_the_window_fills(
    used: int, more: int, policy: Policy, enforced: int | None, rate: float
) -> None:
    pace = Growth(tokens_per_minute=rate, tokens_per_turn=rate)
    before = forecast(at(used), pace, policy, enforced_at_tokens=enforced)
    after = forecast(at(used + more), pace, policy, enforced_at_tokens=enforced)
    assert ORDER.index(after.zone) >= ORDER.index(before.zone)
    for zone in ORDER:
        one, other = before.zones[zone], after.zones[zone]
        if one.seconds is None or other.seconds is None:
            assert one.seconds is other.seconds is None
        else:
            assert other.seconds < one.seconds or more == 0 or other.seconds == 0
            assert other.seconds <= one.seconds


@given(sizes, policies, limits, rates)
def test_zones_come_in_order_and_the_soft_mark_before_the_hard(
    used: int, policy: Policy, enforced: int | None, rate: float
) -> None:
    found = forecast(at(used), Growth(tokens_per_minute=rate), policy, enforced_at_tokens=enforced)
    points = [p for zone in ORDER if (p := found.zones[zone].at_tokens) is not None]
    assert points == sorted(points)
    if found.handoff.at_tokens is not None:
        assert found.soft.at_tokens is not None
        assert found.soft.at_tokens <= found.handoff.at_tokens


# What fits


@pytest.mark.parametrize(
    ("used", "task", "because", "room"),
    [
        (0, 159_999, "fits", 159_999),  # with 10,000 kept it ends one below 170,000
        (0, 160_000, "no_room", 159_999),
        (50 * K, 100 * K, "fits", 109_999),
        (99_999, 60 * K, "fits", 60 * K),
        (100 * K, 4_999, "fits", 4_999),
        (100 * K, 5_000, "task_too_large_for_zone", 4_999),
        (140 * K, 1_999, "fits", 1_999),
        (140 * K, 2_000, "task_too_large_for_zone", 1_999),
        (158_500, 1_500, "no_room", 1_499),
        (158_500, 1_499, "fits", 1_499),
        (165 * K, 1, "no_room", 0),
        (165 * K, 0, "no_room", 0),  # whatever it is, it costs something
        (170 * K, 1, "handoff", 0),
        (170 * K, 0, "handoff", 0),
        (170 * K, -5, "handoff", 0),
        (400 * K, 1, "handoff", 0),
    ],
)
def test_the_gates_of_seed_004(used: int, task: int, because: str, room: int) -> None:
    found = fits(task, at(used), Policy(), reserve_tokens=10 * K)
    assert (found.because, found.room_tokens) == (because, room)
    assert found.ok is (because == "fits")


@pytest.mark.parametrize(
    ("used", "task", "why"),
    [
        (20_000, 9_000, "Fits: a task of up to 139,999 tokens may be started, "),
        (130_000, 9_000, "Needs 9,000 tokens; in the warning zone no task above 4,999 is started."),
        (20_000, 150_000, "Needs 150,000 tokens; 139,999 are left, "),
        (180_000, 9_000, "The handoff is due: no new task is started in this session."),
    ],
)
def test_a_verdict_says_why_in_one_short_sentence(used: int, task: int, why: str) -> None:
    found = fits(task, at(used), Policy(), reserve_tokens=10 * K).why
    kept = "10,000 kept for the checkpoint."
    assert found == (why if why.endswith(".") else why + kept)
    assert len(found) < 100


def test_an_enforced_limit_leaves_less_room() -> None:
    assert fits(1, at(20 * K), Policy(), enforced_at_tokens=167 * K).room_tokens == 136_999
    assert fits(1, at(157 * K), Policy(), enforced_at_tokens=167 * K).because == "handoff"


def test_with_handoffs_off_the_windows_end_is_the_limit() -> None:
    assert fits(1, at(50 * K), OFF, reserve_tokens=10 * K).room_tokens == 139_999
    assert fits(1_500, at(180 * K), OFF, reserve_tokens=10 * K).ok
    assert fits(1_500, at(189 * K), OFF, reserve_tokens=10 * K).because == "no_room"


def test_an_unknown_window_is_no_yes() -> None:
    found = fits(1, at(5, 0), Policy())
    assert (found.ok, found.because, found.room_tokens) == (False, "unknown_window", 0)
    assert fits(1, at(5, 0), Policy(), enforced_at_tokens=50 * K).ok


def test_a_later_zone_never_allows_more() -> None:
    policy = Policy(warning_task_tokens=3_000, critical_task_tokens=8_000)
    assert fits(1, at(120 * K), policy).room_tokens == 2_999
    assert fits(1, at(145 * K), policy).room_tokens == 2_999


reserves = st.integers(0, 50 * K)
odd_sizes = st.builds(
    Policy, warning_task_tokens=st.integers(-5, 9 * K), critical_task_tokens=st.integers(-5, 9 * K)
)


@given(sizes, sizes, sizes, policies | odd_sizes, reserves, limits)
def test_a_smaller_task_and_an_emptier_window_fit_no_less(
    task: int, used: int, less: int, policy: Policy, reserve: int, enforced: int | None
) -> None:
    def fit(n: int, u: int) -> Fit:
        return fits(n, at(u), policy, reserve_tokens=reserve, enforced_at_tokens=enforced)

    if fit(task, used).ok:
        assert fit(max(0, task - less), used).ok
        assert fit(task, max(0, used - less)).ok
    assert fit(task, max(0, used - less)).room_tokens >= fit(task, used).room_tokens


@given(sizes, sizes, policies | odd_sizes, reserves, limits)
def test_ok_is_exactly_what_the_room_holds_and_never_ends_in_the_handoff(
    task: int, used: int, policy: Policy, reserve: int, enforced: int | None
) -> None:
    found = fits(task, at(used), policy, reserve_tokens=reserve, enforced_at_tokens=enforced)
    assert found.ok is (max(1, task) <= found.room_tokens) is (found.because == "fits")
    if found.ok:
        after = at(used + task)
        ahead = forecast(after, None, policy, reserve_tokens=reserve, enforced_at_tokens=enforced)
        assert ahead.zone is not Zone.HANDOFF
        assert used + task + reserve < (enforced or 200 * K)


# What tasks cost


def test_costs_are_per_turn_and_the_first_counts_from_its_first_reply() -> None:
    turns = [(1, 20_000), (1, 21_500), (2, 22_000), (2, 25_000), (3, 25_100), (4, 25_100)]
    samples = [Sample(None, used, turn) for turn, used in turns]
    assert task_costs(samples) == [1_500, 3_500, 100]


def test_a_first_turn_of_one_reply_has_no_known_cost() -> None:
    assert task_costs([Sample(None, 20 * K, 1), Sample(None, 21 * K, 2)]) == [1_000]
    assert task_costs([Sample(None, 20 * K, 1)]) == task_costs([]) == []


def test_a_turn_that_added_nothing_is_no_task() -> None:
    samples = [Sample(None, used, turn) for turn, used in enumerate([20_000, 19_500, 21_000])]
    assert task_costs(samples) == [1_000]


def test_a_task_with_a_compaction_costs_what_grew_before_and_after_it() -> None:
    sizes = [100 * K, 110 * K, 150 * K, 30 * K, 35 * K]
    assert task_costs([Sample(None, used, 1) for used in sizes]) == [55 * K]


def test_with_too_little_history_nothing_is_typical() -> None:
    assert typical_task([]) is None
    assert typical_task([1_000] * (LEAST_TASKS - 1)) is None
    assert typical_task([0] * 50 + [-7] * 50) is None
    assert typical_task([1_000] * LEAST_TASKS) == Typical(
        median_tokens=1_000, p90_tokens=1_000, tasks=LEAST_TASKS
    )


def test_median_and_p90_of_one_to_a_hundred() -> None:
    found = typical_task(n * 100 for n in range(100, 0, -1))
    assert found == Typical(median_tokens=5_000, p90_tokens=9_000, tasks=100)


@given(st.lists(st.integers(1, 10**6), min_size=LEAST_TASKS, max_size=60))
def test_nine_of_ten_tasks_cost_no_more_than_p90_and_the_median_is_the_median(
    costs: list[int],
) -> None:
    found = typical_task(costs)
    assert found is not None
    assert found.median_tokens == median_low(costs)
    below = sum(cost <= found.p90_tokens for cost in costs)
    assert below * 10 >= len(costs) * 9
    assert sum(cost < found.p90_tokens for cost in costs) * 10 < len(costs) * 9


# Any input

numbers = st.floats() | st.integers(-(2**70), 2**70).map(float) | st.sampled_from([1e308, -1e308])
integers = st.integers() | st.sampled_from([10**5000, -(10**5000), 2**63])
any_samples = st.lists(st.builds(Sample, st.none() | numbers, integers, integers), max_size=30)
any_growth = st.none() | st.builds(
    Growth,
    tokens_per_minute=st.none() | numbers,
    tokens_per_turn=st.none() | numbers,
    tokens_per_reply=st.none() | numbers,
)
any_reading = st.builds(
    Reading, input_tokens=integers, output_tokens=integers, window_tokens=integers
)
any_policy = policies | st.builds(
    Policy,
    critical_mark=st.sampled_from([1.0, 1e300, float("inf")]),
    hard_mark=st.just(float("inf")),
    soft_mark=st.sampled_from([1e-300, float("inf")]),
    warning_task_tokens=integers,
)


@given(any_samples, numbers, numbers)
def test_no_samples_raise_and_growth_is_never_negative(
    samples: list[Sample], idle_s: float, stall_s: float
) -> None:
    for found in (growth(samples), growth(samples, idle_s=idle_s, stall_s=stall_s)):
        for rate in (found or Growth()).tokens_per_minute, (found or Growth()).tokens_per_turn:
            assert rate is None or 0 <= rate < float("inf")
    assert all(cost > 0 for cost in task_costs(samples))


@given(any_reading, any_growth, any_policy, st.none() | integers, integers)
def test_no_reading_raises_and_no_forecast_is_negative_or_no_number(
    reading: Reading, pace: Growth | None, policy: Policy, enforced: int | None, reserve: int
) -> None:
    found = forecast(reading, pace, policy, reserve_tokens=reserve, enforced_at_tokens=enforced)
    for ahead in (*found.zones.values(), found.soft, found.full):
        for value in (ahead.tokens, ahead.seconds, ahead.turns, ahead.replies):
            assert value is None or 0 <= value < float("inf")
    msgspec.json.encode(found)


@given(integers, any_reading, any_policy, st.none() | integers, integers)
def test_no_task_raises(
    task: int, reading: Reading, policy: Policy, enforced: int | None, reserve: int
) -> None:
    found = fits(task, reading, policy, reserve_tokens=reserve, enforced_at_tokens=enforced)
    assert found.room_tokens >= 0
    assert found.why


@given(st.lists(integers, max_size=30))
def test_no_costs_raise(costs: list[int]) -> None:
    found = typical_task(costs)
    assert found is None or 0 < found.median_tokens <= found.p90_tokens
