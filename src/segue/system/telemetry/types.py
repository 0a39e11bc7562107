"""The data that is sent, as plain types that need no OpenTelemetry."""

import hashlib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

Attributes = Mapping[str, str | int | float | bool]


class SpanRecord(Struct, frozen=True, kw_only=True):
    """Something that took time and has ended. Equal names in one trace are the same span: if it is
    reported again after a crash, it has the same id."""

    trace: str  # a name, from which its id is derived
    name: str  # unique in the trace
    parent: str = ""  # the name of the parent span
    title: str  # the visible name
    since: float
    until: float
    attributes: Attributes = {}
    error: str = ""  # the error message, or ""
    seq: int = 0  # time of the entry that ended it

    @property
    def trace_id(self) -> int:
        """The trace id: sixteen bytes, never 0."""
        return int.from_bytes(hashlib.sha256(self.trace.encode()).digest()[:16]) or 1

    def span_id(self, name: str) -> int:
        """The id of a span in this trace: eight bytes, never 0."""
        return int.from_bytes(hashlib.sha256(f"{self.trace}\n{name}".encode()).digest()[:8]) or 1


class Sample(Struct, frozen=True, kw_only=True):
    """The current value of a number. `is_total`: it only grows, since `since`."""

    name: str
    value: float
    unit: str = "1"
    description: str = ""
    attributes: Attributes = {}
    is_total: bool = False
    since: float = 0.0


class Measured(Struct, frozen=True, kw_only=True):
    """One value of a distribution."""

    name: str
    value: float
    unit: str
    description: str = ""
    attributes: Attributes = {}


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where to send. The OTEL_* variables apply to anything that is not set here."""

    url: str = ""  # the collector's URL, without the path of a signal
    headers: dict[str, str] = {}
    traces: bool = True
    metrics: bool = True
    # set in the user's own file, not only by variables that other programs read too
    is_asked: bool = False

    def of(self, signal: str) -> str | None:
        """The address for "traces" or "metrics"; None: as the variables say."""
        return f"{self.url.rstrip('/')}/v1/{signal}" if self.url else None


def bounds_for(unit: str) -> tuple[float, ...]:
    """The conventions' buckets for durations; powers of four for everything else (tokens)."""
    if unit == "s":
        return (1, 5, 15, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 28_800)
    return tuple(float(4**power) for power in range(14))


def plain(attributes: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """Leaves out empty values and those that are not plain."""
    return {
        key: value
        for key, value in attributes.items()
        if value not in ("", None) and isinstance(value, str | int | float | bool)
    }
