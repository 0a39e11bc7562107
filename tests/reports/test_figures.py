"""The figures: computed from both logs, each with its definition and target."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import ROOT
from support.running import Staged, stage

from segue.reports.figures import Figure, facts, figures
from segue.views.report.figures import text
from segue.watch.log import Log
from segue.watch.server import metrics

DONE = {
    "outcome": "done",
    "trigger_fraction": 0.86,
    "last_fraction": 0.88,
    "duration_s": 40.0,
    "justified": True,
}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    found = Log(tmp_path / "watch.db")
    yield found
    found.close()


def note(log: Log, kind: str, session: str, **data: object) -> None:
    log.append(kind, at=100.0, agent="claude", session_id=session, project="/p", data=data)


def of(log: Log, since: float = 0.0, project: str = "") -> dict[str, Figure]:
    return {each.name: each for each in figures(facts(None, log, since=since, project=project))}


def test_of_nothing_nothing_is_claimed() -> None:
    for each in figures(facts(None, None)):
        assert each.value in (None, 0.0)
        assert each.definition
    assert "–" in text(figures(facts(None, None)), facts(None, None).stops)


def test_what_the_daemon_saw_is_counted_by_its_definition(log: Log) -> None:
    for session in ("a", "b", "c", "d"):
        note(log, "crossing", session, zone="warning")
    note(log, "metrics", "a", **DONE)
    note(log, "metrics", "b", **{**DONE, "trigger_fraction": 0.80, "justified": False})
    note(log, "metrics", "b", **{**DONE, "outcome": "cancelled"})
    note(log, "stop", "c", reason="context_exhausted")
    note(log, "stop", "d", reason="rate_limit")
    note(log, "wake", "d", verdict="resume")
    note(log, "wake", "d", verdict="resume")
    note(log, "wake", "d", verdict="failed")
    note(log, "arrival", "e", result="goes_on", actions=9, commands=0, files=0, questions=0)
    note(log, "arrival", "d", result="goes_on", actions=9, commands=2, files=1, questions=0)
    note(log, "arrival", "d", result="gone", actions=0)
    found = of(log)
    assert found["exhaustion_rate"].value == 0.2
    assert (found["arrived"].value, found["arrived"].of) == (0.5, 2)
    assert found["repeated"].value == 1.5
    assert found["exhaustion_rate"].is_met is False
    assert found["handoffs_per_session"].value == 0.4
    assert found["false_positives"].value == 0.5
    assert found["context_when_asked"].value == 0.83
    assert found["context_when_asked_spread"].value == 0.03
    assert found["in_band"].value == 0.5
    assert found["cycle_p50"].value == 40.0
    assert found["cycle_p95"].is_met
    assert found["resumes_worked"].value == 0.5
    known = facts(None, log)
    assert known.stops == {"context_exhausted": 1, "rate_limit": 1}
    assert of(log, since=101.0)["exhaustion_rate"].value is None
    assert of(log, project="/other")["exhaustion_rate"].of == 0


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staged]:
    with stage("three-exhaustions", within=tmp_path_factory.mktemp("done")) as s:
        assert s.run("--json").code == 0
        yield s


def test_a_runs_handoffs_are_in_them_and_the_text_fits(done: Staged) -> None:
    told = json.loads(done.segue("report", "--figures", "--json").stdout)
    found = {each["name"]: each for each in told["figures"]}
    with done.store() as store:
        (run,) = store.runs()
        legs = store.legs(run.id)
        readings = store.readings(run.id)
    assert found["exhaustion_rate"]["value"] == 0
    assert found["handoffs_per_session"]["value"] == round(run.handoffs / len(legs), 4)
    assert found["context_when_asked"]["of"] == run.handoffs
    assert found["arrived"]["of"] == run.handoffs
    most = max(kept.reading.fraction for kept in readings)
    assert 0 < found["context_when_asked"]["value"] < most
    assert found["false_positives"]["value"] is not None
    assert found["saved"]["value"] == pytest.approx(sum(leg.active_s for leg in legs[1:]), abs=0.01)
    assert told["stops"] == {"completed": 1}
    shown = done.segue("report", "--figures")
    assert max(map(len, shown.lines)) <= 80
    assert "target" in shown.stdout
    other = json.loads(done.segue("report", "--figures", "--project", "/x", "--json").stdout)
    assert {each["of"] for each in other["figures"]} == {0}
    assert done.segue("report", run.id, "--figures").code == 2
    assert done.segue("report", "--project", "/x").code == 2


def test_the_dashboard_of_grafana_asks_for_metrics_that_exist() -> None:
    dashboard = json.loads((ROOT / "contrib/grafana.json").read_text())
    asked = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    assert asked
    known = {metric.name: metric for metric in metrics.KNOWN.values()}
    names = {each.name for each in figures(facts(None, None))}
    for expression in asked:
        for name in re.findall(r"segue_\w+", expression):
            assert name in known, expression
            by = re.findall(r"by \((\w+)\)", expression)
            assert set(by) <= set(known[name].labels), expression
        for name in re.findall(r'name="(\w+)"', expression):
            assert name in names, expression
