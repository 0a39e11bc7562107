"""A report as JSON."""

from typing import Any

import msgspec

from segue.reports.types import Report, RunReport
from segue.views.report import parts
from segue.views.verdicts import iso

_TIMES = ("planned_at", "started_at", "replied_at", "ended_at")


def as_dict(report: Report) -> dict[str, Any]:
    """A report in its documented form (docs/report.md)."""
    return {
        "schema": 1,
        "since": iso(report.since),
        "until": iso(report.until),
        "runs": [_run(each) for each in report.runs],
        "sessions": [{**msgspec.to_builtins(each), "at": iso(each.at)} for each in report.watched],
        "notes": report.notes,
    }


def _run(each: RunReport) -> dict[str, Any]:
    run, outcome = each.run, each.run.outcome
    return {
        "run": run.id,
        "agent": run.agent,
        "agents": [member.agent for member in run.relay] or [run.agent],
        "relays": run.relays,
        "cwd": run.cwd,
        "task": run.task,
        "state": run.state.value,
        "outcome": None
        if outcome is None
        else {"reason": outcome.reason, "what": outcome.what, "exit_code": outcome.exit_code},
        "answer": each.answer or None,
        "check": None
        if not run.check
        else {
            "command": run.check,
            "ok": each.check.ok if each.check else None,
            "exit_code": each.check.exit_code if each.check else None,
            "tries": each.check.tries if each.check else 0,
        },
        "began_at": iso(run.created_at),
        "ended_at": iso(each.ended_at),
        "worked_s": round(each.worked_s, 3),
        "waited_s": round(each.waited_s, 3),
        "legs": [
            {
                **{k: v for k, v in msgspec.to_builtins(leg).items() if k != "run"},
                **{name: iso(getattr(leg, name)) for name in _TIMES},
            }
            for leg in each.legs
        ],
        "handoffs": [iso(at) for at in each.handoffs],
        "waits": [
            {"since": iso(wait.since), "until": iso(wait.until), "why": wait.why}
            for wait in each.waits
        ],
        "files": None if each.files is None else msgspec.to_builtins(each.files),
        "commits": [{"commit": name, "subject": subject} for name, subject in each.commits],
        "spend": msgspec.to_builtins(each.spend),
        "tokens": run.tokens,
        "cost_usd": run.cost_usd,
        "decisions": [
            {"at": iso(step.at), "decision": step.decision, "reason": step.reason}
            for step in each.steps
        ],
        "needs_you": parts.needs_you(each),
        "next": parts.next_lines(each),
        "note": each.note or None,
    }
