"""Contradictions in a policy are refused by name, when it is read."""

from typing import Any

import pytest

from segue.core.policy import PRESETS, Policy


def changed(name: str, value: Any) -> Policy:
    return Policy(**{name: value})


@pytest.mark.parametrize(
    "name",
    [
        "wait_jitter",
        "reset_jitter_min_s",
        "max_limited_s",
        "overload_tries",
        "grace_s",
        "max_checks",
        "max_tokens",
        "max_cost_usd",
    ],
)
def test_these_may_be_0_and_not_less(name: str) -> None:
    assert changed(name, 0) != Policy()
    with pytest.raises(ValueError, match=f"^{name} must be at least 0, not -1$"):
        changed(name, -1)


@pytest.mark.parametrize(
    "name",
    [
        "unknown_reset_wait_s",
        "stall_s",
        "tool_stall_s",
        "checkpoint_s",
        "checkpoint_tokens",
        "same_failures",
        "idle_legs",
        "same_calls",
        "max_legs",
        "max_active_s",
        "max_wall_s",
    ],
)
def test_these_are_at_least_1(name: str) -> None:
    assert getattr(changed(name, 1), name) == 1
    with pytest.raises(ValueError, match=f"^{name} must be at least 1, not 0$"):
        changed(name, 0)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"wait_jitter": 1.0}, "wait_jitter must be below 1"),
        ({"unknown_reset_max_s": 29}, "unknown_reset_max_s must not be below"),
        ({"reset_jitter_max_s": 4}, "reset_jitter_max_s must not be below"),
        ({"stall_s": float("nan")}, "stall_s must be at least 1, not nan"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what) as found:
        Policy(**changes)
    assert "\n" not in str(found.value)


CAPS = (
    *("max_limited_s", "max_checks", "max_legs", "max_tokens", "max_cost_usd", "max_active_s"),
    *("max_wall_s", "max_resumes", "max_unattended"),
)


def test_no_cap_is_set_unless_the_user_sets_one() -> None:
    for policy in PRESETS.values():
        caps = [getattr(policy, name) for name in Policy.__struct_fields__ if name in CAPS]
        assert [cap for cap in caps if cap is not None] == [8 * 86_400.0, 3, 5]
