"""What test_bad_input and other tests share."""

from typing import Any

from segue.core.stops.reasons import StopReason

NOW = 1_794_774_600.0


LIMIT = "API Error: 429 Rate limit reached"


REASONS = {reason.value for reason in StopReason}


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def assert_whole(verdict: dict[str, Any]) -> None:
    assert verdict["schema"] == 1
    assert verdict["reason"] in REASONS
    assert 0.0 <= verdict["confidence"] <= 1.0
    assert verdict["resume"] in ("same_session", "new_session", "none")
    assert isinstance(verdict["evidence"], list)
    assert verdict["remediation"]
