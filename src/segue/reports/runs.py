"""Reports on runs."""

from collections.abc import Mapping

from segue import fleet
from segue.core.runs.types import Run
from segue.fleet import output
from segue.reports.types import CheckReport, RunReport, Step, WaitReport
from segue.runs.store.port import Entry, Store, StoredLeg


def run_report(store: Store, run: Run, now: float, env: Mapping[str, str]) -> RunReport:
    """Everything known about a run. If something is missing, `note` says why."""
    entries = store.log(run.id)
    last = entries[-1].at if entries else run.created_at
    legs = store.legs(run.id)
    result = output.result_of(store, run, legs, env)
    return RunReport(
        run=run,
        is_driven=fleet.driver(store, run.id) is not None,
        answer=result.answer,
        ended_at=last if run.state.is_final else None,
        last_at=last,
        legs=legs,
        stops={ended.leg: ended.stop for ended in store.stops(run.id)},
        waits=_waits(entries, now),
        handoffs=_handoffs(legs),
        check=_check(entries),
        spend=list(result.spend),
        steps=[
            Step(at=ended.at, decision=ended.decision, reason=ended.reason)
            for ended in store.decisions(run.id)
            if ended.reason
        ],
        files=None if result.files is None else list(result.files),
        commits=list(result.commits),
        note=result.note,
    )


def runs_since(store: Store, since: float) -> list[Run]:
    """The runs whose log has an entry since then, the oldest first."""
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


def _handoffs(legs: list[StoredLeg]) -> list[float]:
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
