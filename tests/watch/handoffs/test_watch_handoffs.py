"""Handoffs by the real daemon in the real TUIs: at the mark, by a hook, by hand, and with the user
in the way. What needs no agent to be shown is in test_hands."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.terminals.tui import Tui, open_tui
from support.watch.handoffs import AT_ONCE, await_job
from support.watching import LIMIT_S, Watching, begin_work, done, watching

from segue.agents.claude import setup as claude_settings
from segue.cli.tools.setup import hook_groups
from segue.core.handoffs import document as documents
from segue.drill.model.ask import Kind
from segue.drill.scenarios.types import Context, Job, Scenario, ScenarioFact, ScenarioRule

STEPS = [
    "waiting", "asking", "asked", "written", "clearing", "cleared", "resuming", "resumed", "done",
]  # fmt: skip
ZONES = ["monitor", "warning", "critical", "handoff"]
# Large steps: what a handoff itself says is small beside them. Critical is wide enough to be seen
# on a busy machine, and above the last mark is room for all steps: the window never overflows.
GROWS = Job(steps=10, step_s=1.2, output_bytes=8_000)  # a busy machine must keep up
MARKS = (0.15, 0.25, 0.35, 0.60)
ADR_MARKS = (0.30, 0.50, 0.70, 0.85)


@pytest.fixture(autouse=True)
def utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


def filling(job: Job, after_steps: float, **more: Any) -> Scenario:
    """The window is full after so many steps; the agent is not made to compact."""
    context = Context(fills_after_steps=after_steps, refuses=False)
    return Scenario(about="", job=job, context=context, **more)


def finish(tui: Tui, watch: Watching, job: Job) -> dict[str, Any]:
    """Until the job is done, and its handoff too; what is recorded of that."""
    watch.until(lambda: watch.steps()[-1:] == ["done"], "the handoff")
    await_job(tui, job)
    (note,) = watch.notes("metrics")
    last = watch.notes("handoff")[-1].data["cycle"]
    assert documents.check(Path(last["file"]).read_text()) == ""
    assert note.data["new_session_id"] not in ("", note.data["session_id"])
    assert note.data["went_on"] is True
    return note.data


def check_zones(watch: Watching, marks: Sequence[float]) -> None:
    """In order, once each, with the health checks of ADR 017."""
    assert [note.data["zone"] for note in watch.notes("crossing")][:4] == ZONES
    checks = [note.data for note in watch.notes("health")]
    found = [(each["check_type"], each["status"]) for each in checks]
    assert list(dict.fromkeys(found))[:4] == [
        ("context", "ok"),
        ("context", "warning"),
        ("context", "critical"),
        ("handoff", "critical"),
    ]
    firsts = {each["details"]["zone"]: each["details"]["context_usage"] for each in checks[::-1]}
    assert all(firsts[zone] >= mark for zone, mark in zip(ZONES, marks, strict=True))


@pytest.mark.parametrize("agent", ["claude", "codex", "opencode"])
def test_work_that_fills_the_window_is_handed_over_before_the_agent_compacts_and_finished(
    agent: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """One turn that would last much longer than the window does, and that `busy_wait_s` would let
    run: each step takes a tenth of the window, and the agent's own compaction is on."""
    job = Job(steps=14, step_s=1.5, output_bytes=8_000)
    scenario = Scenario(about="", job=job, context=Context(fills_after_steps=11))
    config = AT_ONCE.replace("busy_wait_s = 0", "busy_wait_s = 120")
    with (
        open_tui(agent, tmp_path, scenario) as tui,
        watching(tmp_path / "segue", tui.env, "--auto", config=config) as watch,
    ):
        begin_work(tui)
        kept = finish(tui, watch, job)
        assert not any(request.kind is Kind.COMPACTION for request in tui.requests)
        check_zones(watch, MARKS)
        steps = watch.steps()
        while steps[:3] == ["waiting", "asking", "waiting"]:  # it was at work again: no keys then
            del steps[:2]
        assert steps == STEPS
        (reminder, *_) = watch.notes("reminder")
        assert reminder.data["zone"] == "critical"
        assert "High context at" in reminder.data["text"]
        assert (kept["outcome"], kept["source"]) == ("done", "agent")
        assert kept["trigger_fraction"] >= MARKS[-1]
        assert kept["zone_path"][:4] == ZONES
        assert 0 < kept["written_s"] < kept["duration_s"]
        assert kept["new_tokens"] < kept["trigger_tokens"] / 2  # 0: no reply was counted yet
    record_property("summary", f"{agent}: handed over in {kept['duration_s']:.1f} s")


def test_a_tenth_of_the_window_every_half_second_is_handed_over_before_the_agent_compacts(
    tmp_path: Path,
) -> None:
    """Replies come faster than a session is usually looked at. codex compacts earliest, and shows
    nothing that could be interrupted while it does."""
    job = Job(steps=12, step_s=0.5, output_bytes=8_000)
    scenario = Scenario(about="", job=job, context=Context(fills_after_steps=10))
    with (
        open_tui("codex", tmp_path, scenario) as tui,
        watching(tmp_path / "segue", tui.env, "--auto") as watch,
    ):
        begin_work(tui)
        watch.until(lambda: watch.notes("metrics"), "the handoff")
        first = watch.notes("metrics")[0].data
        assert (first["outcome"], first["source"]) == ("done", "agent")
        await_job(tui, job)
        assert not any(request.kind is Kind.COMPACTION for request in tui.requests)


def test_what_an_agents_own_compaction_lost_is_in_the_next_document(tmp_path: Path) -> None:
    """codex has no hook that could tell it at once, and compacts before segue watches. Its summary
    has no fact, and neither has what it writes itself."""
    wording = "lease granted under the name {}"
    fact = ScenarioFact(kind="printed", told_in=2, needed_from=13, wording=wording, amid=True)
    job = Job(steps=14, step_s=0.6, output_bytes=6_000, prints="log", facts=[fact])
    context = Context(fills_after_steps=6.5)
    scenario = Scenario(about="", job=job, context=context, summary="lazy")
    with open_tui("codex", tmp_path, scenario) as tui:
        begin_work(tui)
        compacts = lambda: any(each.kind is Kind.COMPACTION for each in tui.requests)  # noqa: E731
        tui.until(compacts, LIMIT_S, "its own compaction")
        with watching(tmp_path / "segue", tui.env, "--auto") as watch:
            await_job(tui, job)
            (note, *_) = watch.notes("metrics")
            assert note.data["outcome"] == "done"
            document = Path(watch.notes("handoff")[0].data["cycle"]["file"]).read_text()
            assert document.count("lease granted under the name w") == 1


def test_two_that_cross_together_are_both_handed_over_and_none_loses_work(tmp_path: Path) -> None:
    """One waits for the other, until it comes near its own limit."""
    with (
        open_tui("claude", tmp_path / "a", filling(GROWS, 11)) as one,
        open_tui("claude", tmp_path / "b", filling(GROWS, 11)) as other,
        watching(
            tmp_path / "segue",
            one.env,
            "--auto",
            config=f'{AT_ONCE}\n[homes]\nclaude = ["{other.home}/.claude"]\n',
        ) as watch,
    ):
        for tui in (one, other):
            tui.hold(9)  # so that neither is finished before its turn comes
            begin_work(tui)
        watch.until(lambda: len(watch.notes("metrics")) == 2, "both handoffs", 2 * LIMIT_S)
        for tui in (one, other):
            tui.let_go()
            await_job(tui, GROWS)
        first, second = (note.data for note in watch.notes("metrics"))
        assert (first["outcome"], second["outcome"]) == ("done", "done")
        assert first["project"] != second["project"]


def test_a_spike_and_with_its_hooks_claude_is_asked_in_its_turn_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step prints so much that the window is nearly full at once."""
    job = Job(steps=14, step_s=0.5, output_bytes=3_000, spike_step=7, spike_bytes=28_000)
    home = tmp_path / "segue"
    monkeypatch.setenv("SEGUE_HOME", str(home))
    settings = claude_settings.added({}, hook_groups(), None, "")
    with (
        open_tui("claude", tmp_path, filling(job, 10.3), settings=settings) as tui,
        watching(home, tui.env, "--auto", config="[policy]\nbusy_wait_s = 60\n") as watch,
    ):
        begin_work(tui)
        kept = finish(tui, watch, job)
        check_zones(watch, ADR_MARKS)
        crossings = [note.data for note in watch.notes("crossing")]
        assert crossings[1]["fraction"] == crossings[3]["fraction"] >= 0.85
        told = [note.data["type"] for note in watch.notes("hook")]
        assert told.count("asked") >= 1
        assert "told_zone" in told
        # Past its own limit it compacts first, and may have to be asked again.
        assert kept["source"] == "agent"
        assert kept["interrupts"] <= 1
        assert (kept["tries"]["clear"], kept["tries"]["resume"]) == (1, 1)


def test_by_hand_with_a_draft_in_the_way_and_a_model_that_writes_nothing(tmp_path: Path) -> None:
    """The draft is waited for, kept, and there afterwards; the document is made by rules."""
    job = Job(steps=2, output_bytes=200)
    refuses = ScenarioRule(kind=Kind.HANDOFF, text="I would rather not.", times=None)
    scenario = Scenario(about="", job=job, rules=[refuses])
    config = "[policy]\nbusy_wait_s = 0\ndraft_wait_s = 2\nhandoff_wait_s = 2\n"
    with (
        open_tui("claude", tmp_path, scenario) as tui,
        watching(tmp_path / "segue", tui.env, config=config) as watch,
    ):
        begin_work(tui)
        tui.until(lambda: done(tui, job) == job.steps, what="the job")
        tui.wait_for(lambda s: s.state == "idle", what="its end")
        tui.type_as_user("my own words")
        tui.wait_for(lambda s: s.draft == "my own words")
        session = tui.session()[:8]
        watch.until(lambda: session in str(watch.remote.sessions()), "a watched session")
        assert "begins; the document will be" in watch.segue("handoff", session)
        assert "is in progress: " in watch.segue("handoff", session)
        assert "is cancelled" in watch.segue("cancel", session)
        watch.until(lambda: watch.steps() == ["waiting", "cancelled"], "its end")
        assert tui.screen().draft == "my own words"

        watch.segue("handoff", session)
        watch.until(lambda: watch.steps()[-1:] == ["done"], "the handoff")
        kept = watch.notes("metrics")[-1].data
        assert (kept["source"], kept["went_on"], kept["interrupts"]) == ("segue", True, 0)
        assert kept["waited_s"] >= 2
        text = Path(watch.notes("handoff")[-1].data["cycle"]["file"]).read_text()
        assert documents.check(text) == ""
        assert tui.prompt in text
        tui.wait_for(lambda s: (s.state, s.draft) == ("idle", "my own words"), what="the draft")


def test_a_permission_that_is_asked_for_is_the_users_and_the_handoff_waits_for_it(
    tmp_path: Path,
) -> None:
    job = Job(steps=5, step_s=0.3, output_bytes=200)
    asks = {"permissions": {"ask": ["Bash(sh job/step 3)"]}}
    config = "[policy]\nbusy_wait_s = 1\n"
    with (
        open_tui("claude", tmp_path, Scenario(about="", job=job), settings=asks) as tui,
        watching(tmp_path / "segue", tui.env, config=config) as watch,
    ):
        begin_work(tui)
        tui.wait_for(lambda s: s.state == "dialog", what="the question")
        question = tui.text().replace("●", " ")  # it blinks
        watch.segue("handoff", tui.session())
        watch.until(lambda: watch.steps()[-1:] == ["needs_user"], "a question to the user")
        assert tui.text().replace("●", " ") == question
        last = watch.notes("handoff")[-1].data["cycle"]
        assert (last["source"], last["by_user"], last["tries"]) == ("segue", True, {})
        assert documents.check(Path(last["file"]).read_text()) == ""
        tui.keys("Enter")  # yes
        kept = finish(tui, watch, job)
        assert kept["source"] == "agent"
