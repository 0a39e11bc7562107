"""kill -9 of the daemon at each point of a handoff, with the real claude. What follows from a kill
at any other moment is in test_hands."""

from pathlib import Path

import pytest
from support.terminals.tui import open_tui
from support.watching import begin_work, done, watching

from segue.core.handoffs import document as documents
from segue.drill.plays import job as jobs
from segue.drill.scenarios.types import Job, Scenario

JOB = Job(steps=9, step_s=0.6, output_bytes=500)
POINTS = [
    *("before request", "line request", "after request", "noted asked", "noted written"),
    *("before clear", "line clear", "after clear", "noted cleared"),
    *("before resume", "line resume", "after resume", "noted resumed"),
]


@pytest.fixture(autouse=True)
def utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


def test_a_daemon_killed_at_each_point_of_one_handoff_ends_it_and_types_nothing_twice(
    tmp_path: Path,
) -> None:
    scenario = Scenario(about="", job=JOB)
    with (
        open_tui("claude", tmp_path, scenario) as tui,
        watching(
            tmp_path / "segue",
            tui.env,
            config="[policy]\nbusy_wait_s = 0\n",
            kill_at=POINTS[0],
        ) as watch,
    ):
        begin_work(tui)
        tui.until(lambda: done(tui, JOB) >= 2, what="two steps")
        session = tui.session()
        watch.until(lambda: watch.remote.get(f"/v1/sessions/{session}"), "its session")
        watch.segue("handoff", session)
        for point in [*POINTS[1:], ""]:
            watch.killed()
            watch.start(point)
        watch.until(lambda: watch.steps()[-1:] == ["done"], "the handoff")
        tui.until(lambda: done(tui, JOB) == JOB.steps, what="the job")

        assert jobs.check(tui.project, JOB, finished=True).is_whole
        assert list(dict.fromkeys(watch.steps())) == [
            "waiting", "asking", "asked", "written", "clearing", "cleared", "resuming", "resumed",
            "done",
        ]  # fmt: skip
        (metrics,) = watch.notes("metrics")
        file = Path(watch.notes("handoff")[0].data["cycle"]["file"])
        assert documents.check(file.read_text()) == ""
        prompts = [
            line
            for record in (tui.home / ".claude" / "projects").glob("*/*.jsonl")
            for line in record.read_text().splitlines()
            if '"promptSource"' in line and file.name in line
        ]
        assert len(prompts) == 2, prompts  # the request, and the word to go on
        assert metrics.data["tries"]["clear_tried"] == 1
