"""The status line of a session: gauge, zone, growth, the way to the handoff, limits. Pure."""

from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from typing import Any

from segue import client
from segue.cli import tables
from segue.core.policy import Policy
from segue.core.reading import Zone
from segue.core.remark import LimitSeen
from segue.core.session import Session

_BETWEEN = " · "
_SCOPES = {"five_hour": "5h", "seven_day": "week", "seven_day_opus": "opus week"}
_DAY_S = 20 * 3600.0  # later than that, the time of day alone may be misread
_GIVEN_UP = ("counts", "growth", "limit 2", "limit 1", "handoff")
"""What a narrow terminal does without, the first one first."""


def line(
    payload: Mapping[str, Any],
    session: Session | None,
    policy: Policy,
    now: float,
    width: int = 0,
    color: bool = True,
    *,
    tz: tzinfo | None = None,
) -> str:
    """One line for claude's status line; never raises, whatever the payload is.

    What is known of the session goes before what the payload says of its size (its window may be
    another model's), and the payload before it about limits, which it has at first hand. `width` 0
    is any; `tz` None is the zone of this machine.
    """
    parts = dict(_parts(payload, session, now, tz))
    fraction, zone = _fullness(payload, session, policy)
    plain = client.head(fraction, zone, color=False)
    for name in _GIVEN_UP:
        if not width or len(_BETWEEN.join((plain, *parts.values()))) <= width:
            break
        parts.pop(name, None)
    return _BETWEEN.join((client.head(fraction, zone, color=color), *parts.values()))


def _fullness(
    payload: Mapping[str, Any], session: Session | None, policy: Policy
) -> tuple[float | None, str]:
    if session is not None and session.reading is not None:
        zone = session.zone or session.reading.zone(policy)
        return session.reading.fraction, zone.value
    fraction = client.fraction_of(dict(payload))
    return fraction, "" if fraction is None else Zone.of(fraction, policy).value


def _parts(
    payload: Mapping[str, Any], session: Session | None, now: float, tz: tzinfo | None
) -> Iterator[tuple[str, str]]:
    if session is not None and session.reading is not None:
        used, window = session.reading.used_tokens, session.reading.window_tokens
        yield "counts", f"{tables.short(used)} of {tables.short(window)}"
        if pace := tables.growth(session):
            yield "growth", pace
        ahead = tables.handoff(session)
        if ahead and ahead != "off":
            yield "handoff", "handoff now" if ahead == "now" else f"handoff in {ahead}"
    limits = _limits(payload, session, now)
    for number, (scope, limit) in enumerate(limits[:2], start=1):
        yield f"limit {number}", _limit(scope, limit, now, tz)


def _limits(
    payload: Mapping[str, Any], session: Session | None, now: float
) -> list[tuple[str, LimitSeen]]:
    """Those that hold now, the fullest first."""
    found = dict(session.limits) if session is not None else {}
    told = payload.get("rate_limits")
    for scope, said in told.items() if isinstance(told, Mapping) else ():
        if isinstance(said, Mapping):
            percent = client.number(said.get("used_percentage"))
            resets_at = client.number(said.get("resets_at"))
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
