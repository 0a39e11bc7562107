"""OpenTelemetry: a run is one trace, and telemetry never delays it."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.running import stage
from support.runs.crowd import BOTH, POLICY
from support.watch.collector import Collector, collecting, plain

QUIET = """
import sys
from segue.start import main
try:
    main()
finally:
    loaded = [name for name in sys.modules if name.startswith("opentelemetry")]
    print(f"loaded: {loaded}", file=sys.stderr)
"""


def otel(collector: Collector) -> str:
    return f'[otel]\nendpoint = "{collector.url}"\n'


def ids(spans: list[Any]) -> list[bytes]:
    return [bytes(span.span_id) for span in spans]


def test_a_run_its_legs_waits_and_handoffs_are_spans_of_one_trace_by_the_genai_conventions(
    tmp_path: Path,
) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(BOTH)
    with collecting() as collector, stage(scenario, within=tmp_path, policy=POLICY) as s:
        s.config(otel(collector), POLICY)
        ended = s.run("--check", "true")
        assert (ended.code, s.continuity().is_whole) == (0, True), ended.stderr
        (run,) = s.run_ids()
        with s.store() as store:
            legs = store.legs(run)
            entries = store.log(run)
        (root,) = collector.named("invoke_workflow segue run")
        assert {span.trace_id for span in collector.spans} == {root.trace_id}
        assert len(set(ids(collector.spans))) == len(collector.spans)
        below = [span for span in collector.spans if span is not root]
        assert {bytes(span.parent_span_id) for span in below} == {bytes(root.span_id)}
        assert not root.parent_span_id
        told = plain(root.attributes)
        assert told["gen_ai.operation.name"] == "invoke_workflow"
        assert (told["segue.run.id"], told["segue.run.state"]) == (run, "done")
        assert (told["segue.run.exit_code"], told["segue.run.waits"]) == (0, 1)
        # Legs: every one that ran, with its session, its model and its tokens.
        shown = collector.named(f"invoke_agent {s.agent}")
        assert [plain(span.attributes)["segue.leg"] for span in shown] == [
            leg.leg for leg in legs if leg.started_at
        ]
        for span, leg in zip(shown, legs, strict=True):
            own = plain(span.attributes)
            assert own["gen_ai.conversation.id"] == leg.session_id
            assert own["gen_ai.operation.name"] == "invoke_agent"
            assert own["gen_ai.request.model"]
            assert own["gen_ai.usage.output_tokens"] > 0
            assert abs(span.start_time_unix_nano / 1e9 - (leg.started_at or 0)) < 0.001
            assert abs(span.end_time_unix_nano / 1e9 - (leg.ended_at or 0)) < 0.001
        limited = [plain(s.attributes) for s in shown if s.status.code == 2]
        assert [own["error.type"] for own in limited] == ["rate_limit"]
        (wait,) = collector.named("wait rate_limit")
        assert wait.end_time_unix_nano > wait.start_time_unix_nano
        (handoff,) = collector.named("handoff")
        asked = plain(handoff.attributes)
        assert 0.5 < asked["segue.context.fraction"] <= 1
        # Metrics: distributions of the conventions, and the figures.
        usage = collector.metrics["gen_ai.client.token.usage"].histogram.data_points
        kinds = {plain(point.attributes)["gen_ai.token.type"] for point in usage}
        assert kinds == {"input", "output"}
        assert sum(point.sum for point in usage) == sum(leg.tokens for leg in legs)
        (whole,) = collector.metrics["gen_ai.workflow.duration"].histogram.data_points
        assert abs(whole.sum - (entries[-1].at - entries[0].at)) < 0.001
        figure = collector.metrics["segue.figure.handoffs_per_session"].gauge.data_points[0]
        assert figure.as_double == 0.5
        # Nothing of the work itself.
        everything = b"".join(collector.bodies)
        assert s.task.encode()[:40] not in everything
        assert str(s.project).encode() not in everything
        assert {own["service.name"] for own in collector.resources} == {"segue"}


def test_a_run_that_continues_after_a_kill_adds_to_its_trace_and_tells_nothing_twice(
    tmp_path: Path,
) -> None:
    with collecting() as collector, stage("success", within=tmp_path) as s:
        once = (
            "test -e again && exit 0; touch again;"
            " echo 'Error: 429 rate limit exceeded, please retry after 7200 seconds' >&2; exit 1"
        )
        command = json.dumps(["sh", "-c", once])
        s.config(f"{otel(collector)}[agents.limited]\ncommand = {command}\n")
        process = s.start("run", "--agent", "limited", "x")
        s.until(lambda: collector.named("invoke_agent limited"))
        (run,) = s.run_ids()
        mark = s.home / "runs" / run / "telemetry"
        s.until(mark.exists)
        process.kill()
        process.wait()
        again = s.start("resume", run)
        s.until(lambda: f"process {again.pid}" in s.segue("show", run).stdout)
        assert s.segue("cancel", run).code == 0
        assert s.end(again).code == 130
        (leg,) = collector.named("invoke_agent limited")
        (wait,) = collector.named("wait rate_limit")
        (root,) = collector.named("invoke_workflow segue run")
        assert {leg.trace_id, wait.trace_id} == {root.trace_id}
        assert plain(root.attributes)["segue.run.state"] == "cancelled"


def test_a_collector_that_hangs_or_is_gone_keeps_nobody_and_nothing_is_said_of_it(
    tmp_path: Path,
) -> None:
    with collecting() as collector, stage("success", within=tmp_path) as s:
        s.config(otel(collector))
        collector.answers.clear()
        hanging = s.run("--check", "true")
        assert not collector.answers.is_set()
        assert (hanging.code, hanging.stderr.count("telemetry")) == (0, 0)
        assert "Traceback" not in hanging.stderr
    with stage("success", within=tmp_path) as s:
        s.config(otel(collector))  # nobody listens there any more
        gone = s.run("--check", "true")
        assert (gone.code, gone.stdout) == (0, hanging.stdout)


@pytest.mark.parametrize("more", ["", "[otel]\nenabled = false\n"])
def test_without_a_collector_nothing_of_it_is_loaded(tmp_path: Path, more: str) -> None:
    script = tmp_path / "quiet.py"
    script.write_text(QUIET)
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"} if more else {}
    with stage("success", within=tmp_path) as s:
        s.config(more)
        ended = s.end(s.start_script(script, *s.words("--check", "true"), **env))
        assert ended.code == 0
        assert "loaded: []" in ended.stderr


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('[otel]\nendpoint = "127.0.0.1:4318"\n', "endpoint in [otel] must be"),
        ("[otel]\nenabled = 1\n", "enabled in [otel] must be true or false"),
        ("[otel]\nheaders = 3\n", "headers in [otel] must be strings"),
        ('[otel]\nendpiont = "http://a"\n', "did you mean endpoint?"),
    ],
)
def test_a_mistake_in_the_table_is_reported_in_one_line(
    tmp_path: Path, table: str, said: str
) -> None:
    with stage("success", within=tmp_path) as s:
        s.config(table)
        ended = s.run("--check", "true")
        (line,) = [line for line in ended.stderr.splitlines() if "[otel]" in line]
        assert said in line


def test_a_repository_cannot_have_a_run_told_to_its_author(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        (s.project / ".segue.toml").write_text('[otel]\nendpoint = "http://127.0.0.1:9"\n')
        ended = s.run()
        assert ended.code == 2
        assert "is not allowed in a project's file" in ended.stderr
