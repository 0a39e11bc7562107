"""A session as JSON for programs, and its figures in words. Pure. Commands, the daemon's API,
the status line and MCP all use this module, so they all say the same."""

from datetime import UTC, datetime
from typing import Any

from segue.core.sessions.forecasts.forecast import Ahead
from segue.core.sessions.reading import Zone
from segue.core.sessions.types import Session


def as_dict(session: Session) -> dict[str, Any]:
    """A session in its documented form (docs/sessions.md)."""
    reading, stop, ahead = session.reading, session.stop, session.forecast
    found: dict[str, Any] = {
        "agent": session.agent,
        "session_id": session.session_id,
        "path": session.path,
        "cwd": session.cwd or None,
        "model": session.model or None,
        "context": None,
        "state": session.state.value,
        "last_activity": iso(session.last_at),
        "started_at": iso(session.started_at),
        "stop": None,
        "growth": None,
        "handoff": None,
        "limits": [
            {
                "scope": scope,
                "used_percent": limit.used_percent,
                "resets_at": iso(limit.resets_at),
                "seen_at": iso(limit.seen_at),
                "rejected": limit.rejected,
            }
            for scope, limit in session.limits.items()
        ],
        "pid": session.process.pid if session.process is not None else None,
        "subagents": session.children,
        "notes": list(session.notes),
        "unreadable": session.unreadable or None,
        "run": session.run.id if session.run is not None else None,
        "run_state": session.run.state if session.run is not None else None,
        "handed_over_to": session.handed_over_to or None,
    }
    if reading is not None:
        found["context"] = {
            "used": reading.used_tokens,
            "window": reading.window_tokens,
            "percent": reading.percent,
            "zone": session.zone.value if session.zone is not None else None,
        }
    if stop is not None:
        found["stop"] = {
            "reason": stop.reason.value,
            "confidence": stop.confidence,
            "retry_at": iso(stop.retry_at),
            "why": stop.why,
        }
    if session.growth is not None:
        found["growth"] = {
            "tokens_per_minute": _rounded(session.growth.tokens_per_minute),
            "tokens_per_turn": _rounded(session.growth.tokens_per_turn),
        }
    if ahead is not None:
        mark = ahead.zones[Zone.HANDOFF].at_tokens
        handoff = Ahead() if session.ahead is None else ahead.zones[Zone.HANDOFF]
        found["handoff"] = {
            "at_tokens": mark,
            "tokens": handoff.tokens,
            "seconds": _rounded(handoff.seconds),
            "turns": None if handoff.turns is None else round(handoff.turns, 1),
        }
    return found


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)


def iso(at: float | None) -> str | None:
    """A unix time in ISO format, in UTC; None for None, and for a time that no calendar has."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def duration(seconds: float) -> str:
    """A duration in two units at most: "2 h 13 min"."""
    whole = max(0, round(seconds))
    parts = [
        f"{amount} {unit}"
        for unit, amount in (
            ("d", whole // 86_400),
            ("h", whole // 3600 % 24),
            ("min", whole // 60 % 60),
            ("s", whole % 60),
        )
        if amount
    ]
    return " ".join(parts[:2]) or "0 s"


def growth(session: Session) -> str:
    """The growth in words: per minute of active time, otherwise per turn; "" if unknown."""
    pace = session.growth
    if pace is None:
        return ""
    if pace.tokens_per_minute:
        return f"+{short(pace.tokens_per_minute)}/min"
    return f"+{short(pace.tokens_per_turn)}/turn" if pace.tokens_per_turn else ""


def countdown(session: Session) -> str:
    """The distance to the handoff in words: a time if an agent has the session open, otherwise
    turns or tokens; "now" once it is due, "off" if handoffs are off, "" if unknown."""
    if session.forecast is None:
        return ""
    ahead = session.forecast.zones[Zone.HANDOFF]
    if session.zone is Zone.HANDOFF:
        return "now"
    if ahead.at_tokens is None:
        return "off"
    if ahead.seconds is not None and session.state.is_live:
        return duration(ahead.seconds)
    if ahead.turns is not None:
        return f"{ahead.turns:,.0f} {'turn' if round(ahead.turns) == 1 else 'turns'}"
    return f"{short(ahead.tokens)} tokens" if ahead.tokens is not None else ""


def short(count: float) -> str:
    """A count of tokens in three digits: 950, 9.5K, 118K, 1.2M."""
    for size, unit in ((1_000_000, "M"), (1_000, "K")):
        if count >= size * 0.9995:
            value = count / size
            whole = value >= 99.5 or value == int(value)
            return f"{value:.0f}{unit}" if whole else f"{value:.1f}{unit}"
    return f"{count:.0f}"
