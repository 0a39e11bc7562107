"""A report as one HTML file: no network, no scripts, timelines as SVG. All text of the report is
escaped."""

from datetime import tzinfo
from html import escape

from segue.core.runs.types import RunState
from segue.core.terminals.visible import visible
from segue.reports.types import Report, RunReport
from segue.views.diffs import count, total
from segue.views.report import parts
from segue.views.report.parts import Span
from segue.views.run.block import clean
from segue.views.verdicts import local_times

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--dim:#767676;--leg:#2f7d4f;--wait:#b7791f}
@media (prefers-color-scheme:dark){:root{--dim:#a0a0a0;--leg:#4caf7d;--wait:#d9a441}}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2.5rem}
table{border-collapse:collapse;width:100%}td,th{padding:.15rem .75rem .15rem 0;text-align:left;
vertical-align:top;overflow-wrap:anywhere}th{font-weight:normal;color:var(--dim);width:7rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid var(--line);border-radius:.4rem;
padding:.75rem;margin:.75rem 0}
.state{border-radius:.3rem;padding:.05rem .45rem;border:1px solid currentColor;font-size:.9rem}
.done{color:var(--leg)}.failed{color:#c0392b}.needs{color:var(--wait)}
svg{width:100%;height:auto;display:block;margin:.75rem 0}svg text{font:11px system-ui;fill:
var(--dim)}.leg{fill:var(--leg)}.wait{fill:var(--wait);opacity:.6}.axis{stroke:var(--line)}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;width:6rem}
"""
_WIDTH, _HEIGHT = 960, 64
_DAY_S = 86_400.0


def page(report: Report, tz: tzinfo) -> str:
    """The report as an HTML document."""
    title = parts.title(report, tz)
    body = [f"<h1>{_e(title)}</h1>", f"<p>{_e(parts.summary_line(report))}</p>"]
    waiting = [each for each in report.runs if parts.needs_you(each)]
    if waiting:
        items = (
            f"<li>{_e(each.run.id)}: {_e(parts.headline(each))}{_next(each)}</li>"
            for each in waiting
        )
        body += ["<h2>Needs you</h2><ul>", *items, "</ul>"]
    for each in report.runs:
        body += _run(each, report.until, tz)
    if report.watched:
        body.append("<h2>Sessions in terminals</h2><table>")
        for one in report.watched:
            when = _e(parts.clock_time(one.at, tz))
            body.append(f"<tr><th>{when}</th><td>{_e(parts.watched_line(one))}</td></tr>")
        body.append("</table>")
    body += [f"<p>{_e(note)}</p>" for note in report.notes]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{_e(title)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>"
    )


def _run(each: RunReport, now: float, tz: tzinfo) -> list[str]:
    run = each.run
    kind = {RunState.DONE: "done", RunState.FAILED: "failed"}.get(run.state, "needs")
    state = f'<span class="state {kind}">{_e(run.state.value)}</span>'
    what = run.outcome.what if run.outcome else parts.headline(each)
    found = [f"<h2>{_e(run.id)} {state}</h2>", f"<p>{_e(what)}</p>"]
    if each.answer:
        found.append(_block(chr(10).join(parts.answer_lines(each))))
    found.append(timeline(parts.spans(each, now), tz))
    spends = "<br>".join(_e(parts.spend_line(spend)) for spend in each.spend)
    rows = [
        ("task", _block(run.task[:4_000])),
        ("folder", _e(run.cwd)),
        ("check", _e(parts.check_line(each))),
        ("agents", _e(parts.agents_line(each))),
        ("started", _e(f"{parts.stamp(run.created_at, tz)}, {parts.times_line(each)}")),
        ("timeline", _timeline_lines(each, now, tz)),
        ("used", spends),
        ("changed", _files(each)),
        ("commits", "<br>".join(_e(f"{name} {subject}") for name, subject in each.commits)),
        ("decided", _steps(each, tz)),
        ("next", _next(each)),
    ]
    found.append("<table>")
    found += [f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows if value]
    found.append("</table>")
    return found


def timeline(spans: list[Span], tz: tzinfo) -> str:
    """Legs and waits over time, as SVG; "" for a run that never began."""
    if not spans:
        return ""
    begin, end = spans[0].since, max(span.until for span in spans)
    length = max(1.0, end - begin)
    named = parts.stamp if length > _DAY_S else parts.clock_time
    marks = []
    for span in spans:
        x = (span.since - begin) / length * _WIDTH
        wide = max(2.0, (span.until - span.since) / length * _WIDTH)
        when = f"{parts.clock_time(span.since, tz)}–{parts.clock_time(span.until, tz)}"
        marks.append(
            f'<rect class="{span.kind}" x="{x:.1f}" y="8" width="{wide:.1f}" height="24" rx="3">'
            f"<title>{_e(f'{when} {span.label}')}</title></rect>"
        )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Timeline of legs and waits">'
        f"{''.join(marks)}"
        f'<line class="axis" x1="0" y1="40" x2="{_WIDTH}" y2="40"/>'
        f'<text x="0" y="56">{_e(named(begin, tz))}</text>'
        f'<text x="{_WIDTH}" y="56" text-anchor="end">{_e(named(end, tz))}</text></svg>'
    )


def _files(each: RunReport) -> str:
    if each.files is None:
        return _e(each.note)
    rows = [
        f'<tr><td class="num">{_e(count(f))}</td><td>{_e(f.path)}</td></tr>'
        for f in each.files[: parts.MAX_FILES]
    ]
    return f"{_e(total(each.files))}<table>{''.join(rows)}</table>"


def _timeline_lines(each: RunReport, now: float, tz: tzinfo) -> str:
    """The timeline as text, for readers who cannot see the picture."""
    lines = [
        f"{parts.clock_time(span.since, tz)}–{parts.clock_time(span.until, tz)} {span.label}"
        for span in parts.spans(each, now)
    ]
    return "<br>".join(map(_e, lines))


def _steps(each: RunReport, tz: tzinfo) -> str:
    lines = [
        f"{parts.clock_time(step.at, tz)} {local_times(step.reason, step.at, tz)}"
        for step in each.steps[-parts.MAX_STEPS :]
    ]
    return "<br>".join(map(_e, lines))


def _next(each: RunReport) -> str:
    lines = parts.next_lines(each)
    return _block("\n".join(lines)) if lines else ""


def _block(text: str) -> str:
    """Preformatted lines, all of them escaped."""
    plain = escape(visible(text)).replace("\r", "").replace("\n", "&#10;")
    return f"<pre>{plain}</pre>"


def _e(text: str) -> str:
    return escape(clean(text))
