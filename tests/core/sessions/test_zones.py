"""How full the window is, which zone that is, and how large the window is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue import Policy, Reading, Zone
from segue.core.policy import PRESETS
from segue.core.sessions.windows import DEFAULT_WINDOW_TOKENS, KNOWN_WINDOWS, window_tokens

ORDER = list(Zone)
EPSILON = 1e-9
policies = st.sampled_from(list(PRESETS.values()))
counts = st.integers(0, 2_000_000)


# Readings


def test_used_tokens_are_all_four_parts() -> None:
    reading = Reading(
        input_tokens=1, cache_write_tokens=20, cache_read_tokens=300, output_tokens=4_000
    )
    assert reading.used_tokens == 4_321


def test_fraction_and_percent_are_of_the_window() -> None:
    reading = Reading(cache_read_tokens=63_153, window_tokens=200_000)
    assert reading.fraction == 0.315765
    assert reading.percent == 31.6


def test_window_is_200_000_unless_said() -> None:
    assert Reading(input_tokens=100_000).fraction == 0.5


def test_fraction_exceeds_one_when_the_believed_window_is_too_small() -> None:
    assert Reading(input_tokens=300_000, window_tokens=200_000).fraction == 1.5


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_of_zero_does_not_divide_by_zero(window: int) -> None:
    reading = Reading(input_tokens=5, window_tokens=window)
    assert reading.fraction == 0.0
    assert reading.zone(Policy()) is Zone.NORMAL


@given(counts, counts, counts, counts)
def test_moving_tokens_between_the_parts_changes_nothing(a: int, b: int, c: int, d: int) -> None:
    parts = Reading(input_tokens=a, cache_write_tokens=b, cache_read_tokens=c, output_tokens=d)
    lump = Reading(input_tokens=a + b + c + d)
    assert parts.used_tokens == lump.used_tokens
    assert parts.fraction == lump.fraction


# Zones

MARKS = {
    "graduated": (0.30, 0.50, 0.70, 0.85),
    "continuous": (0.30, 0.50, 0.70, 0.90),
    "early": (0.30, 0.50, 0.60, 0.70),
}


def test_there_are_three_presets_and_graduated_is_the_default() -> None:
    assert PRESETS.keys() == MARKS.keys()
    assert PRESETS["graduated"] == Policy()
    assert all(policy.name == name for name, policy in PRESETS.items())


@pytest.mark.parametrize("name", MARKS)
def test_every_mark_is_inclusive(name: str) -> None:
    policy = PRESETS[name]
    for below, zone, mark in zip(ORDER, ORDER[1:], MARKS[name], strict=False):
        assert Zone.of(mark, policy) is zone
        assert Zone.of(mark - EPSILON, policy) is below


@pytest.mark.parametrize("name", MARKS)
def test_empty_is_normal_and_full_is_handoff(name: str) -> None:
    assert Zone.of(0.0, PRESETS[name]) is Zone.NORMAL
    assert Zone.of(1.0, PRESETS[name]) is Zone.HANDOFF
    assert Zone.of(7.0, PRESETS[name]) is Zone.HANDOFF


@pytest.mark.parametrize("name", MARKS)
def test_marks_of_whole_tokens_are_hit_exactly(name: str) -> None:
    """170,000 of 200,000 is 85%, whatever the floating point makes of it."""
    for zone, mark in zip(ORDER[1:], MARKS[name], strict=True):
        for window in (200_000, 128_000, 1_000_000, 272_000):
            used = round(mark * window)
            assert Reading(input_tokens=used, window_tokens=window).zone(PRESETS[name]) is zone
            short = Reading(input_tokens=used - 1, window_tokens=window)
            assert short.zone(PRESETS[name]) is not zone


@pytest.mark.parametrize("name", MARKS)
def test_the_soft_mark_never_lies_above_the_hard_one(name: str) -> None:
    assert PRESETS[name].soft_mark <= PRESETS[name].hard_mark


def test_soft_and_hard_marks_are_the_designs() -> None:
    found = {name: (policy.soft_mark, policy.hard_mark) for name, policy in PRESETS.items()}
    assert found == {"graduated": (0.80, 0.85), "continuous": (0.90, 0.90), "early": (0.65, 0.70)}


def test_the_default_task_sizes_of_each_zone() -> None:
    assert (Policy().warning_task_tokens, Policy().critical_task_tokens) == (5_000, 2_000)


def test_zones_have_the_seeds_names_in_order() -> None:
    assert [str(zone) for zone in Zone] == ["normal", "monitor", "warning", "critical", "handoff"]


@given(policies, counts, counts, st.integers(1, 2_000_000))
def test_zone_never_decreases_with_usage(policy: Policy, used: int, more: int, window: int) -> None:
    before = Reading(input_tokens=used, window_tokens=window).zone(policy)
    after = Reading(input_tokens=used + more, window_tokens=window).zone(policy)
    assert ORDER.index(after) >= ORDER.index(before)


@given(st.tuples(*[st.floats(0.01, 2)] * 4), st.floats(0, 3), st.floats(0, 3))
def test_zone_never_decreases_under_any_marks(
    marks: tuple[float, float, float, float], one: float, other: float
) -> None:
    monitor, warning, critical, hard = sorted(marks)
    policy = Policy(
        monitor_mark=monitor, warning_mark=warning, critical_mark=critical, hard_mark=hard
    )
    low, high = sorted((one, other))
    assert ORDER.index(Zone.of(low, policy)) <= ORDER.index(Zone.of(high, policy))


def test_a_hard_mark_above_one_switches_handoffs_off() -> None:
    policy = Policy(soft_mark=1.5, hard_mark=1.5)
    assert Zone.of(1.0, policy) is Zone.CRITICAL
    assert Zone.of(1.6, policy) is Zone.CRITICAL


# Windows


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-4-turbo-2024-04-09", 128_000),
        ("gpt-4-turbo", 128_000),
        ("gpt-4", 8_192),
        ("gpt-4-0613", 8_192),
        ("gpt-4o-mini", 128_000),
        ("gpt-4.1-nano", 1_047_576),
        ("claude-sonnet-4-5-20250929", 200_000),
        ("claude-sonnet-4-6", 1_000_000),
    ],
)
def test_the_longest_known_prefix_wins(model: str, tokens: int) -> None:
    assert window_tokens(model) == tokens


def test_gpt_4_turbo_is_not_gpt_4() -> None:
    assert window_tokens("gpt-4-turbo") != window_tokens("gpt-4")


@pytest.mark.parametrize("model", ["GPT-4 Turbo", " gpt-4-turbo ", "openai/gpt-4-turbo"])
def test_spelling_and_provider_do_not_matter(model: str) -> None:
    assert window_tokens(model) == 128_000


@pytest.mark.parametrize("model", ["claude-sonnet-4-5[1m]", "Claude-Opus-4-1[1M]", "new-model[1m]"])
def test_1m_in_brackets_is_a_million(model: str) -> None:
    assert window_tokens(model) == 1_000_000


def test_an_unknown_model_has_the_default() -> None:
    assert window_tokens("nobody-knows-me") == DEFAULT_WINDOW_TOKENS == 200_000
    assert window_tokens("nobody-knows-me", default=32_000) == 32_000
    assert window_tokens("") == DEFAULT_WINDOW_TOKENS


def test_the_users_table_goes_first() -> None:
    assert window_tokens("claude-sonnet-4-5", {"claude-sonnet-4-5": 500_000}) == 500_000
    assert window_tokens("claude-sonnet-4-5[1m]", {"claude-sonnet": 300_000}) == 300_000
    assert window_tokens("my-model-v2", {"my-model": 64_000}) == 64_000


def test_the_longest_prefix_wins_in_the_users_table_too() -> None:
    user = {"my": 1_000, "my-model": 2_000, "my-model-x": 3_000}
    assert window_tokens("my-model-v2", user) == 2_000


def test_a_users_table_without_the_model_leaves_ours() -> None:
    assert window_tokens("gpt-4-turbo", {"my-model": 64_000}) == 128_000
    assert window_tokens("claude-x[1m]", {"my-model": 64_000}) == 1_000_000


def test_the_users_keys_are_read_without_regard_to_case() -> None:
    assert window_tokens("my-model", {"My-Model": 64_000}) == 64_000


@given(st.text(max_size=40))
def test_any_name_has_a_window(name: str) -> None:
    assert window_tokens(name) in {*KNOWN_WINDOWS.values(), 1_000_000, DEFAULT_WINDOW_TOKENS}
