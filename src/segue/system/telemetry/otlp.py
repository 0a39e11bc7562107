"""OTLP over HTTP with OpenTelemetry's own SDK. The only module that imports it."""

import bisect
import logging
import os
import time
from collections.abc import Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import export as metrics
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode

from segue import __version__
from segue.system.telemetry.types import Endpoint, Measured, Sample, SpanRecord, bounds_for

_NS = 1_000_000_000
_NAME = "segue"


class Exporter:
    """Sends, and waits for the answer. `OTEL_*` variables apply: sampler, headers, certificates,
    compression, timeout, resource attributes."""

    def __init__(self, endpoint: Endpoint) -> None:
        for name in ("opentelemetry", "urllib3"):  # they would print on the user's terminal
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        own = {"service.name": os.environ.get("OTEL_SERVICE_NAME") or _NAME}
        own |= {"service.version": __version__, "service.instance.id": _instance()}
        self._resource = Resource.create(own)
        headers = endpoint.headers or None
        self._spans = self._metrics = None
        if endpoint.traces:
            self._spans = OTLPSpanExporter(endpoint=endpoint.of("traces"), headers=headers)
        if endpoint.metrics:
            self._metrics = OTLPMetricExporter(endpoint=endpoint.of("metrics"), headers=headers)
        self._ids, self._ended = _Ids(), _Ended()
        provider = TracerProvider(
            resource=self._resource, id_generator=self._ids, shutdown_on_exit=False
        )
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer(_NAME, __version__)
        self._since = time.time_ns()
        self._distributions: dict[tuple[str, tuple[Any, ...]], _Distribution] = {}

    def send(
        self,
        spans: Sequence[SpanRecord],
        samples: Sequence[Sample],
        measured: Sequence[Measured],
    ) -> bool:
        """Sends a batch; returns whether everything was accepted. An empty batch only checks
        whether the collector answers."""
        is_taken = True
        is_probe = not (spans or samples or measured)
        if self._spans is not None and (spans or is_probe):
            done = self._spans.export([self._span(span) for span in spans])
            is_taken = done is SpanExportResult.SUCCESS
        if self._metrics is not None and (samples or measured or (is_probe and not self._spans)):
            done_too = self._metrics.export(self._numbers(samples, measured))
            is_taken = is_taken and done_too is metrics.MetricExportResult.SUCCESS
        return is_taken

    def close(self) -> None:
        """Closes the connections."""
        for exporter in (self._spans, self._metrics):
            if exporter is not None:
                exporter.shutdown()

    def _span(self, record: SpanRecord) -> ReadableSpan:
        self._ids.next = record.trace_id, record.span_id(record.name)
        context = trace.Context()
        if record.parent:
            above = SpanContext(
                record.trace_id,
                record.span_id(record.parent),
                is_remote=True,
                trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED),
            )
            context = trace.set_span_in_context(NonRecordingSpan(above), context)
        span = self._tracer.start_span(
            record.title,
            context=context,
            kind=SpanKind.INTERNAL,
            attributes=dict(record.attributes),
            start_time=int(record.since * _NS),
        )
        if record.error:
            span.set_status(Status(StatusCode.ERROR, record.error))
        span.end(int(max(record.since, record.until) * _NS))
        return self._ended.take()

    def _numbers(
        self, samples: Sequence[Sample], measured: Sequence[Measured]
    ) -> metrics.MetricsData:
        found = [_metric(own, time.time_ns()) for own in _by_name(samples).values()]
        for each in measured:
            key = each.name, tuple(sorted(each.attributes.items()))
            if key not in self._distributions:
                self._distributions[key] = _Distribution(each, self._since)
            self._distributions[key].add(each.value)
        if measured:
            names = dict.fromkeys(name for name, _ in self._distributions)
            found += [self._distribution(name) for name in names]
        scope = metrics.ScopeMetrics(InstrumentationScope(_NAME, __version__), found, "")
        return metrics.MetricsData([metrics.ResourceMetrics(self._resource, [scope], "")])

    def _distribution(self, name: str) -> metrics.Metric:
        own = [each for (of, _), each in self._distributions.items() if of == name]
        points = [each.point(time.time_ns()) for each in own]
        data = metrics.Histogram(points, metrics.AggregationTemporality.CUMULATIVE)
        return metrics.Metric(name, own[0].first.description, own[0].first.unit, data)


def _instance() -> str:
    return f"{os.uname().nodename}-{os.getpid()}-{time.time_ns():x}"


class _Ids(IdGenerator):
    """Generates the ids it is given, because a span that is reported twice must keep its id."""

    def __init__(self) -> None:
        self.next = (1, 1)

    def generate_trace_id(self) -> int:
        return self.next[0]

    def generate_span_id(self) -> int:
        return self.next[1]


class _Ended(SpanProcessor):
    def __init__(self) -> None:
        self._last: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._last.append(span)

    def take(self) -> ReadableSpan:
        return self._last.pop()


class _Distribution:
    """Cumulative since the process began, as most backends expect."""

    def __init__(self, first: Measured, since_ns: int) -> None:
        self.first, self._since_ns = first, since_ns
        self._bounds = bounds_for(first.unit)
        self._counts = [0] * (len(self._bounds) + 1)
        self._values: tuple[int, float, float, float] = (0, 0.0, float("inf"), float("-inf"))

    def add(self, value: float) -> None:
        self._counts[bisect.bisect_left(self._bounds, value)] += 1
        count, total, least, most = self._values
        self._values = count + 1, total + value, min(least, value), max(most, value)

    def point(self, now_ns: int) -> metrics.HistogramDataPoint:
        count, total, least, most = self._values
        return metrics.HistogramDataPoint(
            attributes=dict(self.first.attributes),
            start_time_unix_nano=self._since_ns,
            time_unix_nano=now_ns,
            count=count,
            sum=total,
            bucket_counts=list(self._counts),
            explicit_bounds=self._bounds,
            min=least,
            max=most,
        )


def _by_name(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.name, []).append(sample)
    return found


def _metric(own: Sequence[Sample], now_ns: int) -> metrics.Metric:
    points = [
        metrics.NumberDataPoint(
            attributes=dict(each.attributes),
            start_time_unix_nano=int(each.since * _NS),
            time_unix_nano=now_ns,
            value=each.value,
        )
        for each in own
    ]
    first = own[0]
    data: metrics.Sum | metrics.Gauge = metrics.Gauge(points)
    if first.is_total:
        data = metrics.Sum(points, metrics.AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return metrics.Metric(first.name, first.description, first.unit, data)
