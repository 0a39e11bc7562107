"""`segue show RUN`: everything known about one run."""

import os
from itertools import zip_longest
from typing import Any

import msgspec

from segue.cli.support.run.lookup import driver, find_or_newest, opened
from segue.cli.tools.config import toml
from segue.cli.work.runs import SCHEMA, agents_of, as_dict, gauge, state_of
from segue.core.handoffs.checkpoint import Checkpoint, render
from segue.core.policy import PRESETS, Policy
from segue.core.runs.types import Arrived, Run, RunState
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.fleet.database import FleetDatabase
from segue.runs.folders import RunFolder
from segue.runs.results import RunResult, is_here
from segue.runs.store import runs_path
from segue.runs.store.port import (
    Holder,
    Store,
    StoredDecision,
    StoredLeg,
    StoredReading,
    StoredStop,
)
from segue.system import clock
from segue.views import printing, tables
from segue.views.rescues.listing import rescued_from
from segue.views.run.block import STATE_COLOURS, clean, cut
from segue.views.run.outcome import commands
from segue.views.run.story import ended_for, repeated
from segue.views.verdicts import as_dict as verdict
from segue.views.verdicts import as_json as to_json
from segue.views.verdicts import duration, iso, time_of_day

_DECISIONS = 12
_TASK_LINES = 12
_ANSWER_LINES = 30
_ADDED_CHARS = 2_000


class RunAccount(msgspec.Struct, kw_only=True):
    """What the store knows about a run."""

    run: Run
    holder: Holder | None
    legs: list[StoredLeg]
    readings: list[StoredReading]
    stops: list[StoredStop]
    decisions: list[StoredDecision]
    checkpoint: Checkpoint | None
    arrivals: list[Arrived]
    """What each leg that took over repeated, in order."""
    remote: RunResult | None = None
    """The result as another machine of the fleet published it; None for a run on this machine."""


def show(name: str | None, *, as_json: bool) -> None:
    """Prints everything about a run; without a name, about the newest run of this folder. Raises
    InputError for an unknown run."""
    with opened() as store:
        account = _account(store, find_or_newest(store, name))
    if as_json:
        printing.say(to_json(_as_dict(account)))
    else:
        _print(account, clock.now())


def _account(store: Store, run: Run) -> RunAccount:
    checkpoint = store.checkpoint(run.id, run.checkpoint) if run.checkpoint else None
    return RunAccount(
        run=run,
        holder=None if run.state.is_final else driver(store, run),
        legs=store.legs(run.id),
        readings=store.readings(run.id),
        stops=store.stops(run.id),
        decisions=store.decisions(run.id),
        checkpoint=None if checkpoint is None else msgspec.convert(checkpoint, Checkpoint),
        arrivals=_arrivals(store, run),
        remote=_remote_result(store, run),
    )


def _remote_result(store: Store, run: Run) -> RunResult | None:
    if is_here(run) or not isinstance(store, FleetDatabase):
        return None
    from segue.fleet.output import result

    return result(store, run.id)


def _arrivals(store: Store, run: Run) -> list[Arrived]:
    # A segue process that took over a leg after a kill may have logged it again.
    found = {
        entry.data["leg"]: msgspec.convert({"fact": "arrived", **entry.data}, Arrived)
        for entry in store.log(run.id)
        if entry.kind == "arrived"
    }
    return [found[leg] for leg in sorted(found)]


def changed(policy: Policy) -> dict[str, Any]:
    """The settings in which a policy differs from the preset of its name."""
    usual = PRESETS.get(policy.name, Policy())
    return {
        key: msgspec.to_builtins(getattr(policy, key))
        for key in policy.__struct_fields__
        if getattr(policy, key) != getattr(usual, key)
    }


def _as_dict(account: RunAccount) -> dict[str, Any]:
    run = account.run
    times = ("planned_at", "started_at", "replied_at", "ended_at")
    stops = {ended.leg: ended.stop for ended in account.stops}
    return {
        "schema": SCHEMA,
        **as_dict(run, account.holder),
        "policy": {"name": run.policy.name, "changed": changed(run.policy)},
        "leg_list": [
            {
                **{k: v for k, v in msgspec.to_builtins(leg).items() if k != "run"},
                **{name: iso(getattr(leg, name)) for name in times},
                "ended_for": stops[leg.leg].ended_for if leg.leg in stops else "",
                "folder": _leg_folder(run, leg.leg),
            }
            for leg in account.legs
        ],
        "readings": [
            {
                "at": iso(ended.at),
                "leg": ended.leg,
                "used": ended.reading.used_tokens,
                "window": ended.reading.window_tokens,
            }
            for ended in account.readings
        ],
        "stops": [{"at": iso(k.at), "leg": k.leg, **verdict(k.stop)} for k in account.stops],
        "waits": [
            {
                "since": iso(wait["since"]),
                "until": iso(wait["until"]),
                "why": wait["why"],
                "reset_at": iso(wait["reset_at"]),
                "tries": wait["tries"],
            }
            for wait in _waits(account)
        ],
        "decisions": [
            {"at": iso(ended.at), "seq": ended.seq, **ended.data} for ended in account.decisions
        ],
        "arrivals": [
            {
                "leg": fact.leg,
                "handoff": number,
                "actions": fact.actions,
                "commands": fact.commands,
                "files": fact.files,
                "questions": fact.questions,
            }
            for number, fact in enumerate(account.arrivals, 1)
        ],
        "answer": _answer(account),
        "checkpoint": None if account.checkpoint is None else render(account.checkpoint),
        "runs_file": runs_path(),
        "folder": str(RunFolder(run.id).path),
    }


def _answer(account: RunAccount) -> str | None:
    """The agent's last message in the work so far; None if there is none."""
    if account.remote is not None:
        return account.remote.answer or None
    return RunFolder(account.run.id).answer(account.run.leg) or None


def _waits(account: RunAccount) -> list[dict[str, Any]]:
    return [made.data["wait"] for made in account.decisions if made.decision == "waituntil"]


def _leg_folder(run: Run, number: int) -> str:
    return os.path.join(RunFolder(run.id).path, f"leg-{number:03}")


def _print(account: RunAccount, now: float) -> None:
    from rich.table import Table
    from rich.text import Text

    run, tz = account.run, clock.local_zone()
    rows = Table(box=None, show_header=False, pad_edge=False)
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    before = ""

    def row(name: str, value: object) -> None:
        nonlocal before
        if value not in ("", None):
            shown = value if isinstance(value, Text) else printing.cell(str(value))
            rows.add_row("" if name == before else name, shown)
            before = name

    row("run", f"{run.id}  {agents_of(run)}")
    state = Text(state_of(run, account.holder, now), style=STATE_COLOURS[run.state])
    row("state", state)
    outcome = run.outcome
    if outcome is not None:
        row("outcome", f"{clean(outcome.what)} (exit code {outcome.exit_code})")
        row("setting", clean(outcome.change))
    answer = _answer(account) if run.state.is_final else None
    for line in _first_lines(answer or "", f"segue report {run.id}"):
        row("answer", line)
    if account.holder is not None:
        row("driven by", f"process {account.holder.pid} ({clean(account.holder.note)})")
    row("folder", clean(run.cwd))
    if run.origin is not None:
        why = run.origin.stop.reason.description
        row("origin", f"{clean(rescued_from(run.origin))} ({why}): {clean(run.origin.path)}")
    lines = run.task.splitlines()
    for line in lines[:_TASK_LINES]:
        row("task", clean(line))
    row("task", f"… {len(lines) - _TASK_LINES} more lines" if len(lines) > _TASK_LINES else "")
    for words in run.additions:
        row("added", cut(clean(words), _ADDED_CHARS))
    row("flags", clean(" ".join(run.flags)))
    row("check", clean(run.check))
    own = ", ".join(f"{key} = {toml(value)}" for key, value in changed(run.policy).items())
    row("policy", run.policy.name + (f"; {own}" if own else ""))
    row("began", f"{time_of_day(run.created_at, now, tz)}, {tables.ago(run.created_at, now)}")
    row("context", _context(account))
    stops = {ended.leg: ended.stop for ended in account.stops}
    is_relayed = len({leg.agent for leg in account.legs}) > 1
    for leg, after in zip_longest(account.legs, account.legs[1:]):
        row("leg", _leg(leg, after, stops.get(leg.leg), now, is_relayed=is_relayed))
    for number, fact in enumerate(account.arrivals, 1):
        row("handoff", f"{number}, leg {fact.leg}: {repeated(fact)}")
    row("used", _used(run))
    for wait in _waits(account):
        length = duration(wait["until"] - wait["since"])
        reset = "" if wait["reset_at"] is not None else ", no reset time was stated"
        row("wait", f"{length} until {time_of_day(wait['until'], now, tz)}: {wait['why']}{reset}")
    reasons = [ended for ended in account.decisions if ended.reason]
    more = len(reasons) - _DECISIONS
    row("decided", f"… {more} more: segue logs {run.id}" if more > 0 else "")
    for ended in reasons[-_DECISIONS:]:
        row("decided", f"{time_of_day(ended.at, now, tz)}  {clean(ended.reason)}")
    # Once a run is done, its last checkpoint is out of date.
    checkpoint = None if run.state is RunState.DONE else account.checkpoint
    if checkpoint is not None:
        row("checkpoint", f"{run.checkpoint}, {_words(checkpoint)}; all of it is below")
    row("files", RunFolder(run.id).path)
    if outcome is not None:
        for line in outcome.advice.splitlines():
            if f"segue show {run.id}" not in line:  # the user has just run it
                row("next", clean(line))
    for line in commands(run):
        row("next", line)
    screen = printing.console()
    printing.draw(screen, rows)
    if checkpoint is not None:
        printing.say(f"\ncheckpoint {run.checkpoint}\n")
        printing.say(render(checkpoint, with_task=False))


def _first_lines(text: str, more: str) -> list[str]:
    lines = text.strip().splitlines()
    cut_off = len(lines) - _ANSWER_LINES
    more_lines = [f"… {cut_off} more lines: {more}"] if cut_off > 0 else []
    return [*lines[:_ANSWER_LINES], *more_lines]


def _context(account: RunAccount) -> Any:
    reading = account.run.reading
    if reading is None:
        return ""
    text = gauge(account.run, 12)
    text.append(f" {reading.used_tokens:,} of {reading.window_tokens:,} tokens")
    most = max((each.reading.fraction for each in account.readings), default=0.0)
    text.append(f"; {len(account.readings)} readings, at most {most:.0%}")
    return text


def _leg(
    leg: StoredLeg, after: StoredLeg | None, stop: Stop | None, now: float, *, is_relayed: bool
) -> str:
    # In older runs, these reasons may only mean that segue ended the leg for a checkpoint.
    is_ours = leg.reason in (StopReason.COMPLETED, StopReason.TIMEOUT)
    is_handed_over = after is not None and (
        after.purpose == "checkpoint" or (is_ours and after.prompt == "continuation")
    )
    parts = [f"{leg.leg}", *([clean(leg.agent)] if is_relayed else [])]
    parts.append(leg.purpose if leg.purpose == "checkpoint" else leg.prompt)
    if leg.fault:
        parts.append(f"not started: {clean(leg.fault)}")
    else:
        own = ended_for(stop) if stop is not None else ""
        own = own or ("handed over" if is_handed_over else "")
        parts.append(own or leg.reason.replace("_", " ") or "running")
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
    own = "with" if checkpoint.summary is not None else "without"
    return f"{own} the session's own summary"
