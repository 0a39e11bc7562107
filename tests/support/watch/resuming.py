"""What test_wake and other tests share."""

from datetime import UTC, datetime
from typing import Any

from segue.core.policy import Policy
from segue.core.resumes.decisions import (
    ResumeHistory,
    StoppedSession,
    Verdict,
    decide,
)
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop

R = StopReason


NOON = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


HOUR, DAY = 3600.0, 86_400.0


AUTO = {"auto_resume": True}


def utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def stopped(reason: R = R.RATE_LIMIT, **fields: Any) -> Stop:
    given: dict[str, Any] = {"reason": reason, "confidence": 0.95, "resume": reason.resume}
    return Stop(**(given | fields))


def ended(reason: R | Stop = R.RATE_LIMIT, **fields: Any) -> StoppedSession:
    stop = reason if isinstance(reason, Stop) else stopped(reason, retry_at=NOON + HOUR)
    given: dict[str, Any] = {
        "agent": "claude",
        "session_id": "s",
        "stop": stop,
        "at": NOON,
        "has_pane": True,
    }
    return StoppedSession(**(given | {"pane_shell": True, "has_tmux": True} | fields))


def verdict(
    ending: StoppedSession,
    history: ResumeHistory | None = None,
    *,
    now: float = NOON + 2 * HOUR,
    draw: float = 0.5,
    **policy: Any,
) -> Verdict:
    rules = Policy(**(AUTO | policy))
    return decide(ending, history or ResumeHistory(), rules, now=now, local=utc, draw=draw)
