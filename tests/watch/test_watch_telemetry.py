"""OpenTelemetry from the daemon: what it counts, the figures, and handoffs in terminals."""

from pathlib import Path

from msgspec.structs import replace
from support.running import stage
from support.watch.collector import collecting
from support.watching import watching

from segue.watch.log import Note
from segue.watch.telemetry import span_of


def test_the_daemon_sends_what_it_counts_and_the_figures_with_their_definitions(
    tmp_path: Path,
) -> None:
    with collecting() as collector, stage("success", within=tmp_path) as s:
        s.config(f'[otel]\nendpoint = "{collector.url}"\n')
        assert s.run("--check", "true", OTEL_SDK_DISABLED="true").code == 0
        assert not collector.bodies
        with watching(s.home, s.env) as watch:
            watch.until(lambda: "segue.figure.waits" in collector.metrics, "the figures")
            assert watch.stop() == 0
        figure = collector.metrics["segue.figure.exhaustion_rate"]
        assert figure.description.endswith("; target: 0%")
        assert figure.gauge.data_points[0].as_double == 0
        assert collector.metrics["segue.uptime"].unit == "s"
        (stops,) = collector.metrics["segue.figure.stops"].sum.data_points
        assert stops.as_int == 1


def test_a_handoff_in_a_terminal_is_a_span_as_long_as_it_took() -> None:
    data = {"outcome": "done", "duration_s": 12.0, "trigger_fraction": 0.86}
    note = Note(
        seq=7, at=100.0, kind="metrics", agent="claude", session_id="s", project="/p", data=data
    )
    span = span_of(note)
    assert span is not None
    assert (span.since, span.until, span.error) == (88.0, 100.0, "")
    assert "/p" not in str(span)
    failed = span_of(replace(note, data={**data, "outcome": "gave_up"}))
    assert failed is not None
    assert failed.error == "gave_up"
    assert span_of(replace(note, kind="stop")) is None
