"""`segue runs`: all runs, the unfinished first."""

import os
from typing import TYPE_CHECKING, Any

import click
from rich.cells import cell_len

from segue.cli import tables
from segue.cli.kept import driver, folder, opened
from segue.cli.render import as_json as to_json
from segue.cli.render import duration, iso
from segue.cli.telling import STATE_COLOURS, clean, cut
from segue.core.run import Run, State
from segue.io import clock
from segue.store.port import Holder

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA = 1
_USUAL = 20
_GAUGE = 8
_WIDE = 130  # columns; below, the folder's name stands before the task
_FOLDER = 40
_TASK = 100
_GAP = 2


@click.command()
@click.option("--all", "all_", is_flag=True, help=f"Also those older than the newest {_USUAL}.")
@click.option("--here", is_flag=True, help="Those of this folder alone.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(all_: bool, here: bool, as_json: bool) -> None:
    """List runs, the newest first; those that are not over before the others."""
    with opened() as store:
        found = store.runs(cwd=folder() if here else None)
        drivers = {run.id: driver(store, run) for run in found if not run.state.is_final}
    found.sort(key=_rank)  # stable: the newest stay first
    unfinished = sum(not run.state.is_final for run in found)
    shown = found if all_ else found[: max(_USUAL, unfinished)]
    now = clock.now()
    if as_json:
        listed = [as_dict(run, drivers.get(run.id)) for run in shown]
        click.echo(to_json({"schema": SCHEMA, "runs": listed}))
        return
    if not shown:
        where = " in this folder" if here else ""
        click.echo(f'no runs{where} yet; to begin one: segue run "TASK"', err=True)
        return
    screen = tables.console()
    put(screen, _table(shown, drivers, now, screen.width))
    if len(found) > len(shown):
        click.echo(f"and {len(found) - len(shown)} older: segue runs --all", err=True)
    for line in _next(shown, drivers):
        click.echo(line, err=True)


def as_dict(run: Run, holder: Holder | None = None) -> dict[str, Any]:
    """A run in its documented form (docs/json.md)."""
    reading, wait, outcome = run.reading, run.wait, run.outcome
    return {
        "run": run.id,
        "agent": run.agent,
        "state": run.state.value,
        "is_final": run.state.is_final,
        "driven_by": None if holder is None else holder.pid,
        "cwd": run.cwd,
        "task": run.task,
        "check": run.check or None,
        "flags": list(run.flags),
        "created_at": iso(run.created_at),
        "legs": run.leg,
        "handoffs": run.handoffs,
        "session_id": run.session_id or None,
        "context": None
        if reading is None
        else {
            "used": reading.used_tokens,
            "window": reading.window_tokens,
            "percent": reading.percent,
            "zone": reading.zone(run.policy).value,
        },
        "waits_until": iso(wait.until) if wait is not None and _waits(run) else None,
        "tokens": run.tokens,
        "cost_usd": run.cost_usd,
        "active_s": run.active_s,
        "exit_code": None if outcome is None else outcome.exit_code,
        "reason": None if outcome is None else outcome.reason,
        "outcome": None if outcome is None else outcome.what,
        "advice": None if outcome is None else outcome.advice,
    }


def state_of(run: Run, holder: Holder | None, now: float) -> str:
    """In a few words: what it does, and whether anybody sees to it."""
    said = run.state.value
    if run.state.is_final:
        return said
    if run.wait is not None and _waits(run) and run.wait.until > now:
        said += f" {duration(run.wait.until - now)}"
    return said if holder is not None else f"{said}, no segue"


def gauge(run: Run, bars: int = _GAUGE) -> Any:
    """How full its window is."""
    from rich.text import Text

    reading = run.reading
    if reading is None:
        return Text("")
    colour = tables.ZONE_COLOURS[reading.zone(run.policy)]
    filled = min(bars, round(reading.fraction * bars))
    return Text.assemble(
        ("█" * filled, colour),
        ("░" * (bars - filled), "dim"),
        (f"{' ' if bars else ''}{reading.fraction:>4.0%}", colour),
    )


def _waits(run: Run) -> bool:
    return run.state is State.WAITING


def _rank(run: Run) -> int:
    if not run.state.is_final:
        return 0
    return 1 if run.state is State.NEEDS_YOU else 2


def _table(shown: list[Run], drivers: dict[str, Holder | None], now: float, width: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    is_wide = width >= _WIDE
    columns: dict[str, list[Any]] = {
        "run": [run.id for run in shown],
        "agent": [cut(clean(run.agent), 16) for run in shown],
        "state": [
            Text(state_of(run, drivers.get(run.id), now), style=STATE_COLOURS[run.state])
            for run in shown
        ],
        "legs": [f"{run.leg}/{run.handoffs}" for run in shown],
        "context": [gauge(run, _GAUGE if is_wide else 0) for run in shown],
        "age": [tables.ago(run.created_at, now).removesuffix(" ago") for run in shown],
    }
    if is_wide:
        columns["folder"] = [cut(_tilde(run.cwd), _FOLDER) for run in shown]
    columns["task"] = [
        clean(run.task) if is_wide else f"{os.path.basename(run.cwd)}: {clean(run.task)}"
        for run in shown
    ]
    rows = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    left = width
    for name, cells in columns.items():
        needed = max(len(name), *(cell_len(str(cell)) for cell in cells))
        needed = min(needed, max(8, min(left, _TASK))) if name == "task" else needed
        left -= needed + _GAP
        rows.add_column(
            name,
            width=needed,
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if name in ("legs", "age") else "left",
        )
    for row in zip(*columns.values(), strict=True):
        rows.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    return rows


def put(screen: "Console", drawn: Any) -> None:
    """Prints it without the blanks at the ends of lines."""
    with screen.capture() as caught:
        screen.print(drawn)
    for line in caught.get().splitlines():
        click.echo(line.rstrip(), color=screen.is_terminal or None)


def _tilde(path: str) -> str:
    home = os.path.expanduser("~")
    return clean("~" + path[len(home) :] if path.startswith(home + "/") else path)


def _next(shown: list[Run], drivers: dict[str, Holder | None]) -> list[str]:
    """How to go on with those that do not by themselves."""
    found = [
        (run.id, "its segue is gone" if not run.state.is_final else "it needs you")
        for run in shown
        if (not run.state.is_final and drivers.get(run.id) is None) or run.state is State.NEEDS_YOU
    ]
    return [f"segue resume {name}  # {why}" for name, why in found]
