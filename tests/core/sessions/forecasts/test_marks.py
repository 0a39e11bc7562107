"""Where a session is handed over, in tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from segue.core.policy import PRESETS, Policy
from segue.core.sessions.forecasts.marks import Marks, marks
from segue.core.sessions.reading import Reading, Zone

K = 1_000


def at(soft: int, hard: int, asked_by: int) -> Marks:
    return Marks(soft_tokens=soft * K, hard_tokens=hard * K, asked_by_tokens=asked_by * K)


@pytest.mark.parametrize(
    ("name", "soft", "hard"),
    [("graduated", 160, 170), ("continuous", 180, 180), ("early", 130, 140)],
)
def test_marks_of_the_presets_in_a_window_of_200_000(name: str, soft: int, hard: int) -> None:
    assert marks(PRESETS[name], 200 * K) == at(soft, hard, 180)


@pytest.mark.parametrize(("hard", "by"), [(0.85, 180), (0.92, 184), (0.97, 190)])
def test_a_request_is_read_by_90_percent_or_the_hard_mark_but_before_the_reserve(
    hard: float, by: int
) -> None:
    assert marks(Policy(hard_mark=hard), 200 * K).asked_by_tokens == by * K


@pytest.mark.parametrize(("percent", "reached"), [(89, False), (90, True), (91, True)])
@pytest.mark.parametrize("window", [200 * K, 128 * K, 1_000 * K, 258_400])
def test_thresholds_at_89_90_and_91_percent(percent: int, reached: bool, window: int) -> None:
    hard = marks(PRESETS["continuous"], window).hard_tokens
    assert hard is not None
    assert (window * percent // 100 >= hard) is reached


@pytest.mark.parametrize("mark", [1.01, 1.1, 2.0])
def test_a_mark_above_1_switches_both_off_even_before_an_enforced_limit(mark: float) -> None:
    policy = Policy(soft_mark=0.5, hard_mark=mark)
    assert marks(policy, 200 * K) == Marks()
    assert marks(policy, 200 * K, 167 * K) == Marks()


def test_a_mark_of_1_is_the_whole_window() -> None:
    assert marks(Policy(soft_mark=1, hard_mark=1), 200 * K).hard_tokens == 200 * K


def test_a_soft_mark_above_the_hard_one_is_the_hard_one() -> None:
    assert marks(Policy(soft_mark=1.5), 200 * K) == at(170, 170, 180)


def test_an_enforced_limit_lowers_both_by_what_a_checkpoint_needs() -> None:
    assert marks(Policy(), 200 * K, 167 * K) == at(157, 157, 157)
    lower = Policy(reserve_tokens=2 * K)
    assert marks(lower, 200 * K, 167 * K) == at(160, 165, 165)


def test_an_enforced_limit_above_the_marks_changes_nothing() -> None:
    assert marks(Policy(), 200 * K, 190 * K) == marks(Policy(), 200 * K)


def test_an_unknown_window_has_no_marks() -> None:
    assert marks(Policy(), 0) == Marks()


@given(
    st.sampled_from(list(PRESETS.values())),
    st.integers(1, 2_000_000),
    st.none() | st.integers(1, 2_000_000),
)
def test_soft_is_never_above_hard_and_hard_is_the_handoff_zone(
    policy: Policy, window: int, enforced: int | None
) -> None:
    found = marks(policy, window, enforced)
    assert found.soft_tokens is not None
    assert found.hard_tokens is not None
    assert found.soft_tokens <= found.hard_tokens <= window
    if enforced is None:
        full = Reading(input_tokens=found.hard_tokens, window_tokens=window)
        assert full.zone(policy) is Zone.HANDOFF
    else:
        assert found.hard_tokens <= enforced
