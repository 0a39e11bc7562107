"""A report for a pull request or an issue. Foreign text cannot create a link, load an image,
mention a person or begin a heading."""

import re
from datetime import tzinfo

from segue.reports.types import Report, RunReport
from segue.views.diffs import counted_lines, total
from segue.views.report import parts
from segue.views.run.block import clean, cut
from segue.views.verdicts import local_times

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~])")


def markdown(report: Report, tz: tzinfo) -> str:
    """The report as Markdown."""
    lines = [f"# {parts.title(report, tz)}", "", escaped(parts.summary_line(report))]
    for each in report.runs:
        lines += ["", *_run(each, report.until, tz)]
    if report.watched:
        lines += ["", "## Sessions in terminals", ""]
        lines += [
            f"- {parts.clock_time(one.at, tz)} {escaped(parts.watched_line(one))}"
            for one in report.watched
        ]
    lines += [f"\n> {escaped(note)}" for note in report.notes]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Text that Markdown shows unchanged."""
    plain = _SPECIAL.sub(r"\\\1", clean(text)).replace("&", "&amp;").replace("<", "&lt;")
    return plain.replace(">", "&gt;").replace("@", "&#64;").replace("://", "&#58;//")


def code(text: str) -> str:
    """A code span that its text cannot leave."""
    return f"`{clean(text).replace('`', 'ʼ')}`"


def _run(each: RunReport, now: float, tz: tzinfo) -> list[str]:
    run = each.run
    lines = [f"## {run.id}: {escaped(parts.headline(each))}", ""]
    lines += [f"**Task**: {escaped(cut(parts.first_line(run.task), 300))}", ""]
    lines += [f"> {escaped(line)}" for line in parts.answer_lines(each)]
    lines += ["", "| | |", "|---|---|"]
    rows = [
        ("check", code(parts.check_line(each)) if run.check else ""),
        ("agents", escaped(parts.agents_line(each))),
        ("started", f"{parts.stamp(run.created_at, tz)}, {parts.times_line(each)}"),
        *(("used", escaped(parts.spend_line(spend))) for spend in each.spend),
        ("changed", total(each.files) if each.files is not None else escaped(each.note)),
    ]
    lines += [f"| {name} | {value} |" for name, value in rows if value]
    if each.files:
        lines += ["", "```", *counted_lines(each.files[: parts.MAX_FILES])[:-1], "```"]
    if each.commits:
        lines += ["", *(f"- {code(name)} {escaped(subject)}" for name, subject in each.commits)]
    lines += ["", "<details><summary>Timeline and decisions</summary>", ""]
    for span in parts.spans(each, now):
        when = f"{parts.clock_time(span.since, tz)}–{parts.clock_time(span.until, tz)}"
        lines.append(f"- {when} {escaped(span.label)}")
    for step in each.steps[-parts.MAX_STEPS :]:
        lines.append(
            f"- {parts.clock_time(step.at, tz)} {escaped(local_times(step.reason, step.at, tz))}"
        )
    lines += ["", "</details>"]
    if then := parts.next_lines(each):
        lines += ["", "**Next**:", "", "```", *(line.replace("```", "'''") for line in then), "```"]
    return lines
