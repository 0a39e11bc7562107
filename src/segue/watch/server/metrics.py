"""The daemon's metrics in Prometheus' text format. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from segue.system.telemetry.types import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """The public name of a number, and its labels from the outermost in."""

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()


KNOWN: dict[str, Metric] = {
    "info": Metric("segue_info", "gauge", "Always 1; the version is a label.", ("version",)),
    "uptime": Metric("segue_uptime_seconds", "gauge", "Time since the daemon was started."),
    "log_seq": Metric("segue_log_seq", "gauge", "Number of the last note in the log."),
    "sessions": Metric("segue_sessions", "gauge", "Sessions by state and zone.", ("state", "zone")),
    "crossings": Metric("segue_crossings_total", "counter", "Zones entered.", ("zone",)),
    "handoffs": Metric("segue_handoffs_total", "counter", "Handoffs by result.", ("result",)),
    "arrivals": Metric(
        "segue_arrivals_total",
        "counter",
        "Sessions that took over, by result.",
        ("result",),
    ),
    "repeats": Metric(
        "segue_repeats_total", "counter", "What they repeated in their first actions.", ("what",)
    ),
    "stops": Metric("segue_stops_total", "counter", "Stops by reason.", ("reason",)),
    "resumes": Metric("segue_resumes_total", "counter", "Sessions resumed.", ("place",)),
    "figures": Metric(
        "segue_figure", "gauge", "How well handoffs work; see docs/report.md.", ("name",)
    ),
    "notices": Metric("segue_notices_total", "counter", "Notices given to the user.", ("kind",)),
    "hook_calls": Metric("segue_hook_calls_total", "counter", "Calls by hooks.", ("event",)),
    "statusline_calls": Metric("segue_statusline_calls_total", "counter", "Calls by status lines."),
    "api_requests": Metric(
        "segue_api_requests_total", "counter", "Requests to the API by status.", ("status",)
    ),
    "api_connections": Metric("segue_api_connections", "gauge", "Open connections to the API."),
    "api_streams": Metric("segue_api_streams", "gauge", "Clients that follow /v1/events."),
}
"""By the names that the daemon uses. Other names are shown unchanged."""


def text(values: Mapping[str, Any]) -> str:
    """All known numbers, in a fixed order; any others are left out."""
    lines: list[str] = []
    names: set[str] = set()
    for key in sorted(values, key=lambda key: (_order(key), key)):
        metric = KNOWN.get(key) or Metric(f"segue_{_name(key)}", "untyped", "Not described.")
        samples = dict(_samples(values[key], metric.labels, ()))
        if metric.name in names or not samples:
            continue
        names.add(metric.name)
        lines.append(f"# HELP {metric.name} {metric.help}")
        lines.append(f"# TYPE {metric.name} {metric.type}")
        lines += [f"{metric.name}{labels} {number}" for labels, number in samples.items()]
    return "\n".join(lines) + "\n"


def samples(values: Mapping[str, Any], since: float) -> list[Sample]:
    """The same numbers for OpenTelemetry, except for the figures, which are reported with their
    meaning. `since` is when they began to grow."""
    found = []
    for key, metric in KNOWN.items():
        if key in ("info", "figures") or key not in values:
            continue
        is_total = metric.type == "counter"
        name = metric.name.replace("segue_", "segue.", 1).removesuffix("_total")
        for labels, number in _flat(values[key], metric.labels, ()):
            found.append(
                Sample(
                    name=name.removesuffix("_seconds"),
                    value=number,
                    unit="s" if name.endswith("_seconds") else "1",
                    description=metric.help,
                    attributes={f"segue.{label}": value for label, value in labels},
                    is_total=is_total,
                    since=since if is_total else 0.0,
                )
            )
    return found


def _order(key: str) -> int:
    known = list(KNOWN)
    return known.index(key) if key in KNOWN else len(known)


def _samples(
    value: Any, names: tuple[str, ...], found: tuple[tuple[str, str], ...]
) -> Iterator[tuple[str, str]]:
    for pairs, number in _flat(value, names, found):
        labels = ",".join(f'{name}="{_escaped(text)}"' for name, text in pairs)
        yield (f"{{{labels}}}" if labels else ""), _number(number)


def _flat(
    value: Any, names: tuple[str, ...], found: tuple[tuple[str, str], ...]
) -> Iterator[tuple[tuple[tuple[str, str], ...], float]]:
    if isinstance(value, Mapping):
        name = names[len(found)] if len(found) < len(names) else f"label_{len(found) + 1}"
        for key, inner in value.items():
            yield from _flat(inner, names, (*found, (name, "" if key is None else str(key))))
    elif isinstance(value, (int, float)):
        yield found, value


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(int(value))
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _name(key: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "_" for c in key)
