"""A report for a terminal or an email: at most 80 columns, no colours."""

import textwrap
from datetime import tzinfo

from segue.reports.types import Report, RunReport
from segue.views.diffs import counted_lines
from segue.views.report import parts
from segue.views.run.block import clean, cut
from segue.views.verdicts import local_times

WIDTH = 80
_LABEL = 10
_CLOCK = 10  # columns of a time and the gap after it


def text(report: Report, tz: tzinfo) -> str:
    """The report as plain text."""
    lines = [*_wrapped(parts.title(report, tz), ""), *_wrapped(parts.summary_line(report), "")]
    waiting = [each for each in report.runs if parts.needs_you(each)]
    if waiting:
        lines += ["", "NEEDS YOU"]
        for each in waiting:
            lines += _wrapped(f"{each.run.id}  {parts.headline(each)}", "  ")
            lines += [f"    {line}" for line in parts.next_lines(each)]
    for each in report.runs:
        lines += ["", "─" * WIDTH, *_run(each, report.until, tz)]
    if report.watched:
        lines += ["", "─" * WIDTH, "SESSIONS IN TERMINALS"]
        for one in report.watched:
            when = parts.clock_time(one.at, tz)
            lines += _wrapped(f"{when}  {parts.watched_line(one)}", "  ")
    lines += [line for note in report.notes for line in ("", *_wrapped(f"note: {note}", ""))]
    if not report.runs and not report.watched:
        lines += ["", "Nothing happened in that time. For a longer period: segue report --since 7d"]
    return "\n".join(lines)


def _run(each: RunReport, now: float, tz: tzinfo) -> list[str]:
    run = each.run
    lines = _wrapped(f"{run.id}  {parts.headline(each)}", "")
    lines += _row("task", cut(parts.first_line(run.task), 4 * WIDTH))
    lines += _row("folder", _end_of(clean(run.cwd)))
    if each.answer:
        lines += ["", *(f"  {line}" for line in _answer(each)), ""]
    lines += _row("check", parts.check_line(each))
    lines += _row("agents", parts.agents_line(each))
    lines += _row("started", f"{parts.stamp(run.created_at, tz)}, {parts.times_line(each)}")
    if each.files is not None:
        shown = counted_lines(each.files[: parts.MAX_LINES])
        more = len(each.files) - parts.MAX_LINES
        lines += _row("changed", counted_lines(each.files)[-1])
        lines += [cut(f"{'':{_LABEL}}{line}", WIDTH) for line in shown[:-1]]
        lines += [f"{'':{_LABEL}}… {more} more: segue diff {run.id} --stat"] if more > 0 else []
    for name, subject in each.commits[: parts.MAX_LINES]:
        lines += _row("commit", f"{name} {cut(clean(subject), WIDTH)}")
    more = len(each.commits) - parts.MAX_LINES
    lines += _row("commit", f"… {more} more: git log") if more > 0 else []
    for span in parts.spans(each, now):
        when = f"{parts.clock_time(span.since, tz)}–{parts.clock_time(span.until, tz)}"
        lines += _row("timeline", f"{when}  {span.label}", len(when) + 2)
    for spend in each.spend:
        lines += _row("used", parts.spend_line(spend))
    more = len(each.steps) - parts.MAX_STEPS
    lines += _row("decided", f"… {more} before these: segue logs {run.id}" if more > 0 else "")
    for step in each.steps[-parts.MAX_STEPS :]:
        why = clean(local_times(step.reason, step.at, tz))
        lines += _row("decided", f"{parts.clock_time(step.at, tz)}  {why}", _CLOCK)
    lines += _row("note", each.note)
    return _without_repeats(lines)


def _answer(each: RunReport) -> list[str]:
    found: list[str] = []
    for line in parts.answer_lines(each):
        found += textwrap.wrap(line.expandtabs(4), WIDTH - 2, break_on_hyphens=False) or [""]
    return found


def _end_of(path: str) -> str:
    """A path, cut at its beginning if it is long: its end says more."""
    room = WIDTH - _LABEL
    return path if len(path) <= room else f"…{path[1 - room :]}"


def _row(name: str, value: str, hang: int = 0) -> list[str]:
    """A labelled value, wrapped; nothing for "". `hang`: the additional indent of its other
    lines."""
    return _wrapped(f"{name:<{_LABEL}}{value}", " " * (_LABEL + hang)) if value else []


def _wrapped(line: str, indent: str) -> list[str]:
    first = indent if len(indent) < _LABEL else ""
    return textwrap.wrap(
        first + line,
        WIDTH,
        subsequent_indent=indent or "  ",
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [""]


def _without_repeats(lines: list[str]) -> list[str]:
    """Keeps a label only on the first of the lines in a row that have it."""
    found, before = [], ""
    for line in lines:
        label = line[:_LABEL].strip()
        if label and label == before and line[_LABEL - 1] == " ":
            found.append(" " * _LABEL + line[_LABEL:])
            continue
        before = label or before
        found.append(line)
    return found
