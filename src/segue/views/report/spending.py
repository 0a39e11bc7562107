"""Tokens and cost by day, project, agent or model, for people and for programs."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from segue.core.sessions.spend import Spend
from segue.sessions.count.breakdown import SpendOf
from segue.views import printing

Priced = Sequence[tuple[SpendOf, Decimal | None]]
_MAX_NAME_CHARS = 60
_HEADS = ("input", "output", "cache read", "cache write", "cost")


def rows(priced: Priced) -> list[dict[str, Any]]:
    """One entry per name, with its models; a cost is null if one of them has no list price."""
    names = dict.fromkeys(each.name for each, _ in priced)
    found = []
    for name in names:
        own = [(each, cost) for each, cost in priced if each.name == name]
        found.append({"name": name, **total(own), "models": [each.model for each, _ in own]})
    return found


def total(priced: Priced) -> dict[str, Any]:
    """The sum of all entries; the cost is null if one of them has no list price."""
    spend = sum((each.spend for each, _ in priced), Spend())
    costs = [cost for _, cost in priced]
    known = [cost for cost in costs if cost is not None]
    return {
        "input": spend.input_tokens,
        "output": spend.output_tokens,
        "cache_read": spend.cache_read_tokens,
        "cache_write": spend.cache_write_tokens,
        "cost_usd": float(sum(known, Decimal(0))) if len(known) == len(costs) else None,
    }


def text(by: str, priced: Priced) -> str:
    """A table with a total. `by`: the heading of the names."""
    listed = rows(priced)
    if not listed:
        return "nothing was spent in that time"
    cells = [[by, *_HEADS]]
    cells += [
        [printing.one_line(each["name"])[-_MAX_NAME_CHARS:], *_cells(each)] for each in listed
    ]
    cells.append(["total", *_cells(total(priced))])
    widths = [max(len(row[k]) for row in cells) for k in range(len(cells[0]))]
    lines = []
    for name, *counts in cells:
        padded = [count.rjust(wide) for count, wide in zip(counts, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *padded]).rstrip())
    return "\n".join([printing.style(lines[0], dim=True), *lines[1:]])


def _cells(each: dict[str, Any]) -> list[str]:
    counts = [f"{each[key]:,}" for key in ("input", "output", "cache_read", "cache_write")]
    cost = each["cost_usd"]
    return [*counts, "unknown" if cost is None else f"${cost:,.2f}"]
