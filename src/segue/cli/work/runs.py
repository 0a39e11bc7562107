"""`segue runs`: all runs, the unfinished ones first."""

import os
from typing import Any

import click
from rich.cells import cell_len

from segue.cli.support.run.lookup import driver, folder, opened
from segue.core.runs.types import Run, RunState
from segue.runs.store.owners import run_summary
from segue.runs.store.port import Holder
from segue.system import clock
from segue.views import printing, tables
from segue.views.rescues.listing import origin_as_dict, rescued_from
from segue.views.run.block import STATE_COLOURS, clean, cut
from segue.views.verdicts import as_json as to_json
from segue.views.verdicts import iso

SCHEMA = 1
_USUAL = 20
_GAUGE = 8
_WIDE = 130  # columns; on a narrower terminal, the folder's name precedes the task
_FOLDER = 40
_TASK = 100
_GAP = 2


@click.command()
@click.option("--all", "all_", is_flag=True, help=f"All runs, not only the newest {_USUAL}.")
@click.option("--here", is_flag=True, help="Only runs of this folder.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(all_: bool, here: bool, as_json: bool) -> None:
    """List runs: unfinished ones first, then the newest first."""
    with opened() as store:
        found = store.runs(cwd=folder() if here else None)
        drivers = {run.id: driver(store, run) for run in found if not run.state.is_final}
    found.sort(key=_rank)  # stable: the newest stay first
    unfinished = sum(not run.state.is_final for run in found)
    shown = found if all_ else found[: max(_USUAL, unfinished)]
    now = clock.now()
    if as_json:
        listed = [as_dict(run, drivers.get(run.id)) for run in shown]
        printing.say(to_json({"schema": SCHEMA, "runs": listed}))
        return
    if not shown:
        where = " in this folder" if here else ""
        printing.say(f'no runs{where} yet; start one: segue run "TASK"', err=True)
        return
    screen = printing.console()
    printing.draw(screen, _table(shown, drivers, now, screen.width))
    if len(found) > len(shown):
        printing.say(f"and {len(found) - len(shown)} older: segue runs --all", err=True)
    for line in _next(shown, drivers):
        printing.say(line, err=True)


def as_dict(run: Run, holder: Holder | None = None) -> dict[str, Any]:
    """A run in its documented form (docs/json.md)."""
    reading, wait, outcome = run.reading, run.wait, run.outcome
    return {
        "run": run.id,
        "agent": run.agent,
        "agents": [member.agent for member in run.relay] or [run.agent],
        "relays": run.relays,
        "state": run.state.value,
        "is_final": run.state.is_final,
        "interrupted": run.interrupted or None,
        "driven_by": None if holder is None else holder.pid,
        "cwd": run.cwd,
        "task": run.task,
        "said": list(run.additions),
        "origin": None if run.origin is None else origin_as_dict(run.origin),
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
        "waits_until": iso(wait.until)
        if wait is not None and run.state is RunState.WAITING
        else None,
        "tokens": run.tokens,
        "cost_usd": run.cost_usd,
        "active_s": run.active_s,
        "exit_code": None if outcome is None else outcome.exit_code,
        "reason": None if outcome is None else outcome.reason,
        "outcome": None if outcome is None else outcome.what,
        "advice": None if outcome is None else outcome.advice,
    }


def agents_of(run: Run) -> str:
    """The agent that works on a run; if another one started it, both: claude → codex."""
    first = run.relay[0].agent if run.relay else run.agent
    if not run.relays or first == run.agent:
        return clean(run.agent)
    return f"{clean(first)} → {clean(run.agent)}"


def state_of(run: Run, holder: Holder | None, now: float) -> str:
    """The state of a run in a few words, and whether a process drives it."""
    return tables.run_state(run_summary(run, holder), now)


def gauge(run: Run, bars: int = _GAUGE) -> Any:
    """How full the window of a run's session is; empty if unknown."""
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


def _rank(run: Run) -> int:
    if not run.state.is_final:
        return 0
    return 1 if run.state is RunState.NEEDS_YOU else 2


def _table(shown: list[Run], drivers: dict[str, Holder | None], now: float, width: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    is_wide = width >= _WIDE
    columns: dict[str, list[Any]] = {
        "run": [run.id for run in shown],
        "agent": [cut(agents_of(run), 20) for run in shown],
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
        _task(run) if is_wide else f"{os.path.basename(run.cwd)}: {_task(run)}" for run in shown
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


def _task(run: Run) -> str:
    if run.origin is None:
        return clean(run.task)
    return f"{clean(rescued_from(run.origin))}: {clean(run.task)}"


def _tilde(path: str) -> str:
    home = os.path.expanduser("~")
    return clean("~" + path[len(home) :] if path.startswith(home + "/") else path)


def _next(shown: list[Run], drivers: dict[str, Holder | None]) -> list[str]:
    """A line for each run that does not continue by itself, with the command that resumes it."""
    found = []
    for run in shown:
        if run.state is RunState.NEEDS_YOU:
            found.append(f"needs you: segue resume {run.id}")
        elif not run.state.is_final and drivers.get(run.id) is None:
            why = f"by {clean(run.interrupted)}" if run.interrupted else "its segue process is gone"
            found.append(f"interrupted: segue resume {run.id}  # {why}")
    return found
