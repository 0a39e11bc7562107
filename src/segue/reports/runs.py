"""What came of a run."""

import os
from collections.abc import Mapping

from segue.agents import drives
from segue.core.runs.types import Run
from segue.core.sessions.spend import Spend
from segue.errors import SegueError
from segue.reports.types import CheckReport, RunReport, SpendReport, Step, WaitReport
from segue.runs.folders import RunFolder
from segue.runs.legs.spending import spent
from segue.runs.store import leases
from segue.runs.store.port import Entry, KeptLeg, Store, run_key
from segue.system.config import prices
from segue.system.git import snapshots
from segue.system.git.snapshots import FileDiff

_MAX_GIT_S = 10.0


def run_report(store: Store, run: Run, now: float, env: Mapping[str, str]) -> RunReport:
    """All that is known of it. What cannot be told is left out, and `note` says why."""
    entries = store.log(run.id)
    last = entries[-1].at if entries else run.created_at
    legs = store.legs(run.id)
    files, commits, note = changes(run)
    holder = store.holder(run_key(run.id))
    return RunReport(
        run=run,
        is_driven=holder is not None and leases.is_alive(holder),
        answer=RunFolder(run.id).answer(run.leg),
        ended_at=last if run.state.is_final else None,
        last_at=last,
        legs=legs,
        stops={kept.leg: kept.stop for kept in store.stops(run.id)},
        waits=_waits(entries, now),
        handoffs=_handoffs(legs),
        check=_check(entries),
        spend=spend_of(run, legs, env),
        steps=[
            Step(at=kept.at, decision=kept.decision, reason=kept.reason)
            for kept in store.decisions(run.id)
            if kept.reason
        ],
        files=files,
        commits=commits,
        note=note,
    )


def runs_since(store: Store, since: float) -> list[Run]:
    """Those in which something happened since then, the oldest first."""
    found = []
    for run in store.runs():
        entries = store.log(run.id)
        if (entries[-1].at if entries else run.created_at) >= since:
            found.append(run)
    return found[::-1]


def _waits(entries: list[Entry], now: float) -> list[WaitReport]:
    found: list[WaitReport] = []
    begun: tuple[float, str] | None = None
    for entry in entries:
        if entry.state != "waiting":
            if begun is not None:
                found.append(WaitReport(since=begun[0], until=entry.at, why=begun[1]))
            begun = None
        elif begun is None:
            waits = [each["wait"] for each in entry.decisions if each["decision"] == "waituntil"]
            begun = entry.at, str(waits[-1]["why"]) if waits else ""
    if begun is not None:
        found.append(WaitReport(since=begun[0], until=max(now, begun[0]), why=begun[1]))
    return found


def _handoffs(legs: list[KeptLeg]) -> list[float]:
    found = []
    for leg in legs:
        at = leg.started_at or leg.planned_at
        if leg.prompt == "continuation" and leg.purpose == "work" and at is not None:
            found.append(at)
    return found


def _check(entries: list[Entry]) -> CheckReport | None:
    checks = [entry.data for entry in entries if entry.kind == "checked"]
    if not checks:
        return None
    last = checks[-1]
    return CheckReport(ok=bool(last["ok"]), exit_code=int(last["exit_code"]), tries=len(checks))


def spend_of(run: Run, legs: list[KeptLeg], env: Mapping[str, str]) -> list[SpendReport]:
    """By model where the agent's own files tell; else the sum that the legs told."""
    total: dict[tuple[str, str], SpendReport] = {}
    sessions = ((leg.agent or run.agent, leg.session_id) for leg in legs if leg.session_id)
    for agent, session_id in dict.fromkeys(sessions):
        drive = drives.find(agent)
        if drive is None or drive.session_file is None:
            continue
        path = drive.session_file(session_id, env, run.cwd)
        for model, spend in spent(drive.agent, path, session_id).items() if path else ():
            # Session by session, as the legs count it: prices may depend on the size.
            key = agent, model
            total[key] = _added(total.get(key), _priced(agent, model, spend))
    told = {agent for agent, _ in total}
    for agent in dict.fromkeys(leg.agent or run.agent for leg in legs):
        own = [leg for leg in legs if (leg.agent or run.agent) == agent]
        tokens, cost = sum(leg.tokens for leg in own), sum(leg.cost_usd for leg in own)
        if agent not in told and tokens:
            total[agent, ""] = SpendReport(
                agent=agent, model="", input_tokens=tokens, cost_usd=cost or None
            )
    return [total[key] for key in sorted(total)]


def patch_of(run: Run) -> str:
    """What it changed, as a patch; "" if there are no snapshots to tell. Raises SegueError."""
    kept = snapshots.list_all(run.cwd, run.id, max_s=_MAX_GIT_S)
    if not kept:
        return ""
    found, _ = snapshots.patch(run.cwd, kept[0].commit, kept[-1].commit, max_s=_MAX_GIT_S)
    return found.decode("utf-8", "replace")


def _added(before: SpendReport | None, more: SpendReport) -> SpendReport:
    if before is None:
        return more
    costs = (before.cost_usd, more.cost_usd)
    return SpendReport(
        agent=more.agent,
        model=more.model,
        input_tokens=before.input_tokens + more.input_tokens,
        output_tokens=before.output_tokens + more.output_tokens,
        cache_read_tokens=before.cache_read_tokens + more.cache_read_tokens,
        cache_write_tokens=before.cache_write_tokens + more.cache_write_tokens,
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
    )


def _priced(agent: str, model: str, spend: Spend) -> SpendReport:
    cost = prices.cost_usd(model, spend)
    return SpendReport(
        agent=agent,
        model=model,
        input_tokens=spend.input_tokens,
        output_tokens=spend.output_tokens,
        cache_read_tokens=spend.cache_read_tokens,
        cache_write_tokens=spend.cache_write_tokens,
        cost_usd=None if cost is None else float(cost),
    )


def changes(run: Run) -> tuple[list[FileDiff] | None, list[tuple[str, str]], str]:
    """Files that differ from before it began, its commits, and why that cannot be told."""
    if not os.path.isdir(run.cwd):
        return None, [], f"{run.cwd} is not there any more: its changes cannot be told"
    try:
        kept = snapshots.list_all(run.cwd, run.id, max_s=_MAX_GIT_S)
        if not kept:
            return None, [], "no snapshots: which files it changed is unknown"
        old, new = kept[0].commit, kept[-1].commit
        files = snapshots.files(run.cwd, old, new, max_s=_MAX_GIT_S)
        return files, snapshots.commits(run.cwd, old, new, max_s=_MAX_GIT_S), ""
    except SegueError as fault:
        return None, [], str(fault)
