"""`segue scan`: updates the index, and prints what was spent."""

import os
import sys
from typing import TYPE_CHECKING

import click

from segue.errors import InputError
from segue.sessions import find
from segue.sessions.count.index import Index, Total, open_index, set_aside
from segue.sessions.count.scan import Scan, scan, unread_bytes
from segue.system.files import state
from segue.system.files.sqlite import raise_if_ours
from segue.views import printing

if TYPE_CHECKING:
    from segue.sessions.count.breakdown import By

_MAX_MODEL = 60
_WORTH_A_BAR = 32 << 20


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--cost", is_flag=True, help="Also show the cost at the API's list prices.")
@click.option(
    "--by",
    type=click.Choice(["day", "project", "agent", "model"]),
    help="Tokens and cost per day, project, agent or model, with a total.",
)
@click.option("--since", metavar="TIME", help="With --by: only since 12h, 7d, or a time.")
def command(as_json: bool, cost: bool, by: "By | None", since: str | None) -> None:
    """Read every session that has changed, and add up the tokens.

    segue reads only what is new since the last scan; the totals are the same as if it had read
    everything again.
    """
    import sqlite3

    if since is not None and by is None:
        raise InputError("--since needs --by day, project, agent or model")
    begun = None
    if since is not None:
        from segue.cli.support.times import instant
        from segue.system import clock

        begun = instant(since, clock.now())
    homes = find.homes(os.environ, state.added_homes())
    path = state.index_path()
    index, note = open_index(path)
    try:
        done, totals = _scan(homes, index)
    except sqlite3.DatabaseError as fault:
        raise_if_ours(fault, path)
        index.close()
        index, note = set_aside(index, str(fault))
        done, totals = _scan(homes, index)
    if note:
        printing.complain(note)
    for line in done.unreadable:
        printing.complain(line)
    if by is not None:
        _break_down(homes, index, by, begun, as_json)
        return
    costs = _costs(totals) if cost else None
    if as_json:
        printing.say_json(_as_dict(done, totals, costs))
    else:
        printing.say(_for_people(done, totals, costs))


def _break_down(
    homes: list[find.Home], index: Index, by: "By", since: float | None, as_json: bool
) -> None:
    from segue.sessions.count.breakdown import breakdown
    from segue.system import clock
    from segue.system.config import prices
    from segue.views.report import spending
    from segue.views.verdicts import iso

    found = breakdown(index, find.sessions(homes), by, clock.local_zone(), since)
    priced = [(each, prices.cost_usd(each.model, each.spend)) for each in found]
    if as_json:
        answer = {"by": by, "since": iso(since), "rows": spending.rows(priced)}
        printing.say_json({**answer, "total": spending.total(priced)})
    else:
        printing.say(spending.text(by, priced))


def _scan(homes: list[find.Home], index: Index) -> tuple[Scan, list[Total]]:
    places = [home.path for home in homes]
    known = index.stamps(places)  # first: what another scan adds later must not count as gone
    found = find.sessions(homes)
    ahead = unread_bytes(found, known) if sys.stderr.isatty() else 0
    if ahead < _WORTH_A_BAR:
        return scan(found, index, known), index.totals(places)
    with printing.progress("reading", ahead) as bar:
        done = scan(found, index, known, progress=bar.update)
    return done, index.totals(places)


def _costs(totals: list[Total]) -> list[float | None]:
    from segue.core.sessions.spend import Spend
    from segue.system.config import prices

    found = []
    for total in totals:
        spend = Spend(
            input_tokens=total.input,
            output_tokens=total.output,
            cache_read_tokens=total.cache_read,
            cache_write_tokens=total.cache_write,
            hour_write_tokens=total.hour_write,
        )
        price = prices.cost_usd(total.model, spend)
        found.append(None if price is None else float(price))
    return found


def _as_dict(
    done: Scan, totals: list[Total], costs: list[float | None] | None
) -> dict[str, object]:
    listed: list[dict[str, object]] = [total._asdict() for total in totals]
    for row in listed:
        del row["hour_write"]  # matters only for the cost
    for row, price in zip(listed, costs or (), strict=False):
        row["cost_usd"] = price
    return {
        "files": done.files,
        "bytes": done.bytes,
        "read_bytes": done.read_bytes,
        "totals": listed,
    }


def _for_people(done: Scan, totals: list[Total], costs: list[float | None] | None) -> str:
    heads = ["agent", "model", "input", "output", "cache read", "cache write"]
    rows = [
        [
            t.agent,
            printing.one_line(t.model)[:_MAX_MODEL] or "unknown",
            *(f"{n:,}" for n in t[2:6]),
        ]
        for t in totals
    ]
    if costs is not None:
        heads.append("cost")
        for row, price in zip(rows, costs, strict=True):
            row.append("unknown" if price is None else f"${price:,.2f}")
    widths = [max(len(row[k]) for row in [heads, *rows]) for k in range(len(heads))]
    lines = []
    for place, row in enumerate([heads, *rows]):
        cells = [
            cell.ljust(width) if k < 2 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        line = "  ".join(cells).rstrip()
        lines.append(printing.style(line, dim=True) if place == 0 else line)
    read = f", {_size(done.read_bytes)} of it new" if done.read_bytes else ", nothing new"
    summary = f"{done.files:,} files, {_size(done.bytes)}{read}"
    return "\n".join([*lines, summary] if rows else [summary])


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:,.0f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"
