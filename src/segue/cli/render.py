"""Verdicts for machines and for people."""

import json
from datetime import UTC, datetime, tzinfo
from typing import Any

import click
import msgspec

from segue.core.classify import Judgement
from segue.core.policy import Policy
from segue.core.stop import SCHEMA, Evidence, RateLimitInfo, Stop, StopReason

_COLOURS = {
    StopReason.COMPLETED: "green",
    StopReason.RATE_LIMIT: "yellow",
    StopReason.OVERLOADED: "yellow",
    StopReason.TIMEOUT: "yellow",
    StopReason.CONTEXT_EXHAUSTED: "magenta",
    StopReason.USER_EXIT: "cyan",
    StopReason.UNKNOWN: "bright_black",
}
_NEXT = {
    "same_session": "resume the same session",
    "new_session": "start a new session with a checkpoint",
    "none": "nothing by itself",
}
_EVIDENCE_SHOWN = 4
_FAR_S = 300 * 86_400
_CLOCK = "%a %d %b %H:%M %Z"
_CLOCK_FAR = "%d %b %Y %H:%M %Z"


def as_dict(stop: Stop, identity: object = None) -> dict[str, Any]:
    """The verdict in its documented form (docs/classify.md)."""
    details = (
        {k: v for k, v in msgspec.to_builtins(stop.details).items() if v is not None}
        if (stop.details is not None)
        else {}
    )
    details.pop("kind", None)
    details["ended_by"] = stop.ended_by
    if stop.unread:
        details["unread_records"] = stop.unread
    if stop.notes:
        details["notes"] = list(stop.notes)
    verdict: dict[str, Any] = {"schema": SCHEMA}
    if identity is not None:
        verdict["id"] = identity
    verdict |= {
        "reason": stop.reason.value,
        "confidence": stop.confidence,
        "evidence": [msgspec.to_builtins(e) for e in stop.evidence],
        "also": [reason.value for reason in stop.also],
        "resume": stop.resume,
        "retry_at": iso(stop.retry_at),
        "retry_after_s": stop.retry_after_s,
        "tokens": msgspec.to_builtins(stop.tokens),
        "context_risk": stop.context_risk,
        "details": details,
        "remediation": stop.remediation,
    }
    return verdict


def as_json(value: object) -> str:
    """One line of JSON, also of text that UTF-8 does not have (half a surrogate pair)."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(value)


def iso(at: float | None) -> str | None:
    """An instant in UTC, or None; one that no calendar has is None too."""
    if at is None:
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def for_people(stop: Stop, policy: Policy, *, now: float, tz: tzinfo) -> str:
    """A few lines: what, why, when, what to do."""
    colour = _COLOURS.get(stop.reason, "red")
    head = click.style(stop.reason.description, fg=colour, bold=True)
    if stop.reason is StopReason.UNKNOWN:
        lines = [head]
    else:
        name = click.style(stop.reason.value, dim=True)
        lines = [f"{head}  {name} · {stop.confidence:.0%} sure"]
    lines += _rows(
        ("why", _why(stop)),
        ("retry", _retry(stop, policy, now, tz)),
        ("next", _NEXT[stop.resume]),
        ("window", _window(stop)),
        ("", list(stop.notes)),
        ("also", ", ".join(stop.also)),
        ("do", stop.remediation),
    )
    return "\n".join(lines)


def _rows(*rows: tuple[str, str | list[str]]) -> list[str]:
    lines = []
    for name, value in rows:
        values = [value] if isinstance(value, str) else value
        for index, text in enumerate(v for v in values if v):
            label = name if index == 0 else ""
            lines.append(f"  {click.style(f'{label:<7}', dim=True)}{text}")
    return lines


def _why(stop: Stop) -> list[str]:
    shown = [_cited(e) for e in stop.evidence[:_EVIDENCE_SHOWN]]
    more = len(stop.evidence) - len(shown)
    return [*shown, f"and {more} more signs of it"] if more > 0 else shown


def _retry(stop: Stop, policy: Policy, now: float, tz: tzinfo) -> str:
    if stop.retry_at is None:
        if stop.reason is StopReason.RATE_LIMIT:
            wait = duration(policy.default_retry_wait_s)
            return f"no reset time was stated: in {wait}, then less and less often"
        return ""
    source = stop.details.retry_source if isinstance(stop.details, RateLimitInfo) else None
    known = f", from the {source}" if source else ""
    try:
        at = datetime.fromtimestamp(stop.retry_at, tz).strftime(
            _CLOCK_FAR if abs(stop.retry_at - now) > _FAR_S else _CLOCK
        )
    except (ValueError, OverflowError, OSError):
        return ""
    if stop.retry_at <= now:
        return f"now: the limit has reset ({at}{known})"
    return f"in {duration(stop.retry_at - now)} ({at}{known})"


def duration(seconds: float) -> str:
    """Two units at most: "2 h 13 min"."""
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


def _window(stop: Stop) -> str:
    if stop.tokens is None:
        return ""
    if not stop.tokens.window:
        return f"{stop.tokens.used:,} tokens"
    share = stop.tokens.used / stop.tokens.window
    filled = min(20, round(share * 20))
    gauge = click.style("█" * filled, fg="red" if stop.context_risk else "green") + "░" * (
        20 - filled
    )
    return f"{gauge} {stop.tokens.used:,} of {stop.tokens.window:,} tokens ({share:.0%})"


def explanation(judgement: Judgement, policy: Policy, *, now: float, tz: tzinfo) -> str:
    """The verdict, every sign in the order of its weight, and what would change it."""
    lines = [for_people(judgement.stop, policy, now=now, tz=tz)]
    if judgement.signs:
        lines += ["", click.style("signs, strongest first", bold=True)]
    for place, sign in enumerate(judgement.signs):
        agrees = sign.reason is judgement.signs[0].reason
        verb = "wins" if place == 0 else "agrees" if agrees else "loses"
        weight = f"{sign.rank.name}/{sign.strength.name}".lower()
        lines.append(f"  {verb:<7}{sign.reason.value:<18}{weight:<19}{_cited(sign.evidence)}")
    if judgement.lost:
        lines += ["", click.style("heard, and not counted", bold=True)]
    lines += [
        f"  {sign.reason.value:<18}{_cited(sign.evidence)}: {sign.lost}" for sign in judgement.lost
    ]
    lines += [
        "",
        click.style("what would change it", bold=True),
        *(f"  {w}" for w in changes(judgement, policy)),
    ]
    return "\n".join(lines)


def _cited(evidence: Evidence) -> str:
    return f"{evidence.quote}  {click.style(f'{evidence.where} {evidence.rule}', dim=True)}"


def changes(judgement: Judgement, policy: Policy) -> list[str]:
    """What would have to be different for another verdict."""
    signs, stop = judgement.signs, judgement.stop
    if not signs:
        return [
            "an exit code, or the agent's own records (--stdout, --transcript), if there are any",
            *(
                f"if {s.evidence.quote!r} counted: {s.reason.value} ({s.lost})"
                for s in judgement.lost[:3]
            ),
        ]
    other = next((s for s in signs if s.reason is not stop.reason), None)
    without = other.reason.value if other else StopReason.UNKNOWN.value
    said = [f"without the signs of {stop.reason.value}: {without}"]
    if signs[0].rank.name != "STRUCTURE":
        said.append("a closing record of the agent itself would go before this")
    if stop.confidence < policy.least_confidence:
        said.append("--ended-by user, segue or system, if you know who ended it")
    return said
