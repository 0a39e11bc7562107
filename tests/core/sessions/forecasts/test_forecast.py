"""When the handoff comes, and what still fits before it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.policy import PRESETS, Policy
from segue.core.sessions.forecasts.forecast import Ahead, Fit, fits, forecast, handoff_points
from segue.core.sessions.forecasts.growth import Growth, Sample, growth
from segue.core.sessions.reading import Reading, Zone

K = 1_000
ORDER = list(Zone)
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


def handoff(used: int, pace: Growth | None, policy: Policy | None = None) -> Ahead:
    return forecast(at(used), pace, policy or Policy()).handoff


# What lies ahead


def test_a_session_worked_by_hand_lasts_six_to_eight_hours() -> None:
    ahead = forecast(at(0), Growth(tokens_per_minute=500), Policy())
    assert ahead.full.seconds == pytest.approx(200 * K / 500 * 60)
    assert 6 <= (ahead.full.seconds or 0) / 3_600 <= 8
    assert ahead.handoff.seconds == pytest.approx(340 * 60)


def test_a_session_with_delegation_lasts_sixty_to_eighty_hours() -> None:
    ahead = forecast(at(0), Growth(tokens_per_minute=50), Policy())
    assert 60 <= (ahead.full.seconds or 0) / 3_600 <= 80


def test_from_150k_at_500_a_minute_the_handoff_is_forty_minutes_away() -> None:
    pace = Growth(tokens_per_minute=500, tokens_per_turn=4 * K, tokens_per_reply=800)
    found = forecast(at(150 * K), pace, Policy())
    assert found.zone is Zone.CRITICAL
    assert found.handoff == Ahead(
        at_tokens=170 * K, tokens=20 * K, seconds=2_400.0, turns=5.0, replies=25.0
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
    assert found.handoff == Ahead()
    assert found.zone is Zone.CRITICAL
    assert found.full.at_tokens == 167 * K


def test_a_soft_mark_without_handoffs_means_nothing() -> None:
    assert handoff_points(Policy(soft_mark=0.8, hard_mark=1.5), 200 * K) == (None, None)


def test_other_marks_above_one_are_never_ahead() -> None:
    policy = Policy(critical_mark=1.2, hard_mark=1.2)
    assert forecast(at(150 * K), None, policy).zones[Zone.CRITICAL] == Ahead()
    assert forecast(at(250 * K), None, policy).zone is Zone.CRITICAL


def test_an_enforced_limit_brings_the_handoff_before_it() -> None:
    """Claude's 167,000 less the reserve lies below 85% of 200,000."""
    found = forecast(at(0), None, Policy(), enforced_at_tokens=167 * K, reserve_tokens=10 * K)
    assert found.handoff.at_tokens == 157 * K
    assert handoff_points(Policy(), 200 * K, 167 * K) == (157 * K, 157 * K)
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
def test_a_zone_begins_at_exactly_the_stated_tokens(window: int, policy: Policy) -> None:
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
    soft, hard = handoff_points(policy, at(used).window_tokens, enforced)
    assert (soft is None) == (hard is None)
    assert soft is None or hard is None or soft <= hard


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
def test_a_zone_limits_the_size_of_new_tasks(used: int, task: int, because: str, room: int) -> None:
    found = fits(task, at(used), Policy(), reserve_tokens=10 * K)
    assert (found.because, found.room_tokens) == (because, room)
    assert found.ok is (because == "fits")


@pytest.mark.parametrize(
    ("used", "task", "why"),
    [
        (20_000, 9_000, "Fits: a task of up to 139,999 tokens may start, with "),
        (130_000, 9_000, "Needs 9,000 tokens; in the warning zone a task may need at most 4,999."),
        (20_000, 150_000, "Needs 150,000 tokens; 139,999 are left, with "),
        (180_000, 9_000, "The handoff is due: no new task should start in this session."),
    ],
)
def test_a_verdict_says_why_in_one_short_sentence(used: int, task: int, why: str) -> None:
    found = fits(task, at(used), Policy(), reserve_tokens=10 * K).why
    kept = "10,000 reserved for the checkpoint."
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


# Any input

numbers = st.floats() | st.integers(-(2**70), 2**70).map(float) | st.sampled_from([1e308, -1e308])
integers = st.integers() | st.sampled_from([10**5000, -(10**5000), 2**63])
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


@given(any_reading, any_growth, any_policy, st.none() | integers, integers)
def test_no_reading_raises_and_no_forecast_is_negative_or_no_number(
    reading: Reading, pace: Growth | None, policy: Policy, enforced: int | None, reserve: int
) -> None:
    found = forecast(reading, pace, policy, reserve_tokens=reserve, enforced_at_tokens=enforced)
    for ahead in (*found.zones.values(), found.full):
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


@pytest.mark.parametrize(
    ("used", "large", "enforced", "passes"),
    [
        (160 * K, 9_999, None, False),
        (160 * K, 10 * K, None, True),  # the results of this reply's tools, and one reply more
        (140 * K, 15 * K, 180 * K, True),
        (139_999, 15 * K, 180 * K, False),
        (180 * K, None, None, True),
        (179_999, None, None, False),
    ],
)
def test_the_next_reply_is_looked_at_before_the_agents_own_limit_is_near(
    used: int, large: int | None, enforced: int | None, passes: bool
) -> None:
    pace = Growth(large_reply_tokens=large)
    ahead = forecast(at(used), pace, Policy(), enforced_at_tokens=enforced)
    assert ahead.next_passes is passes
    assert ahead.last_tokens == (enforced or 200 * K) - 10 * K
    off = forecast(at(used), pace, Policy(hard_mark=2), enforced_at_tokens=enforced)
    assert (off.next_passes, off.last_tokens) == (False, None)


@pytest.mark.parametrize(
    ("reply_s", "used", "passes"),
    [
        (None, 139_999, False),
        (None, 140 * K, True),
        (20.0, 139 * K, True),  # a twentieth of a reply comes while it is interrupted
        (20.0, 138 * K, False),
        (0.5, 100 * K, True),  # two of them
        (0.5, 99 * K, False),
        (0.0, 100 * K, True),
        (0.0, 99 * K, False),
    ],
)
def test_what_comes_while_somebody_reacts_is_looked_ahead_for(
    reply_s: float | None, used: int, passes: bool
) -> None:
    pace = Growth(large_reply_tokens=20 * K, reply_s=reply_s)
    assert forecast(at(used), pace, Policy()).next_passes is passes


@pytest.mark.parametrize(
    ("reply_s", "reaction_s", "used", "passes"),
    [
        (2.0, 1.0, 120 * K, False),  # half a reply
        (2.0, 3.0, 120 * K, True),  # one and a half
        (0.5, 2.0, 60 * K, True),  # four
        (0.5, 2.0, 59 * K, False),
        (0.5, 90.0, 40 * K, True),  # never more than five
        (0.5, 90.0, 39 * K, False),
    ],
)
def test_whoever_reacts_late_looks_further_ahead(
    reply_s: float, reaction_s: float, used: int, passes: bool
) -> None:
    pace = Growth(large_reply_tokens=20 * K, reply_s=reply_s)
    assert forecast(at(used), pace, Policy(), reaction_s=reaction_s).next_passes is passes


@pytest.mark.parametrize(
    ("mark", "used", "passes"), [(0.92, 163_999, False), (0.92, 164 * K, True)]
)
def test_a_policy_whose_mark_is_later_is_asked_later(mark: float, used: int, passes: bool) -> None:
    late = Policy(soft_mark=mark, hard_mark=mark)
    assert forecast(at(used), Growth(large_reply_tokens=10 * K), late).next_passes is passes


def test_a_session_is_close_a_few_replies_before() -> None:
    pace = Growth(large_reply_tokens=10 * K)
    found = [forecast(at(used), pace, Policy()) for used in (129_999, 130 * K, 190 * K)]
    assert [each.is_close for each in found] == [False, True, True]
    assert not forecast(at(190 * K), pace, Policy(hard_mark=2)).is_close


@pytest.mark.parametrize(
    ("policy", "enforced", "first"),
    [
        (Policy(), None, 170 * K),  # a request after it would be read above 90%
        (Policy(soft_mark=0.95, hard_mark=0.95), None, 180 * K),  # as late as the user wants it
        (Policy(), 167 * K, 157 * K),  # the agent compacts there
    ],
)
def test_the_output_of_a_running_tool_may_make_the_request_late(
    policy: Policy, enforced: int | None, first: int
) -> None:
    pace = Growth(large_reply_tokens=10 * K)
    found = [
        forecast(at(used), pace, policy, enforced_at_tokens=enforced).result_passes
        for used in (first - 1, first)
    ]
    assert found == [False, True]
    assert not forecast(at(190 * K), pace, Policy(hard_mark=2)).result_passes


def test_one_spike_is_not_a_guide_and_many_are() -> None:
    def large(*rises: int) -> int | None:
        sizes = [10 * K + sum(rises[:n]) for n in range(len(rises) + 1)]
        found = growth([Sample(float(n), size, 0) for n, size in enumerate(sizes)])
        return found.large_reply_tokens if found else None

    assert large(1_000, 90_000, 1_000, 2_000) == 2_000
    assert large(*[1_000] * 18, 50_000, 50_000, 50_000) == 50_000
    assert large(7_000) == 7_000
