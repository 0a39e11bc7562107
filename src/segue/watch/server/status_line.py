"""The status line of a session: gauge, zone, growth, distance to the handoff, limits. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from typing import Any

from segue import agents, client
from segue.core.sessions import shapes
from segue.core.sessions.forecasts.forecast import forecast
from segue.core.sessions.reading import Reading
from segue.core.sessions.remarks import LimitSeen
from segue.core.sessions.types import Session
from segue.system.config.policies import PolicyFor

AGENT = "claude"
"""The agent of this status line."""

_BETWEEN = " · "
_SCOPES = {"five_hour": "5h", "seven_day": "week", "seven_day_opus": "opus week"}
_DAY_S = 20 * 3600.0  # beyond this, a time of day alone could be misread
_GIVEN_UP = ("counts", "growth", "limit 2", "limit 1", "handoff")
"""What a narrow terminal leaves out, in this order."""


def line(
    payload: Mapping[str, Any],
    session: Session | None,
    policy_for: PolicyFor,
    now: float,
    width: int = 0,
    color: bool = True,
    *,
    tz: tzinfo | None = None,
) -> str:
    """One line for claude's status line; never raises, whatever the payload is. What segue knows
    about the session overrides the size in the payload (its window may be another model's); for
    limits the payload takes precedence, because claude knows them first. `width` 0 is unlimited;
    `tz` None is the zone of this machine.
    """
    parts = dict(_parts(payload, session, now, tz))
    fraction, zone = _fullness(payload, session, policy_for)
    plain = client.head(fraction, zone, color=False)
    for name in _GIVEN_UP:
        if not width or len(_BETWEEN.join((plain, *parts.values()))) <= width:
            break
        parts.pop(name, None)
    return _BETWEEN.join((client.head(fraction, zone, color=color), *parts.values()))


def _fullness(
    payload: Mapping[str, Any], session: Session | None, policy_for: PolicyFor
) -> tuple[float | None, str]:
    if session is not None and session.reading is not None:
        return session.reading.fraction, session.zone.value if session.zone is not None else ""
    fraction, size = client.fullness_of(dict(payload))
    if fraction is None:
        return None, ""
    # Its file is still unknown: the zone follows from the same rules and claude's own numbers.
    policy = policy_for(AGENT, _text(payload, "model", "id"), _folder(payload))
    window = round(size) or policy.default_window_tokens
    reading = Reading(input_tokens=round(fraction * window), window_tokens=window)
    profile = agents.find(AGENT)
    ahead = forecast(
        reading,
        None,
        policy,
        reserve_tokens=policy.reserve_tokens,
        enforced_at_tokens=profile.enforced(window) if profile is not None else None,
    )
    return fraction, ahead.zone.value


def _folder(payload: Mapping[str, Any]) -> str:
    """The session's folder; a relative path does not count."""
    found = _text(payload, "cwd") or _text(payload, "workspace", "current_dir")
    return found if found.startswith("/") and "\0" not in found else ""


def _text(payload: Mapping[str, Any], *keys: str) -> str:
    found = _part(payload, *keys)
    return found if isinstance(found, str) else ""


def _part(payload: Any, *keys: str) -> Any:
    for key in keys:
        payload = payload.get(key) if isinstance(payload, Mapping) else None
    return payload


def _parts(
    payload: Mapping[str, Any], session: Session | None, now: float, tz: tzinfo | None
) -> Iterator[tuple[str, str]]:
    if session is not None and session.reading is not None:
        used, window = session.reading.used_tokens, session.reading.window_tokens
        yield "counts", f"{shapes.short(used)} of {shapes.short(window)}"
        if pace := shapes.growth(session):
            yield "growth", pace
        ahead = shapes.countdown(session)  # the session is alive, because it shows this
        if ahead and ahead != "off":
            yield "handoff", "handoff now" if ahead == "now" else f"handoff in {ahead}"
    limits = _limits(payload, session, now)
    for number, (scope, limit) in enumerate(limits[:2], start=1):
        yield f"limit {number}", _limit(scope, limit, now, tz)


def _limits(
    payload: Mapping[str, Any], session: Session | None, now: float
) -> list[tuple[str, LimitSeen]]:
    """The limits that apply now, the fullest first."""
    found = dict(session.limits) if session is not None else {}
    reported = payload.get("rate_limits")
    for scope, window in reported.items() if isinstance(reported, Mapping) else ():
        if isinstance(window, Mapping):
            percent = client.number(window.get("used_percentage"))
            resets_at = client.number(window.get("resets_at"))
            found[str(scope)] = LimitSeen(used_percent=percent, resets_at=resets_at, seen_at=now)
    holding = [
        (scope, limit)
        for scope, limit in found.items()
        if (limit.used_percent is not None or limit.rejected)
        and (limit.resets_at is None or limit.resets_at > now)
    ]
    return sorted(holding, key=lambda each: (-each[1].rejected, -(each[1].used_percent or 0.0)))


def _limit(scope: str, limit: LimitSeen, now: float, tz: tzinfo | None) -> str:
    known = "".join(c for c in scope.replace("_", " ")[:20] if c.isprintable())
    name = _SCOPES.get(scope, known)
    full = "full" if limit.rejected else f"{limit.used_percent or 0.0:.0f}%"
    until = _clock(limit.resets_at, now, tz)
    return f"{name} {full}{f' until {until}' if until else ''}"


def _clock(at: float | None, now: float, tz: tzinfo | None) -> str:
    if at is None:
        return ""
    try:
        when = datetime.fromtimestamp(at, tz)
        return when.strftime("%H:%M" if at - now < _DAY_S else "%a %H:%M")
    except (ValueError, OverflowError, OSError):
        return ""
