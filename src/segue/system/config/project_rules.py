"""What a project's `.segue.toml` may set.

The file comes with a repository, from whoever wrote that, and the agent working there can change
it. So it may set only what is harmless, or stricter than the user's settings.
"""

from typing import Any

LOWER = frozenset(
    {
        "max_legs", "max_tokens", "max_cost_usd", "max_active_s", "max_wall_s",
        "max_limited_s", "max_checks", "overload_tries", "same_failures", "idle_legs",
        "same_calls", "max_output_bytes",
    }
)  # fmt: skip
"""Limits on spending: a project may lower them."""

HIGHER = frozenset(
    {
        "min_confidence", "user_exit_grace_s", "unknown_reset_wait_s",
        "unknown_reset_max_s", "reset_jitter_min_s", "reset_jitter_max_s", "busy_wait_s",
        "draft_wait_s", "stand_by_s", "remind_every_s", "gate",
    }
)  # fmt: skip
"""What keeps segue from acting too soon, or at all: a project may raise these values."""

HARMLESS = frozenset(
    {
        "name", "monitor_mark", "warning_mark", "critical_mark", "soft_mark", "hard_mark",
        "warning_task_tokens", "critical_task_tokens", "reserve_tokens", "adaptive", "tail_lines",
        "context_risk_mark", "default_window_tokens", "known_windows", "exit_patterns",
        "wait_jitter", "stall_s", "tool_stall_s", "grace_s", "checkpoint_s", "checkpoint_tokens",
        "zone_slack", "handoff_folder", "handoff_wait_s",
    }
)  # fmt: skip
"""Where zones begin, how text is read, how long segue waits for an answer."""

MAY = LOWER | HIGHER | HARMLESS

_RANKS = {"off": 0, "warn": 1, "block": 2}  # of a gate


def is_looser(key: str, value: Any, than: Any) -> bool:
    """Whether a project's value would allow more than the value that applies without it."""
    if key in LOWER:
        return than is not None and (value is None or value > than)
    if key in HIGHER:
        return bool(_RANKS.get(value, value) < _RANKS.get(than, than))
    return False
