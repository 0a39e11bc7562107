"""Pictures as SVG. They use attributes and classes only: the page's Content-Security-Policy forbids
inline styles, so colours come from the stylesheet."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from markupsafe import Markup, escape

_WIDE = 1000  # units, not pixels: timelines and charts stretch to the page
_ROW = 26


class Piece(NamedTuple):
    """One bar of a timeline; `title` is its tooltip."""

    since: float
    until: float
    kind: str  # classes of the stylesheet
    title: str


def gauge(percent: float | None, marks: Iterable[float], zone: str, label: str) -> Markup:
    """A gauge of a window, with a tick at each mark. `percent` None draws an empty one."""
    full = 0.0 if percent is None else max(0.0, min(100.0, percent))
    ticks = Markup("").join(
        Markup('<line class="mark" x1="{0}" x2="{0}" y1="0" y2="8"/>').format(round(at, 1))
        for at in marks
        if 0 < at < 100
    )
    return Markup(
        '<svg class="gauge" viewBox="0 0 100 8" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><rect class="rail" width="100" height="8"/>'
        '<rect class="fill zone-{}" width="{}" height="8"/>{}</svg>'
    ).format(label, zone or "unknown", round(full, 2), ticks)


def timeline(rows: Sequence[Sequence[Piece]], since: float, until: float, label: str) -> Markup:
    """Rows of bars on one time axis. Bars outside of the period are cut or left out."""
    span = max(1.0, until - since)
    shapes = []
    for place, pieces in enumerate(rows):
        for piece in pieces:
            begin = max(0.0, (piece.since - since) / span * _WIDE)
            end = min(float(_WIDE), (piece.until - since) / span * _WIDE)
            if end < 0 or begin > _WIDE:
                continue
            shapes.append(
                Markup(
                    '<rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="2"><title>{}</title>'
                    "</rect>"
                ).format(
                    piece.kind,
                    round(begin, 1),
                    place * _ROW + 4,
                    round(max(3.0, end - begin), 1),
                    _ROW - 8,
                    piece.title,
                )
            )
    return Markup(
        '<svg class="timeline" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}">{}</svg>'
    ).format(_WIDE, max(1, len(rows)) * _ROW, label, Markup("").join(shapes))


def curve(
    points: Sequence[tuple[float, float]],
    marks: Sequence[tuple[str, float]],
    label: str,
    since: float,
    until: float,
) -> Markup:
    """A curve of values between 0 and 1 over time, with a horizontal line at each mark. Larger
    values are drawn as 1."""
    high = 200
    lines = Markup("").join(
        Markup('<line class="level level-{}" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
            name, _WIDE, round((1 - at) * high, 1), round((1 - at) * high, 1)
        )
        for name, at in marks
        if 0 < at <= 1
    )
    span = max(1.0, until - since)
    path = " ".join(
        f"{round(max(0.0, min(1.0, (at - since) / span)) * _WIDE, 1)},"
        f"{round((1 - max(0.0, min(1.0, y))) * high, 1)}"
        for at, y in points
    )
    return Markup(
        '<svg class="curve" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}">{}<polyline points="{}"/></svg>'
    ).format(_WIDE, high, label, lines, path)


def bars(rows: Sequence[tuple[str, float, str]], label: str) -> Markup:
    """A table of horizontal bars. `rows`: name, value, and the value as text."""
    most = max((value for _, value, _ in rows), default=0.0) or 1.0
    found = Markup("").join(
        Markup(
            '<tr><th scope="row">{}</th><td class="bar"><svg viewBox="0 0 100 10"'
            ' preserveAspectRatio="none" aria-hidden="true"><rect class="fill" width="{}"'
            ' height="10" rx="1"/></svg></td><td class="number">{}</td></tr>'
        ).format(name, round(max(0.5 if value else 0.0, value / most * 100), 1), text)
        for name, value, text in rows
    )
    return Markup('<table class="bars"><caption class="unseen">{}</caption>{}</table>').format(
        label, found
    )


def hours(since: float, until: float, tz: tzinfo) -> list[str]:
    """Five labels for a time axis, from its left end to its right end."""
    is_long = until - since > 86_400
    form = "%d %b %H:%M" if is_long else "%H:%M" if until - since > 600 else "%H:%M:%S"
    begin = datetime.fromtimestamp(since, tz)
    step = timedelta(seconds=(until - since) / 4)
    return [str(escape((begin + step * number).strftime(form))) for number in range(5)]
