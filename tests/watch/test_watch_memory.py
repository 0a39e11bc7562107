"""What only the conversation held is known to the session after: the real daemon, the real TUIs."""

import json
from pathlib import Path

import pytest
from support.terminals.tui import open_tui
from support.watch.handoffs import await_job
from support.watching import LIMIT_S, begin_work, done, say, watching

from segue.agents.claude import setup as claude_settings
from segue.cli.tools.setup import hook_groups
from segue.drill.model.ask import Kind
from segue.drill.plays import job as jobs
from segue.drill.scenarios.types import Context, Job, Scenario, ScenarioFact, ScenarioRule

# Needed from step 11 on, which no first session reaches: its window is full after 10.
JOB = Job(
    steps=14,
    step_s=1.5,
    output_bytes=8_000,
    facts=[
        ScenarioFact(kind="printed", told_in=1, needed_from=11),
        ScenarioFact(kind="decided", told_in=2, needed_from=11),
        ScenarioFact(kind="changed", told_in=1, changed_in=2, needed_from=12),
        ScenarioFact(kind="told", told_in=3, needed_from=11),
        ScenarioFact(kind="corrected", told_in=2, changed_in=3, needed_from=12),
        ScenarioFact(kind="forbidden", told_in=3, needed_from=11),
        ScenarioFact(kind="forbidden", told_in=0, needed_from=12),
    ],
)
ASKS = ScenarioRule(before_step=4, text="Three steps are done. Is there anything I should know?")


@pytest.fixture(autouse=True)
def utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode"])
def test_facts_of_every_kind_are_known_after_a_handoff(agent: str, tmp_path: Path) -> None:
    """The agent's own document tells the steps that are done, and no fact."""
    context = Context(fills_after_steps=10)
    scenario = Scenario(about="", job=JOB, context=context, rules=[ASKS], summary="lazy")
    with (
        open_tui(agent, tmp_path, scenario) as tui,
        watching(tmp_path / "segue", tui.env, "--auto") as watch,
    ):
        begin_work(tui)
        tui.until(lambda: done(tui, JOB) == 3, LIMIT_S, "three steps")
        tui.wait_for(lambda s: s.state == "idle" and not s.draft, LIMIT_S, "its question")
        say(tui, jobs.said_by_user(tui.project, JOB, 3))
        watch.until(lambda: watch.notes("metrics"), "the handoff")
        await_job(tui, JOB)
        assert jobs.touched(tui.project, JOB) == []
        note = watch.notes("metrics")[0]
        assert (note.data["outcome"], note.data["source"]) == ("done", "agent")
        assert done(tui, JOB) == JOB.steps
        assert not any(request.kind is Kind.COMPACTION for request in tui.requests)
        asked = [r.tokens / 2_000 for r in tui.requests if r.kind is Kind.HANDOFF and r.tokens]
        assert asked, [request.kind for request in tui.requests]
        assert max(asked) <= 90, asked
        arrived = watch.until(lambda: watch.notes("arrival"), "what the new session did first")[0]
        assert arrived.session_id == note.data["new_session_id"]
        told = {key: arrived.data[key] for key in ("id", "from_session_id", "result")}
        assert told == {
            "id": note.data["id"], "from_session_id": note.data["session_id"], "result": "goes_on",
        }, arrived.data  # fmt: skip
        shown = json.loads(watch.segue("show", arrived.session_id, "--json"))
        assert shown["took_over"]["actions"] == arrived.data["actions"] > 3
        assert "took over from" in watch.segue("show", arrived.session_id)


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode"])
def test_facts_of_a_session_before_the_last_are_known_after_two_handoffs(
    agent: str, tmp_path: Path
) -> None:
    """The session in between never needs them, and its own document has no fact."""
    job = Job(
        steps=20,
        step_s=1.2,
        output_bytes=8_000,
        facts=[
            ScenarioFact(
                kind="printed", told_in=2, needed_from=18, wording="the shard is {}", amid=True
            ),
            ScenarioFact(
                kind="decided", told_in=2, needed_from=18, wording="the queue goes by {} here"
            ),
        ],
    )
    scenario = Scenario(about="", job=job, context=Context(fills_after_steps=9), summary="lazy")
    with (
        open_tui(agent, tmp_path, scenario) as tui,
        watching(tmp_path / "segue", tui.env, "--auto") as watch,
    ):
        begin_work(tui)
        watch.until(lambda: done(tui, job) >= 17, "both handoffs", 2 * LIMIT_S)
        assert len(watch.notes("metrics")) >= 2
        await_job(tui, job)


def test_through_its_hooks_claude_is_told_what_its_own_compaction_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """segue hands nothing over here: the agent compacts by itself, and its summary has no fact."""
    home = tmp_path / "segue"
    monkeypatch.setenv("SEGUE_HOME", str(home))
    context = Context(fills_after_steps=9.5)
    scenario = Scenario(about="", job=JOB, context=context, rules=[ASKS], summary="lazy")
    off = "[policy]\nsoft_mark = 2.0\nhard_mark = 2.0\n"
    settings = claude_settings.added({}, hook_groups(), None, "")
    with (
        open_tui("claude", tmp_path, scenario, settings=settings) as tui,
        watching(home, tui.env, "--auto", config=off) as watch,
    ):
        begin_work(tui)
        tui.until(lambda: done(tui, JOB) == 3, LIMIT_S, "three steps")
        tui.wait_for(lambda s: s.state == "idle" and not s.draft, LIMIT_S, "its question")
        say(tui, jobs.said_by_user(tui.project, JOB, 3))
        await_job(tui, JOB)
        assert jobs.touched(tui.project, JOB) == []
        assert any(request.kind is Kind.COMPACTION for request in tui.requests)
        assert not watch.notes("metrics")


@pytest.mark.parametrize("agent", ["codex", "opencode"])
def test_what_an_agents_own_compaction_left_out_is_in_the_next_document(
    agent: str, tmp_path: Path
) -> None:
    """An agent that works on after its compaction is not interrupted in its terminal, so it may
    repeat work. But the document of the next handoff is made from the whole conversation."""
    context = Context(fills_after_steps=7.5)
    asks = [ASKS, ScenarioRule(before_step=10, text="Ten steps are nearly done. Shall I go on?")]
    scenario = Scenario(about="", job=JOB, context=context, rules=asks, summary="lazy")
    off = "[policy]\nsoft_mark = 2.0\nhard_mark = 2.0\n"
    with (
        open_tui(agent, tmp_path, scenario) as tui,
        watching(tmp_path / "segue", tui.env, "--auto", config=off) as watch,
    ):

        def left() -> tuple[int, ...]:
            return tuple(jobs.check(tui.project, JOB, finished=True).lost)

        begin_work(tui)
        tui.until(lambda: done(tui, JOB) == 3, LIMIT_S, "three steps")
        tui.wait_for(lambda s: s.state == "idle" and not s.draft, LIMIT_S, "its question")
        say(tui, jobs.said_by_user(tui.project, JOB, 3))
        tui.until(lambda: left() == (10, 11, 12, 13, 14), LIMIT_S, "nine steps")
        tui.wait_for(lambda s: s.state == "idle" and not s.draft, LIMIT_S, "its question")
        before = jobs.check(tui.project, JOB, finished=True).done
        assert any(request.kind is Kind.COMPACTION for request in tui.requests)
        (session,) = [s for s in watch.remote.sessions() if s["agent"] == agent]
        watch.segue("handoff", session["session_id"])
        note = watch.until(lambda: watch.notes("metrics"), "the handoff")[0]
        assert note.data["outcome"] == "done"
        tui.until(lambda: not left(), LIMIT_S, "the job")
        after = jobs.check(tui.project, JOB, finished=True).done[len(before) :]
        assert after == (10, 11, 12, 13, 14), before
        assert jobs.touched(tui.project, JOB) == []
