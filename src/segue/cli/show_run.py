"""`segue show RUN`: all that is known about one run."""

import os
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
import msgspec

from segue.cli import tables
from segue.cli.config import toml
from segue.cli.kept import driver, find, opened
from segue.cli.render import as_dict as verdict
from segue.cli.render import as_json as to_json
from segue.cli.render import duration, iso
from segue.cli.report import commands
from segue.cli.runs import SCHEMA, as_dict, gauge, put, state_of
from segue.cli.telling import STATE_COLOURS, clean, cut, moment
from segue.core.checkpoint import Checkpoint, render
from segue.core.policy import PRESETS, Policy
from segue.core.run import Run
from segue.core.stop import StopReason
from segue.io import clock
from segue.runner.folders import RunFolder, read
from segue.store import runs_path
from segue.store.port import Holder, KeptDecision, KeptLeg, KeptReading, KeptStop, Store

_DECISIONS = 12
_TASK_LINES = 12


class Account(msgspec.Struct, kw_only=True):
    """What the store knows of a run."""

    run: Run
    holder: Holder | None
    legs: list[KeptLeg]
    readings: list[KeptReading]
    stops: list[KeptStop]
    decisions: list[KeptDecision]
    checkpoint: Checkpoint | None


def show(name: str, *, as_json: bool) -> None:
    """Prints it. Raises InputError for a run that is not there."""
    with opened() as store:
        told = _account(store, find(store, name))
    if as_json:
        click.echo(to_json(_as_dict(told)))
    else:
        _print(told, clock.now())


def _account(store: Store, run: Run) -> Account:
    kept = store.checkpoint(run.id, run.checkpoint) if run.checkpoint else None
    return Account(
        run=run,
        holder=None if run.state.is_final else driver(store, run),
        legs=store.legs(run.id),
        readings=store.readings(run.id),
        stops=store.stops(run.id),
        decisions=store.decisions(run.id),
        checkpoint=None if kept is None else msgspec.convert(kept, Checkpoint),
    )


def changed(policy: Policy) -> dict[str, Any]:
    """What differs from the preset of its name."""
    usual = PRESETS.get(policy.name, Policy())
    return {
        key: msgspec.to_builtins(getattr(policy, key))
        for key in policy.__struct_fields__
        if getattr(policy, key) != getattr(usual, key)
    }


def _as_dict(told: Account) -> dict[str, Any]:
    run = told.run
    times = ("planned_at", "started_at", "replied_at", "ended_at")
    return {
        "schema": SCHEMA,
        **as_dict(run, told.holder),
        "policy": {"name": run.policy.name, "changed": changed(run.policy)},
        "leg_list": [
            {
                **{k: v for k, v in msgspec.to_builtins(leg).items() if k != "run"},
                **{name: iso(getattr(leg, name)) for name in times},
                "folder": _leg_folder(run, leg.leg),
            }
            for leg in told.legs
        ],
        "readings": [
            {
                "at": iso(kept.at),
                "leg": kept.leg,
                "used": kept.reading.used_tokens,
                "window": kept.reading.window_tokens,
            }
            for kept in told.readings
        ],
        "stops": [{"at": iso(k.at), "leg": k.leg, **verdict(k.stop)} for k in told.stops],
        "waits": [
            {
                "since": iso(wait["since"]),
                "until": iso(wait["until"]),
                "why": wait["why"],
                "reset_at": iso(wait["reset_at"]),
                "tries": wait["tries"],
            }
            for wait in _waits(told)
        ],
        "decisions": [
            {"at": iso(kept.at), "seq": kept.seq, **kept.data} for kept in told.decisions
        ],
        "answer": _answer(run),
        "checkpoint": None if told.checkpoint is None else render(told.checkpoint),
        "runs_file": runs_path(),
        "folder": str(RunFolder(run.id).path),
    }


def _answer(run: Run) -> str | None:
    """The last words of the work, as far as it got."""
    for number in range(run.leg, 0, -1):
        if text := read(Path(_leg_folder(run, number), "answer.md")):
            return text
    return None


def _waits(told: Account) -> list[dict[str, Any]]:
    return [kept.data["wait"] for kept in told.decisions if kept.decision == "waituntil"]


def _leg_folder(run: Run, number: int) -> str:
    return os.path.join(RunFolder(run.id).path, f"leg-{number:03}")


def _print(told: Account, now: float) -> None:
    from rich.table import Table
    from rich.text import Text

    run, tz = told.run, clock.local_zone()
    rows = Table(box=None, show_header=False, pad_edge=False)
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    before = ""

    def row(name: str, value: object) -> None:
        nonlocal before
        if value not in ("", None):
            shown = value if isinstance(value, Text) else Text(str(value))
            rows.add_row("" if name == before else name, shown)
            before = name

    row("run", f"{run.id}  {clean(run.agent)}")
    said = Text(state_of(run, told.holder, now), style=STATE_COLOURS[run.state])
    row("state", said)
    if told.holder is not None:
        row("driven by", f"process {told.holder.pid} ({clean(told.holder.note)})")
    row("folder", clean(run.cwd))
    lines = run.task.splitlines()
    for line in lines[:_TASK_LINES]:
        row("task", clean(line))
    row("task", f"… {len(lines) - _TASK_LINES} more lines" if len(lines) > _TASK_LINES else "")
    row("flags", clean(" ".join(run.flags)))
    row("check", clean(run.check))
    own = ", ".join(f"{key} = {toml(value)}" for key, value in changed(run.policy).items())
    row("policy", run.policy.name + (f"; {own}" if own else ""))
    row("began", f"{moment(run.created_at, now, tz)}, {tables.ago(run.created_at, now)}")
    row("context", _context(told))
    for leg, after in zip_longest(told.legs, told.legs[1:]):
        row("leg", _leg(leg, after, now))
    row("used", _used(run))
    for wait in _waits(told):
        length = duration(wait["until"] - wait["since"])
        reset = "" if wait["reset_at"] is not None else ", no reset time was told"
        row("wait", f"{length} until {moment(wait['until'], now, tz)}: {wait['why']}{reset}")
    reasons = [kept for kept in told.decisions if kept.reason]
    more = len(reasons) - _DECISIONS
    row("decided", f"… {more} more: segue logs {run.id}" if more > 0 else "")
    for kept in reasons[-_DECISIONS:]:
        row("decided", f"{moment(kept.at, now, tz)}  {clean(kept.reason)}")
    if told.checkpoint is not None:
        row("checkpoint", f"{run.checkpoint}, {_words(told.checkpoint)}; all of it is below")
    row("files", RunFolder(run.id).path)
    if (outcome := run.outcome) is not None:
        row("outcome", f"{clean(outcome.what)} (exit code {outcome.exit_code})")
        row("setting", clean(outcome.change))
        for line in outcome.advice.splitlines():
            row("next", clean(line))
    for line in commands(run):
        row("next", line)
    screen = tables.console()
    put(screen, rows)
    if told.checkpoint is not None:
        click.echo(f"\ncheckpoint {run.checkpoint}\n")
        click.echo(_printable(render(told.checkpoint, with_task=False)))


def _context(told: Account) -> Any:
    reading = told.run.reading
    if reading is None:
        return ""
    text = gauge(told.run, 12)
    text.append(f" {reading.used_tokens:,} of {reading.window_tokens:,} tokens")
    most = max((kept.reading.fraction for kept in told.readings), default=0.0)
    text.append(f"; {len(told.readings)} readings, at most {most:.0%}")
    return text


def _leg(leg: KeptLeg, after: KeptLeg | None, now: float) -> str:
    # segue ended it, for a checkpoint: what the stop itself says is of no interest.
    is_ours = leg.reason in (StopReason.COMPLETED, StopReason.TIMEOUT)
    is_handed_over = after is not None and (
        after.purpose == "checkpoint" or (is_ours and after.prompt == "continuation")
    )
    parts = [f"{leg.leg}", leg.purpose if leg.purpose == "checkpoint" else leg.prompt]
    if leg.fault:
        parts.append(f"not started: {clean(leg.fault)}")
    else:
        parts.append("handed over" if is_handed_over else leg.reason.replace("_", " ") or "running")
    if leg.ended_at is not None:
        parts.append(f"{tables.short(leg.tokens)} tokens")
        parts += [f"${leg.cost_usd:,.2f}"] if leg.cost_usd else []
        parts += [duration(leg.active_s)] if leg.started_at is not None else []
        parts += ["no progress"] if not leg.progressed and leg.purpose == "work" else []
    elif leg.started_at is not None:
        parts.append(duration(now - leg.started_at))
    return "  ".join([*parts, cut(clean(leg.session_id), 40)]).rstrip()


def _used(run: Run) -> str:
    cost = f", ${run.cost_usd:,.2f} at list prices" if run.cost_usd else ""
    return f"{tables.short(run.tokens)} tokens{cost}, {duration(run.active_s)} of work"


def _words(checkpoint: Checkpoint) -> str:
    own = "with" if checkpoint.told is not None else "without"
    return f"{own} the session's own words"


def _printable(text: str) -> str:
    """Line by line: nothing of an agent's text reaches a terminal but printable characters."""
    lines = ("".join(c if c.isprintable() else " " for c in line) for line in text.splitlines())
    return "\n".join(lines)
