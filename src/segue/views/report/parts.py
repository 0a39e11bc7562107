"""The texts that all forms of a report share."""

from datetime import datetime, tzinfo

from msgspec import Struct

from segue.core.runs.types import RunState
from segue.core.stops.types import Stop
from segue.reports.types import Report, RunReport, WatchedReport
from segue.runs.results import SpendReport
from segue.runs.store.port import StoredLeg
from segue.views import tables
from segue.views.run.block import clean, counted
from segue.views.run.outcome import commands
from segue.views.run.story import ended_for
from segue.views.verdicts import duration

MAX_FILES = 40
MAX_LINES = 12
"""The maximum number of files and commits, which are listed one below the other on a terminal."""
MAX_STEPS = 12
MAX_ANSWER_LINES = 40


class Span(Struct, frozen=True, kw_only=True):
    """One bar of a timeline."""

    kind: str  # leg, wait
    since: float
    until: float
    label: str


def stamp(at: float | None, tz: tzinfo) -> str:
    """A time with its date, to the minute; "?" if unknown."""
    if at is None:
        return "?"
    try:
        return datetime.fromtimestamp(at, tz).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return "?"


def clock_time(at: float | None, tz: tzinfo) -> str:
    """The time of day; "?" for a time outside the calendar."""
    try:
        return datetime.fromtimestamp(at or 0.0, tz).strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "?"


def title(report: Report, tz: tzinfo) -> str:
    """The report's title."""
    if report.since is None:
        return f"Report on {report.runs[0].run.id}" if report.runs else "Report"
    return f"Report from {stamp(report.since, tz)} to {stamp(report.until, tz)}"


def headline(each: RunReport) -> str:
    """The state of a run, in one line."""
    run = each.run
    what = clean(run.outcome.what) if run.outcome else ""
    state = run.state.value
    if not run.state.is_final and not each.is_driven:
        state = f"{state}, but no segue drives it"
    return f"{state}: {what}" if what else state


def needs_you(each: RunReport) -> bool:
    """Whether the run needs the user: it failed, asks for them, or no process drives it."""
    run = each.run
    if run.state.is_final:
        return run.state in (RunState.NEEDS_YOU, RunState.FAILED)
    return not each.is_driven


def next_lines(each: RunReport) -> list[str]:
    """The commands to type next; none for a run that is done or continues."""
    run = each.run
    if run.state is RunState.DONE or (not run.state.is_final and each.is_driven):
        return []
    advice = [clean(line) for line in (run.outcome.advice if run.outcome else "").splitlines()]
    return [line for line in (*advice, *commands(run)) if line]


def first_line(text: str) -> str:
    """The first line of a task or an answer."""
    return next((clean(line) for line in text.splitlines() if line.strip()), "")


def answer_lines(each: RunReport) -> list[str]:
    """The agent's last message, shortened if it is long."""
    lines = each.answer.strip().splitlines()
    if len(lines) <= MAX_ANSWER_LINES:
        return lines
    more = len(lines) - MAX_ANSWER_LINES
    return [*lines[:MAX_ANSWER_LINES], f"[… {more} more lines: segue show {each.run.id} …]"]


def check_line(each: RunReport) -> str:
    """The result of the check; "" without one."""
    if not each.run.check:
        return ""
    command = clean(each.run.check)
    if each.check is None:
        return f"{command}: not run"
    tries = f", at try {each.check.tries}" if each.check.tries > 1 else ""
    ok = "passed" if each.check.ok else f"failed with exit code {each.check.exit_code}"
    return f"{command}: {ok}{tries}"


def times_line(each: RunReport) -> str:
    """The time worked and waited."""
    line = f"worked {duration(each.worked_s)}"
    return f"{line}, waited {duration(each.waited_s)}" if each.waits else line


def spend_line(each: SpendReport) -> str:
    """The usage of one model."""
    total = (
        each.input_tokens + each.output_tokens + each.cache_read_tokens + each.cache_write_tokens
    )
    name = " ".join(part for part in (each.agent, each.model) if part)
    cost = "" if each.cost_usd is None else f", ${each.cost_usd:,.2f} at list prices"
    return f"{clean(name)}: {tables.short(total)} tokens{cost}"


def agents_line(each: RunReport) -> str:
    """The agents that worked on the run, in order; "" if there was only one."""
    names: list[str] = []
    for leg in each.legs:
        if leg.agent and names[-1:] != [leg.agent]:
            names.append(leg.agent)
    return " → ".join(map(clean, names)) if len(names) > 1 else ""


def leg_line(leg: StoredLeg, stop: Stop | None, *, is_relayed: bool = False) -> str:
    """The purpose of a leg, and how it ended. `is_relayed`: the run had several agents, so the
    leg's is named."""
    what = leg.purpose if leg.purpose == "checkpoint" else leg.prompt
    how = (ended_for(stop) if stop is not None else "") or leg.reason.replace("_", " ")
    if leg.purpose == "checkpoint" and stop is not None and stop.ended_for == "handoff":
        how = "written"
    how = f"not started: {clean(leg.fault)}" if leg.fault else how
    what = f"{clean(leg.agent)}, {what}" if leg.agent and is_relayed else what
    return f"leg {leg.leg} ({what}): {how or 'running'}"


def spans(each: RunReport, now: float) -> list[Span]:
    """Legs and waits as bars, in order of time."""
    is_relayed = agents_line(each) != ""
    found = [
        Span(
            kind="leg",
            since=leg.started_at,
            until=max(leg.started_at, leg.ended_at or now),
            label=leg_line(leg, each.stops.get(leg.leg), is_relayed=is_relayed),
        )
        for leg in each.legs
        if leg.started_at is not None
    ]
    found += [
        Span(
            kind="wait",
            since=wait.since,
            until=max(wait.since, wait.until),
            label=f"waited {duration(wait.until - wait.since)}: {wait.why.replace('_', ' ')}",
        )
        for wait in each.waits
    ]
    return sorted(found, key=lambda span: span.since)


def watched_line(each: WatchedReport) -> str:
    """A line about what the daemon did to a session."""
    folder = clean(each.project).rstrip("/").rpartition("/")[2]
    why = f": {clean(each.why)}" if each.why else ""
    then = f"; segue allow {clean(each.session_id)}" if each.what == "needs you" else ""
    return f"{clean(each.agent)} in {folder} ({clean(each.session_id)[:8]}) {each.what}{why}{then}"


def summary_line(report: Report) -> str:
    """ "3 runs: 2 done, 1 needs you; 1.2M tokens, $3.20"."""
    states: dict[str, int] = {}
    for each in report.runs:
        states[each.run.state.value] = states.get(each.run.state.value, 0) + 1
    counts = ", ".join(f"{count} {name}" for name, count in states.items())
    tokens = sum(each.run.tokens for each in report.runs)
    cost = sum(each.run.cost_usd for each in report.runs)
    line = counted(len(report.runs), "run") + (f": {counts}" if counts else "")
    if tokens:
        line += f"; {tables.short(tokens)} tokens"
    return line + (f", ${cost:,.2f}" if cost else "")
