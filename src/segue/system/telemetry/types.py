"""The data that is sent, as plain types that need no OpenTelemetry."""

import hashlib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

Attributes = Mapping[str, str | int | float | bool]


class SpanRecord(Struct, frozen=True, kw_only=True):
    """Something that took time and has ended. Equal names in one trace are the same span:
    whoever tells it again, after a crash, tells it with the same id."""

    trace: str  # a name; its id is made from it
    name: str  # unique in the trace
    parent: str = ""  # another span's name in it
    title: str  # what is shown
    since: float
    until: float
    attributes: Attributes = {}
    error: str = ""  # what went wrong; "" if nothing did
    seq: int = 0  # of the entry that ended it

    @property
    def trace_id(self) -> int:
        """Sixteen bytes, never 0."""
        return int.from_bytes(hashlib.sha256(self.trace.encode()).digest()[:16]) or 1

    def span_id(self, name: str) -> int:
        """Of a span of this trace: eight bytes, never 0."""
        return int.from_bytes(hashlib.sha256(f"{self.trace}\n{name}".encode()).digest()[:8]) or 1


class Sample(Struct, frozen=True, kw_only=True):
    """A number as it is now. `is_total`: it only grows, since `since`."""

    name: str
    value: float
    unit: str = "1"
    description: str = ""
    attributes: Attributes = {}
    is_total: bool = False
    since: float = 0.0


class Measured(Struct, frozen=True, kw_only=True):
    """One measurement of many: sent as a distribution."""

    name: str
    value: float
    unit: str
    description: str = ""
    attributes: Attributes = {}


class Endpoint(Struct, frozen=True, kw_only=True):
    """Where to send. What is not said here, the OTEL_* variables say."""

    url: str = ""  # the collector's, without the path of a signal
    headers: dict[str, str] = {}
    traces: bool = True
    metrics: bool = True
    is_asked: bool = False  # by the user's own file, not only by variables that others read too

    def of(self, signal: str) -> str | None:
        """The address for "traces" or "metrics"; None: by the variables."""
        return f"{self.url.rstrip('/')}/v1/{signal}" if self.url else None


def bounds_for(unit: str) -> tuple[float, ...]:
    """The conventions' buckets for durations; powers of four for everything else (tokens)."""
    if unit == "s":
        return (1, 5, 15, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 28_800)
    return tuple(float(4**power) for power in range(14))


def plain(attributes: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """Without what is empty or no plain value."""
    return {
        key: value
        for key, value in attributes.items()
        if value not in ("", None) and isinstance(value, str | int | float | bool)
    }
