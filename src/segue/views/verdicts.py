"""Verdicts, for programs and for people."""

import re
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

import msgspec

from segue.core.policy import Policy
from segue.core.sessions.shapes import duration as duration
from segue.core.sessions.shapes import iso as iso
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import SCHEMA, Evidence, RateLimitInfo, Stop
from segue.core.terminals.visible import escape_json, to_json
from segue.views import printing

if TYPE_CHECKING:  # printing a duration needs no classifier
    from segue.agents.counterfactuals import Counterfactual
    from segue.core.stops.classify import Judgement

_NEXT = {
    "same_session": "resume the same session",
    "new_session": "start a new session with a checkpoint",
    "none": "nothing automatic",
}
_EVIDENCE_SHOWN = 4


def as_dict(stop: Stop, identity: object = None) -> dict[str, Any]:
    """A verdict in its documented form (docs/classify.md). `identity`: the `id` of the request, if
    any."""
    details = (
        {k: v for k, v in msgspec.to_builtins(stop.details).items() if v is not None}
        if (stop.details is not None)
        else {}
    )
    details.pop("kind", None)
    details["ended_by"] = stop.ended_by
    if stop.ended_for:
        details["ended_for"] = stop.ended_for
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
    """One line of JSON, even for text that is not valid UTF-8 (half a surrogate pair), and without
    characters that a terminal would interpret."""
    try:
        return escape_json(msgspec.json.encode(value).decode())
    except (UnicodeEncodeError, OverflowError):
        return to_json(value)


def time_of_day(at: float, now: float, tz: tzinfo) -> str:
    """A time for people: the time of day, with the date if it is another day; "?" for a time
    outside the calendar."""
    try:
        then, today = datetime.fromtimestamp(at, tz), datetime.fromtimestamp(now, tz)
    except (ValueError, OverflowError, OSError):
        return "?"
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%Y-%m-%d %H:%M:%S")


_INSTANT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def local_times(text: str, now: float, tz: tzinfo) -> str:
    """A text from a log, with its UTC times replaced by times of day in this zone."""

    def local(found: re.Match[str]) -> str:
        try:
            at = datetime.fromisoformat(found[0].replace("Z", "+00:00")).timestamp()
        except ValueError:
            return found[0]
        return time_of_day(at, now, tz)

    return _INSTANT.sub(local, text)


def for_people(stop: Stop, policy: Policy, *, now: float, tz: tzinfo) -> str:
    """A verdict in a few lines: what happened, why, when to retry, and what to do."""
    colour = stop.reason.facts.colour
    head = printing.style(stop.reason.description, fg=colour, bold=True)
    if stop.reason is StopReason.UNKNOWN:
        lines = [head]
    else:
        name = printing.style(stop.reason.value, dim=True)
        lines = [f"{head}  {name} · {stop.confidence:.0%} sure"]
    lines += _rows(
        ("why", _why(stop)),
        ("retry", _retry(stop, policy, now, tz)),
        ("next", _next(stop, policy)),
        ("window", _window(stop)),
        ("", list(stop.notes)),
        ("also", ", ".join(stop.also)),
        ("do", stop.remediation),
    )
    return "\n".join(lines)


def _next(stop: Stop, policy: Policy) -> str:
    """What segue does next about such a stop, in a run or as the daemon."""
    if stop.resume == "none" or policy.may_resume_alone(stop):
        return _NEXT[stop.resume]
    return (
        f"{_NEXT[stop.resume]}, but only if you say so: the verdict is too uncertain"
        f" (min_confidence)"
    )


def _rows(*rows: tuple[str, str | list[str]]) -> list[str]:
    lines = []
    for name, value in rows:
        values = [value] if isinstance(value, str) else value
        for index, text in enumerate(v for v in values if v):
            label = name if index == 0 else ""
            line = text.replace("\n", " ")
            lines.append(f"  {printing.style(f'{label:<7}', dim=True)}{line}")
    return lines


def _why(stop: Stop) -> list[str]:
    shown = [_cited(e) for e in stop.evidence[:_EVIDENCE_SHOWN]]
    more = len(stop.evidence) - len(shown)
    return [*shown, f"and {more} more signs of it"] if more > 0 else shown


def _retry(stop: Stop, policy: Policy, now: float, tz: tzinfo) -> str:
    if stop.retry_at is None:
        if stop.reason is StopReason.RATE_LIMIT:
            wait = duration(policy.unknown_reset_wait_s)
            return f"no reset time was stated: try in {wait}, then less and less often"
        return ""
    source = stop.details.retry_source if isinstance(stop.details, RateLimitInfo) else None
    known = f", from the {source}" if source else ""
    at = time_of_day(stop.retry_at, now, tz)
    if at == "?":
        return ""
    at += datetime.fromtimestamp(stop.retry_at, tz).strftime(" %Z")
    if stop.retry_at <= now:
        return f"now: the limit has reset ({at}{known})"
    return f"in {duration(stop.retry_at - now)} ({at}{known})"


def _window(stop: Stop) -> str:
    if stop.tokens is None:
        return ""
    if not stop.tokens.window:
        return f"{stop.tokens.used:,} tokens"
    share = stop.tokens.used / stop.tokens.window
    filled = min(20, round(share * 20))
    gauge = printing.style("█" * filled, fg="red" if stop.context_risk else "green") + "░" * (
        20 - filled
    )
    return f"{gauge} {stop.tokens.used:,} of {stop.tokens.window:,} tokens ({share:.0%})"


def explanation(
    judgement: "Judgement",
    policy: Policy,
    counterfactuals: "Sequence[Counterfactual]" = (),
    *,
    now: float,
    tz: tzinfo,
) -> str:
    """A verdict, every sign in order of its weight, and what would change the verdict."""
    lines = [for_people(judgement.stop, policy, now=now, tz=tz)]
    if judgement.signs:
        lines += ["", printing.style("signs, strongest first", bold=True)]
    for place, sign in enumerate(judgement.signs):
        agrees = sign.reason is judgement.signs[0].reason
        verb = "wins" if place == 0 else "agrees" if agrees else "loses"
        weight = f"{sign.rank.name}/{sign.strength.name}".lower()
        lines.append(f"  {verb:<7}{sign.reason.value:<18}{weight:<19}{_cited(sign.evidence)}")
        if sign.words:
            lines.append(f"         words that weighed most: {', '.join(sign.words)}")
    if judgement.lost:
        lines += ["", printing.style("seen, but not counted", bold=True)]
    lines += [
        f"  {sign.reason.value:<18}{_cited(sign.evidence)}: {sign.lost}" for sign in judgement.lost
    ]
    lines += [
        "",
        printing.style("what would change it", bold=True),
        *(f"  {w}" for w in changes(judgement, policy, counterfactuals)),
    ]
    return "\n".join(lines)


def _cited(evidence: Evidence) -> str:
    where = printing.style(f"{evidence.where} {evidence.rule}", dim=True)
    return f"{evidence.quote}  {where}".replace("\n", " ")


def changes(
    judgement: "Judgement", policy: Policy, counterfactuals: "Sequence[Counterfactual]" = ()
) -> list[str]:
    """What would have to be different for another verdict; `counterfactuals`: the results of those
    variants."""
    return [
        *(f"{other.change}: {other.reason.value}" for other in counterfactuals),
        *_other_signs(judgement, policy),
    ]


def _other_signs(judgement: "Judgement", policy: Policy) -> list[str]:
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
    lines = [f"without the signs of {stop.reason.value}: {without}"]
    if signs[0].rank.name != "STRUCTURE":
        lines.append("the agent's own closing record would take precedence")
    if not policy.is_sure(stop):
        lines.append("--ended-by user, segue or system, if you know who ended it")
    return lines
