"""When a session's zone changes, what is reported, and how often."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.policy import PRESETS, Policy
from segue.core.sessions.forecasts.forecast import forecast
from segue.core.sessions.reading import Reading, Zone
from segue.core.sessions.zones import (
    Crossing,
    Health,
    Noted,
    Reminder,
    ZoneMemory,
    observe,
    triggered,
)

ORDER = list(Zone)
PLACE = {zone: place for place, zone in enumerate(ORDER)}
WINDOW = 200_000


class Watched:
    """A session that is read again and again, with a clock of its own."""

    def __init__(self, policy: Policy | None = None, enforced_at_tokens: int | None = None) -> None:
        self.policy, self.enforced = policy or Policy(), enforced_at_tokens
        self.memory, self.at = ZoneMemory(), 0.0
        self.told: list[Noted] = []

    def read(self, used: int, *, after_s: float = 1.0, window: int = WINDOW) -> list[Noted]:
        self.at += after_s
        reading = Reading(input_tokens=used, window_tokens=window)
        ahead = forecast(reading, None, self.policy, enforced_at_tokens=self.enforced)
        self.memory, told = observe(
            self.memory, reading, ahead.zone, self.policy,
            project="/p", at=self.at, forecast=ahead,
        )  # fmt: skip
        self.told += told
        return told

    def percents(self, *percents: float) -> list[Noted]:
        return [noted for p in percents for noted in self.read(round(p * WINDOW / 100))]


def crossings(told: list[Noted]) -> list[str]:
    return [f"{c.was}>{c.zone}" for c in told if isinstance(c, Crossing)]


def checks(told: list[Noted]) -> list[tuple[str, str]]:
    return [(h.check_type, h.status) for h in told if isinstance(h, Health)]


def reminders(told: list[Noted]) -> list[Reminder]:
    return [r for r in told if isinstance(r, Reminder)]


# The ADR's test scenarios


def test_gradual_growth_crosses_each_zone_once_and_in_order() -> None:
    told = Watched().percents(*range(5, 100))
    assert crossings(told) == [
        "normal>monitor", "monitor>warning", "warning>critical", "critical>handoff",
    ]  # fmt: skip
    assert [c.used_tokens for c in told if isinstance(c, Crossing)] == [
        60_000, 100_000, 140_000, 170_000,
    ]  # fmt: skip


def test_a_rapid_spike_crosses_every_zone_that_it_passed() -> None:
    session = Watched()
    session.percents(20)
    told = session.percents(90)
    assert crossings(told) == [
        "normal>monitor", "monitor>warning", "warning>critical", "critical>handoff",
    ]  # fmt: skip
    assert {c.at for c in told if isinstance(c, Crossing)} == {session.at}


def test_a_handoff_is_due_at_exactly_85_percent() -> None:
    session = Watched()
    session.read(169_999)
    assert session.memory.zone is Zone.CRITICAL
    assert crossings(session.read(170_000)) == ["critical>handoff"]


def test_health_checks_have_the_adrs_fields() -> None:
    told = Watched().percents(20, 31.6, 50, 75, 85)
    assert checks(told) == [
        ("context", "ok"), ("context", "warning"), ("context", "critical"), ("handoff", "critical"),
    ]  # fmt: skip
    first, *_, last = [h for h in told if isinstance(h, Health)]
    assert first == Health(
        "/p", "context", "ok",
        {"context_usage": 0.316, "zone": "monitor", "used_tokens": 63_200, "window_tokens": WINDOW},
        at=2.0,
    )  # fmt: skip
    assert last.details["handoff_triggered"] is False
    assert triggered(last).details == last.details | {"handoff_triggered": True}


# Hysteresis


def test_a_size_that_trembles_around_a_mark_is_reported_once() -> None:
    session = Watched()
    told = session.percents(49, 50, 49.5, 50.1, 48.1, 50, 49, 51)
    assert crossings(told) == ["None>monitor", "monitor>warning"]
    assert session.memory.zone is Zone.WARNING


def test_a_zone_is_left_only_below_its_mark_by_the_slack() -> None:
    session = Watched()
    session.percents(50, 48)
    assert session.memory.zone is Zone.WARNING
    assert crossings(session.percents(47.9)) == ["warning>monitor"]
    assert crossings(session.percents(49.9)) == []
    assert crossings(session.percents(50)) == ["monitor>warning"]


def test_each_zone_has_its_own_slack_on_the_way_down() -> None:
    session = Watched(Policy(zone_slack=0.1))
    session.percents(71)
    assert session.memory.zone is Zone.CRITICAL
    assert crossings(session.percents(65)) == []
    session = Watched(Policy(critical_mark=0.52))
    session.percents(53)
    told = session.percents(49)  # critical is left, warning is held
    assert crossings(told) == ["critical>warning"]


def test_a_compaction_leaves_all_zones_at_once_whatever_the_slack() -> None:
    session = Watched(Policy(zone_slack=0.9))
    session.percents(84)
    assert crossings(session.percents(20)) == ["critical>normal"]
    assert session.memory.peak == pytest.approx(0.2)
    assert checks(session.told)[-1] == ("context", "ok")
    assert crossings(session.percents(31)) == ["normal>monitor"]


def test_a_window_that_was_believed_too_small_is_not_a_reason_to_stay() -> None:
    session = Watched()
    session.read(190_000)
    assert crossings(session.read(191_000, window=1_000_000)) == ["handoff>normal"]


def test_an_agents_own_limit_lowers_the_mark_and_the_slack_with_it() -> None:
    session = Watched(enforced_at_tokens=130_000)  # the handoff begins at 120,000: 60%
    assert crossings(session.percents(60))[-1] == "critical>handoff"
    assert crossings(session.percents(59, 60, 58.1, 60)) == []
    assert crossings(session.percents(57.9)) == ["handoff>warning"]


def test_what_was_passed_before_the_first_reading_was_passed_from_nowhere() -> None:
    assert crossings(Watched().percents(55)) == ["None>monitor", "monitor>warning"]
    assert Watched().percents(10) == []


def test_a_window_of_unknown_size_tells_nothing_and_forgets_nothing() -> None:
    session = Watched()
    session.percents(55)
    before = session.memory
    assert session.read(5, window=0) == []
    assert session.memory == before


# Reminders, by a clock of the test's own


def test_critical_is_reminded_of_on_entering_and_every_ten_minutes() -> None:
    session = Watched()
    session.percents(69)
    told = session.read(150_000)
    assert [(r.zone, r.number, r.fraction) for r in reminders(told)] == [(Zone.CRITICAL, 1, 0.75)]
    assert reminders([n for _ in range(599) for n in session.read(150_000)]) == []
    (second, check) = session.read(150_000)
    assert isinstance(second, Reminder)
    assert second.number == 2
    assert isinstance(check, Health)
    assert check.status == "critical"
    assert len(reminders([n for _ in range(3600) for n in session.read(151_000)])) == 6


def test_reminders_follow_the_policy_and_end_with_the_zone() -> None:
    session = Watched(Policy(remind_every_s=5.0))
    session.read(150_000)
    assert len(reminders([n for _ in range(20) for n in session.read(150_000)])) == 4
    session.read(110_000)
    assert reminders([n for _ in range(20) for n in session.read(110_000)]) == []
    assert [r.number for r in reminders(session.read(150_000))] == [1]


def test_a_handoff_that_is_left_to_the_user_is_reminded_of_and_one_of_segues_is_not() -> None:
    by_hand, by_segue = Watched(), Watched(Policy(auto_handoff=True))
    assert [r.zone for r in reminders(by_hand.percents(75, 86))] == [Zone.CRITICAL, Zone.HANDOFF]
    assert [r.zone for r in reminders(by_segue.percents(75, 86))] == [Zone.CRITICAL]
    assert len(reminders(by_hand.read(172_000, after_s=600))) == 1
    assert reminders(by_segue.read(172_000, after_s=6000)) == []


def test_a_clock_that_is_set_back_does_not_silence_the_reminders() -> None:
    session = Watched()
    session.read(150_000, after_s=90_000)
    assert reminders(session.read(150_000, after_s=-86_400)) == []
    assert len(reminders(session.read(150_000, after_s=600))) == 1


# Whatever is read

sizes = st.lists(st.integers(0, 260_000), max_size=40)
policies = st.builds(
    lambda marks, slack, auto: Policy(
        monitor_mark=marks[0], warning_mark=marks[1], critical_mark=marks[2],
        hard_mark=marks[3], zone_slack=slack, auto_handoff=auto,
    ),
    st.lists(st.floats(0.01, 1.2), min_size=4, max_size=4).map(sorted),
    st.sampled_from([0.0, 0.02, 0.3]),
    st.booleans(),
) | st.sampled_from(list(PRESETS.values()))  # fmt: skip


@given(policies, sizes, st.none() | st.integers(1, 260_000))
def test_any_readings_give_crossings_that_follow_on_each_other(
    policy: Policy, used: list[int], enforced: int | None
) -> None:
    """Each begins where the last one ended, going up by one zone, and the last is where it is."""
    session = Watched(policy, enforced)
    zone: Zone | None = None
    for size in used:
        for crossing in session.read(size):
            if isinstance(crossing, Crossing):
                assert crossing.was is zone or (zone is None and crossing.was is Zone.NORMAL)
                place = PLACE[crossing.was or Zone.NORMAL]
                assert PLACE[crossing.zone] == place + 1 or PLACE[crossing.zone] < place
                zone = crossing.zone
        assert session.memory.zone is (zone or Zone.NORMAL)


@given(policies, sizes, st.none() | st.integers(1, 260_000))
def test_the_same_reading_again_tells_nothing_new(
    policy: Policy, used: list[int], enforced: int | None
) -> None:
    session = Watched(policy, enforced)
    for size in used:
        session.read(size, after_s=0.001)
        assert session.read(size, after_s=0.001) == []


@given(policies, sizes)
def test_a_zone_is_never_below_the_readings_and_above_it_only_within_the_slack(
    policy: Policy, used: list[int]
) -> None:
    session = Watched(policy)
    for size in used:
        session.read(size)
        fraction, zone = size / WINDOW, session.memory.zone
        assert zone is not None
        assert PLACE[zone] >= PLACE[Zone.of(fraction, policy)]
        if PLACE[zone] > PLACE[Zone.of(fraction, policy)]:
            assert fraction >= policy.marks[PLACE[zone] - 1] - policy.zone_slack - 1e-9


@given(st.lists(st.integers(0, 200_000), max_size=40).map(sorted))
def test_a_context_that_only_grows_crosses_each_zone_at_most_once(used: list[int]) -> None:
    session = Watched()
    for size in used:
        session.read(size)
    entered = [c.zone for c in session.told if isinstance(c, Crossing)]
    assert entered == ORDER[1 : len(entered) + 1]
    checked: list[Any] = [h for h in session.told if isinstance(h, Health)]
    assert [h.details["zone"] for h in checked] == entered
