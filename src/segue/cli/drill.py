"""`segue drill`: rehearse full windows, limits and crashes against a scripted model."""

import json
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from segue.cli import tables
from segue.cli.picture import Lines, Moving, Picture, Row, table
from segue.drill import casts, load
from segue.drill.director import Director
from segue.drill.matrix import Matrix, markdown
from segue.drill.scenario import Scenario
from segue.errors import InputError
from segue.io import clock, state

TELLING = ("success", "window-fills-slowly", "short-rate-limit")
"""What is played if nothing is named."""


@click.command()
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Whom; `all` for everyone.")
@click.option("--scenario", "scenarios", multiple=True, metavar="NAME|FILE", help="What.")
@click.option("--full", is_flag=True, help="All scenarios, the slow ones too.")
@click.option("--list", "only_list", is_flag=True, help="List agents and scenarios.")
@click.option("--keep", is_flag=True, help="Leave the scratch folders, and say where they are.")
@click.option("--again", is_flag=True, help="With --full: also what was played before.")
@click.option(
    "--table", "table_file", type=click.Path(path_type=Path), help="With --full: a Markdown table."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(
    *,
    agents: tuple[str, ...],
    scenarios: tuple[str, ...],
    full: bool,
    only_list: bool,
    keep: bool,
    again: bool,
    table_file: Path | None,
    as_json: bool,
) -> None:
    """Rehearse what ends a night's work, with no account and no network.

    An agent gets a job of numbered steps from a scripted model on this machine; then its window
    fills, a limit is hit, the connection drops. At the end the repository tells whether each step
    was done once. Exit code 0 means that it was, everywhere.
    """
    if only_list:
        _list(as_json)
        return
    director = Director(keep=keep)
    matrix = Matrix(Path(state.state_folder()) / "drill.jsonl") if full else None
    plays = _plays(agents or ("rehearsal",), scenarios or (None if full else TELLING), full)
    with ExitStack() as stack:
        picture: Picture = Lines()
        if sys.stderr.isatty() and not as_json:
            picture = stack.enter_context(Moving())
        rows = []
        for cast, scenario, source in plays:
            rows.append(_play(director, cast, scenario, source, picture, None if again else matrix))
            if matrix is not None and rows[-1].outcome is not None:
                matrix.keep(rows[-1].outcome, scenario)
    if as_json:
        click.echo(json.dumps({"plays": [_as_dict(row) for row in rows]}))
    else:
        tables.console().print(table(rows))
    for row in rows:
        if keep and row.outcome is not None:
            click.echo(f"{row.agent} · {row.scenario}: {row.outcome.folder}", err=True)
    if table_file is not None:
        _write_table(table_file, rows, [scenario for _, scenario, _ in plays])
    sys.exit(0 if rows and all(row.outcome is not None and row.outcome.held for row in rows) else 1)


def _write_table(place: Path, rows: list[Row], scenarios: list[Scenario]) -> None:
    outcomes = [row.outcome for row in rows if row.outcome is not None]
    each = {scenario.name: scenario for scenario in scenarios}
    day = datetime.fromtimestamp(clock.now(), UTC).date().isoformat()
    place.write_text(markdown(outcomes, list(each.values()), day), encoding="utf-8")


def _plays(
    agents: tuple[str, ...], scenarios: tuple[str, ...] | None, full: bool
) -> list[tuple[casts.Cast, Scenario, str]]:
    names = list(casts.REAL) if "all" in agents else list(agents)
    for name in names:
        if name not in casts.NAMES:
            known = ", ".join((*casts.NAMES, "all"))
            raise InputError(f"--agent {name}: no such agent; segue can play with {known}")
    found = []
    for source in scenarios if scenarios is not None else load.names():
        scenario = load.load(source)
        found += [
            (casts.find(name), scenario, source)
            for name in names
            if full or name not in scenario.slow_for or scenarios is not None
        ]
    return sorted(found, key=lambda play: names.index(play[0].name))


def _play(
    director: Director,
    cast: casts.Cast,
    scenario: Scenario,
    source: str,
    picture: Picture,
    matrix: Matrix | None,
) -> Row:
    row = Row(cast.name, scenario.name, scenario.job.steps)
    row.refused = director.why_not(cast)
    row.started = time.monotonic()
    picture.begin(row)
    if not row.refused and matrix is not None:
        row.outcome = matrix.find(cast.name, director.version(cast), scenario)
    if not row.refused and row.outcome is None:
        row.outcome = director.play(
            cast, scenario, source, lambda event: picture.news(row, row.hear(event))
        )
    picture.end(row)
    return row


def _as_dict(row: Row) -> dict[str, Any]:
    if row.outcome is None:
        return {"agent": row.agent, "scenario": row.scenario, "refused": row.refused}
    found: dict[str, Any] = msgspec.to_builtins(row.outcome)
    return {**found, "held": row.outcome.held}


def _list(as_json: bool) -> None:
    scenarios = [load.load(name) for name in load.names()]
    if as_json:
        listed = [{"name": s.name, "about": s.about, "slow_for": s.slow_for} for s in scenarios]
        click.echo(json.dumps({"agents": list(casts.NAMES), "scenarios": listed}))
        return
    width = max(len(scenario.name) for scenario in scenarios)
    click.echo(f"agents     {', '.join(casts.NAMES)}")
    for scenario in scenarios:
        click.echo(f"{scenario.name:<{width}}  {scenario.about}")
