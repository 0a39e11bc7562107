"""Figures for people and for programs."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from segue.reports.figures import Figure
from segue.views.run.block import clean, counted
from segue.views.verdicts import duration, iso

_WIDTH = 80
_TITLES = {
    "context_when_asked_spread": "context when asked, spread",
    "in_band": "asked at 85 to 90%",
    "arrived": "clean continuations",
    "repeated": "repeated actions",
    "cycle_p50": "cycle time (p50)",
    "cycle_p95": "cycle time (p95)",
    "resumes_worked": "successful resumes",
    "waited": "time waited",
    "saved": "time saved",
}
_MADE_FROM = {
    "exhaustion_rate": "session",
    "handoffs_per_session": "session",
    "saved": "session",
    "arrived": "continuation",
    "repeated": "continuation",
    "resumes_worked": "resume",
    "waits": "wait",
    "waited": "wait",
}
_MARKS = {True: "✓", False: "✗", None: " "}


def text(found: Sequence[Figure], stops: Counter[str]) -> str:
    """The figures as text of at most 80 columns: each with its target, and what it counts."""
    lines = []
    for each in found:
        target = f"target {each.target}" if each.target else ""
        name = title(each)
        lines.append(f"{_MARKS[each.is_met]} {name:<26}{with_unit(each):>12}  {target}".rstrip())
        about = f"{each.definition} ({made_from(each)})"
        lines += textwrap.wrap(about, _WIDTH - 4, initial_indent="    ", subsequent_indent="    ")
    by_reason = ", ".join(f"{clean(reason)} {count:,}" for reason, count in stops.most_common())
    lines += textwrap.wrap(
        f"  stops by reason: {by_reason or 'none'}", _WIDTH, subsequent_indent="    "
    )
    return "\n".join(lines)


def title(each: Figure) -> str:
    """A figure's name for people."""
    return _TITLES.get(each.name, each.name.replace("_", " "))


def made_from(each: Figure) -> str:
    """How many runs, handoffs or other things a figure is based on."""
    return counted(each.of, _MADE_FROM.get(each.name, "handoff"))


def with_unit(each: Figure) -> str:
    """A figure's value with its unit."""
    if each.value is None:
        return "–"
    match each.unit:
        case "share":
            return f"{100 * each.value:.1f}%"
        case "seconds":
            return duration(each.value)
        case _:
            return f"{each.value:,.2f}".removesuffix(".00")


def as_dict(
    found: Sequence[Figure], stops: Counter[str], since: float | None, until: float
) -> dict[str, Any]:
    """The figures in their documented form (docs/report.md)."""
    return {
        "schema": 1,
        "since": iso(since),
        "until": iso(until),
        "figures": [msgspec.to_builtins(each) for each in found],
        "stops": dict(stops.most_common()),
    }
