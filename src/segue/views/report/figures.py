"""The figures for people and for programs."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from segue.reports.figures import Figure
from segue.views.run_block import clean
from segue.views.verdicts import duration, iso

_WIDTH = 80
_MARKS = {True: "✓", False: "✗", None: " "}


def text(found: Sequence[Figure], stops: Counter[str]) -> str:
    """At most 80 columns: each with its target, and what it counts."""
    lines = []
    for each in found:
        target = f"target {each.target}" if each.target else ""
        name = each.name.replace("_", " ")
        lines.append(f"{_MARKS[each.is_met]} {name:<26}{shown(each):>12}  {target}".rstrip())
        about = f"{each.definition} (of {each.of:,})"
        lines += textwrap.wrap(about, _WIDTH - 4, initial_indent="    ", subsequent_indent="    ")
    told = ", ".join(f"{clean(reason)} {count:,}" for reason, count in stops.most_common())
    lines += textwrap.wrap(f"  stops by reason: {told or 'none'}", _WIDTH, subsequent_indent="    ")
    return "\n".join(lines)


def shown(each: Figure) -> str:
    """The value in its unit."""
    if each.value is None:
        return "–"
    match each.unit:
        case "share":
            return f"{100 * each.value:.1f} %"
        case "seconds":
            return duration(each.value)
        case _:
            return f"{each.value:,.2f}".removesuffix(".00")


def as_dict(
    found: Sequence[Figure], stops: Counter[str], since: float | None, until: float
) -> dict[str, Any]:
    """The documented form (docs/report.md)."""
    return {
        "schema": 1,
        "since": iso(since),
        "until": iso(until),
        "figures": [msgspec.to_builtins(each) for each in found],
        "stops": dict(stops.most_common()),
    }
