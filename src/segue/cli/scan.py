"""`segue scan`: bring the index up to date, and say what was spent."""

import json
import os
import sys

import click

from segue.io import state
from segue.io.sqlite import raise_if_ours
from segue.transcripts import find
from segue.transcripts.index import Index, Total, open_index, set_aside
from segue.transcripts.scan import Scan, scan, unread_bytes

_WORTH_A_BAR = 32 << 20


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--cost", is_flag=True, help="Also what it costs at the API's list prices.")
def command(as_json: bool, cost: bool) -> None:
    """Read every session that has changed, and sum up the tokens.

    Reads only what is new since the last time; the sum is the same as if all were read again.
    """
    import sqlite3

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
        click.echo(f"segue: {note}", err=True)
    for line in done.unreadable:
        click.echo(f"segue: {line}", err=True)
    costs = _costs(totals) if cost else None
    if as_json:
        click.echo(json.dumps(_as_dict(done, totals, costs)))
    else:
        click.echo(_for_people(done, totals, costs))


def _scan(homes: list[find.Home], index: Index) -> tuple[Scan, list[Total]]:
    places = [home.path for home in homes]
    known = index.stamps(places)  # first: what another scan adds from now on is not gone
    found = find.sessions(homes)
    ahead = unread_bytes(found, known) if sys.stderr.isatty() else 0
    if ahead < _WORTH_A_BAR:
        return scan(found, index, known), index.totals(places)
    with click.progressbar(length=ahead, label="reading", file=sys.stderr) as bar:
        done = scan(found, index, known, progress=bar.update)
    return done, index.totals(places)


def _costs(totals: list[Total]) -> list[float | None]:
    from segue.core.spend import Spend
    from segue.io import prices

    found = []
    for total in totals:
        spend = Spend(
            input_tokens=total.input,
            output_tokens=total.output,
            cache_read_tokens=total.cache_read,
            cache_write_tokens=total.cache_write,
        )
        price = prices.cost_usd(total.model, spend)
        found.append(None if price is None else float(price))
    return found


def _as_dict(
    done: Scan, totals: list[Total], costs: list[float | None] | None
) -> dict[str, object]:
    listed: list[dict[str, object]] = [total._asdict() for total in totals]
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
    rows = [[t.agent, t.model or "unknown", *(f"{n:,}" for n in t[2:])] for t in totals]
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
        lines.append(click.style(line, dim=True) if place == 0 else line)
    read = f", {_size(done.read_bytes)} of it new" if done.read_bytes else ", nothing new"
    summary = f"{done.files:,} files, {_size(done.bytes)}{read}"
    return "\n".join([*lines, summary] if rows else [summary])


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:,.0f} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"
