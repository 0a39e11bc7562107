"""Accounts and their limits, for programs and for people: what runs and the daemon recorded, and
what sessions report."""

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import tzinfo
from typing import Any

from segue.core import accounts
from segue.core.accounts import Account, Limit
from segue.core.sessions.shapes import duration, iso
from segue.core.sessions.types import Session
from segue.system.accounts import Accounts, account_at
from segue.views import printing
from segue.views.verdicts import time_of_day

_SCOPES = {"five_hour": "5 hours", "seven_day": "week", "seven_day_opus": "week, opus"}
_BARS, _NAME, _ID = 12, 12, 8  # columns
_FULL, _HIGH = 100.0, 80.0


def known_limits(
    sessions: Iterable[Session],
    now: float,
    env: Mapping[str, str],
    noted: Accounts | None = None,
) -> list[Account]:
    """Every account with a known limit, by its id. `noted`: the source of limits that runs hit.
    Limits from sessions are added for display only: they are not stored, because nobody knows
    who was signed in when they were written."""
    found = {account.id: account for account in (noted or Accounts()).all(now)}
    homes: dict[str, Account] = {}
    for session in sessions:
        if not session.limits:
            continue
        account = account_at(session.agent, session.path, env, homes)
        if account is not None:
            before = found.get(account.id, account)
            found[account.id] = accounts.note(before, _seen_in(session))
    current = (accounts.current(account, now) for account in found.values())
    return sorted((a for a in current if a.limits), key=lambda account: account.id)


def _seen_in(session: Session) -> Iterator[Limit]:
    for scope, limit in session.limits.items():
        is_full = limit.rejected or (limit.used_percent or 0.0) >= _FULL
        yield Limit(
            scope=scope,
            used_percent=limit.used_percent,
            resets_at=limit.resets_at,
            is_met=is_full and limit.resets_at is not None,
            source="session",
            by=session.session_id,
            seen_at=limit.seen_at or session.last_at or 0.0,
        )


def as_dict(account: Account, now: float) -> dict[str, Any]:
    """An account in its documented form (docs/accounts.md)."""
    holding = accounts.limited_until(account, now)
    return {
        "account": account.id,
        "agent": account.agent,
        "home": account.home or None,
        "kind": account.kind or None,
        "limited_until": iso(holding.resets_at) if holding is not None else None,
        "limits": [
            {
                "scope": limit.scope or None,
                "used_percent": limit.used_percent,
                "resets_at": iso(limit.resets_at),
                "met": limit.is_met,
                "guess": limit.is_guess,
                "source": limit.source,
                "by": limit.by or None,
                "seen_at": iso(limit.seen_at),
                "age_s": round(max(0.0, now - limit.seen_at)),
            }
            for limit in account.limits
        ],
    }


def lines(account: Account, now: float, tz: tzinfo) -> Iterator[str]:
    """An account for people: a heading, and a line for each limit."""
    kind = {"plan": "a plan", "key": "an API key"}.get(account.kind, "")
    where = account.home.replace(os.path.expanduser("~"), "~", 1) if account.home else ""
    details = ", ".join(part for part in (kind, where) if part)
    yield f"{printing.style(account.id, bold=True)}{f'  {details}' if details else ''}"
    for limit in account.limits:
        use, reset = _gauge(limit, now), _reset(limit, now, tz)
        yield f"  {_name(limit):<{_NAME}} {use}  {reset}"
        yield f"  {'':<{_NAME}} {_source(limit, now)}"


def short(account: Account, now: float, tz: tzinfo) -> str:
    """An account in a few words, for `segue status`; "" if no limit has a known usage."""
    holding = accounts.limited_until(account, now)
    if holding is not None and holding.resets_at is not None:
        until = time_of_day(holding.resets_at, now, tz)
        return f"{account.agent}: limited until {until}"
    lines = [
        f"{_name(limit)} {limit.used_percent:.0f}%"
        for limit in account.limits
        if limit.used_percent is not None
    ]
    return f"{account.agent}: {', '.join(lines)}" if lines else ""


def _name(limit: Limit) -> str:
    return _SCOPES.get(limit.scope, limit.scope.replace("_", " ") or "limit")


def _holds(limit: Limit, now: float) -> bool:
    return limit.is_met and (limit.resets_at or 0.0) > now


def _gauge(limit: Limit, now: float) -> str:
    used = _FULL if _holds(limit, now) else limit.used_percent
    if used is None:
        return printing.style(f"{'usage unknown':<{_BARS + 6}}", dim=True)
    filled = max(0, min(_BARS, round(used / _FULL * _BARS)))
    colour = "red" if used >= _FULL else "yellow" if used >= _HIGH else "green"
    bars = printing.style("█" * filled, fg=colour)
    rest = printing.style("░" * (_BARS - filled), dim=True)
    return f"{bars}{rest} {used:>3.0f}%"


def _reset(limit: Limit, now: float, tz: tzinfo) -> str:
    if limit.resets_at is None:
        return "reset unknown"
    if limit.resets_at <= now:
        return "reset passed, not tried since"
    guess = "tried again" if limit.is_guess else "resets"
    return f"{guess} in {duration(limit.resets_at - now)} ({time_of_day(limit.resets_at, now, tz)})"


def _source(limit: Limit, now: float) -> str:
    by = printing.one_line(limit.by)
    if limit.source == "session":
        by = f"session {by[:_ID]}"
    when = f"{duration(max(0.0, now - limit.seen_at))} ago"
    return printing.style(f"seen by {by}, {when}" if by else f"seen {when}", dim=True)
