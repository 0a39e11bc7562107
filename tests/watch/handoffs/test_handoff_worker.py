"""Handoffs as the daemon carries them out: with a clock, a terminal and an agent of the test's, and
the real rules, log, records and documents."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.homes import interruption, prompt
from support.watch.scenes import (
    AT,
    AUTO,
    BUSY,
    DIALOG,
    DOCUMENT,
    IDLE,
    WINDOW,
    Killed,
    Scene,
    kinds,
)

from segue.core.handoffs import document as documents
from segue.core.handoffs.machine.types import AnyFact, HandoffStep, Ready, TerminalHandoff
from segue.core.resumes.decisions import Resume, StoppedSession
from segue.core.sessions.forecasts.forecast import Forecast, forecast
from segue.core.sessions.forecasts.growth import MIN_TASKS, Growth
from segue.core.sessions.reading import Reading, Zone
from segue.core.terminals.screen import Screen
from segue.errors import SegueError, StateError
from segue.runs.clock import Clock
from segue.system.tmux.typist import TypingRefused
from segue.watch.resumes.pending import Pending


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.log.close()


# The mark


def test_the_mark_is_85_percent_and_a_token_less_is_not(scene: Scene) -> None:
    (agent,) = scene.agents
    scene.use(agent, 169_999)
    scene.tick()
    assert scene.cycles() == []
    scene.use(agent, 170_000)
    scene.tick()
    (cycle,) = scene.cycles()
    assert (cycle["used_tokens"], cycle["window_tokens"]) == (170_000, 200_000)
    (check,) = [each for each in scene.notes("health") if each["check_type"] == "handoff"]
    assert check["details"]["handoff_triggered"] is True
    assert check["details"]["context_usage"] == 0.85


def test_a_spike_from_below_warning_passes_every_zone_and_is_handed_over(scene: Scene) -> None:
    (agent,) = scene.agents
    scene.use(agent, 80_000)
    scene.use(agent, 186_000)
    zones = [note["zone"] for note in scene.notes("crossing")]
    assert zones == ["monitor", "warning", "critical", "handoff"]
    scene.until(HandoffStep.DONE)
    assert kinds(agent) == ["request", "clear", "resume"]
    (kept,) = scene.notes("metrics")
    assert (kept["zone_path"], kept["justified"]) == (zones, True)


@pytest.mark.parametrize(("task", "justified"), [(0, False), (1_000, False), (40_000, True)])
def test_a_handoff_below_90_percent_is_justified_if_the_next_task_would_not_have_fitted(
    scene: Scene, task: int, justified: bool
) -> None:
    """By what tasks of the project usually cost; 0: nothing is known of that."""
    (agent,) = scene.agents
    scene.use(agent, 80_000)
    kept = next(iter(scene.watch.state.tracked.values()))
    for _ in range(MIN_TASKS if task else 0):
        scene.watch.state.learn_cost(kept.session.cwd, task)
    scene.use(agent, 172_000)
    scene.until(HandoffStep.DONE)
    (metrics,) = scene.notes("metrics")
    assert metrics["trigger_fraction"] == 0.86
    assert metrics["justified"] is justified


def test_without_the_users_yes_nothing_is_begun(tmp_path: Path) -> None:
    scene = Scene(tmp_path, replace(AUTO, auto_handoff=False))
    scene.use(scene.agents[0], 180_000)
    scene.tick(60)
    assert (scene.cycles(), scene.agents[0].sent) == ([], [])
    (check,) = [each for each in scene.notes("health") if each["check_type"] == "handoff"]
    assert check["details"]["handoff_triggered"] is False


def test_several_that_cross_together_are_handed_over_one_after_the_other(tmp_path: Path) -> None:
    scene = Scene(tmp_path, agents=3)
    for agent in scene.agents:
        scene.use(agent, 175_000)
    active: list[int] = []
    for _ in range(60):
        scene.tick()
        active.append(scene.watch.handoffs.active)
        for agent in scene.agents:
            scene.use(agent, agent.used)
    assert max(active) == 1
    assert [cycle["step"] for cycle in scene.cycles()] == ["done"] * 3
    assert [kinds(agent) for agent in scene.agents] == [["request", "clear", "resume"]] * 3
    ends = [note["began_at"] + note["duration_s"] for note in scene.notes("metrics")]
    begins = [note["began_at"] for note in scene.notes("metrics")]
    assert all(end <= begin for end, begin in zip(ends, begins[1:], strict=False))


def test_a_handoff_whose_figures_cannot_be_written_is_over_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    (agent,) = scene.agents
    append = scene.watch.state.log.append

    def full(kind: str, **given: Any) -> Any:
        if kind == "metrics":
            raise StateError("no space left on the disk")
        return append(kind, **given)

    monkeypatch.setattr(scene.watch.state.log, "append", full)
    scene.use(agent, 172_000)
    scene.until(HandoffStep.DONE)
    assert scene.notes("metrics") == []
    assert scene.watch.handoffs.cycles == {}


# The document


def test_a_session_that_writes_nothing_gets_a_rule_made_document_and_continues(
    scene: Scene,
) -> None:
    (agent,) = scene.agents
    agent.obeys = False
    scene.use(agent, 175_000)
    scene.until(HandoffStep.WRITTEN)
    (cycle,) = scene.cycles()
    assert scene.clock.at - AT > AUTO.handoff_wait_s
    assert (cycle["source"], documents.check(Path(cycle["file"]).read_text())) == ("segue", "")
    assert "Do the job." in Path(cycle["file"]).read_text()
    agent.obeys, agent.screen = True, BUSY  # for a while
    scene.tick(5)
    scene.tick(5)
    agent.screen = IDLE
    scene.until(HandoffStep.DONE)
    assert kinds(agent) == ["request", "clear", "resume"]
    assert scene.notes("metrics")[0]["source"] == "segue"


def test_an_event_tells_of_a_document_long_before_it_would_be_looked_for(scene: Scene) -> None:
    (agent,) = scene.agents
    agent.obeys = False
    scene.use(agent, 175_000)
    scene.until(HandoffStep.ASKED)
    (cycle,) = scene.cycles()
    hands, looks = scene.watch.handoffs, threading.Semaphore(0)
    hands._look_s = 600.0
    hands.look_round = looks.release  # type: ignore[method-assign]
    scene.clock.wait = Clock().wait  # type: ignore[method-assign]
    hands.start()
    while looks.acquire(timeout=0.2):
        pass  # what is to be done at first
    Path(cycle["file"]).write_text("a document")
    assert looks.acquire(timeout=20)
    hands.stop()


def test_a_document_that_grows_is_not_taken_before_it_is_whole(scene: Scene) -> None:
    (agent,) = scene.agents
    agent.obeys = False
    scene.use(agent, 175_000)
    scene.until(HandoffStep.ASKED)
    file = Path(scene.cycles()[0]["file"])
    file.parent.mkdir(parents=True, exist_ok=True)
    for end in range(40, len(DOCUMENT), 40):
        file.write_text(DOCUMENT[:end])
        os.utime(file, (scene.clock.at, scene.clock.at))
        scene.tick(0.4)
        scene.tick(0.4)
        assert scene.cycles()[0]["step"] == "asked"
    file.write_text(DOCUMENT)
    os.utime(file, (scene.clock.at, scene.clock.at))
    scene.until(HandoffStep.WRITTEN)
    assert scene.cycles()[0]["source"] == "agent"


def test_a_document_that_is_spoilt_is_asked_for_again_and_then_written_by_segue(
    scene: Scene,
) -> None:
    (agent,) = scene.agents
    agent.document = "# Handoff\n\n## Goal\n[1-2 sentences]\n"
    scene.use(agent, 175_000)
    scene.until(HandoffStep.DONE)
    assert kinds(agent) == ["request", "request", "clear", "resume"]
    assert all(documents.check(text) == "" for text in agent.docs_at_clear)
    assert scene.cycles()[0]["source"] == "segue"


def test_a_document_that_is_spoilt_just_before_the_clearing_is_made_again_first(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    (agent,) = scene.agents
    scene.use(agent, 175_000)
    scene.until(HandoffStep.WRITTEN)
    finish = scene.watch.handoffs._finish_document

    def spoilt(cycle: Any) -> str:
        monkeypatch.undo()
        Path(cycle.file).write_text("oops")
        return finish(cycle)

    monkeypatch.setattr(scene.watch.handoffs, "_finish_document", spoilt)
    scene.until(HandoffStep.DONE, max_s=20)
    assert kinds(agent) == ["request", "clear", "resume"]
    assert all(documents.check(text) == "" for text in agent.docs_at_clear)


def test_what_segue_knows_is_added_before_the_clearing(scene: Scene) -> None:
    (agent,) = scene.agents
    scene.use(agent, 175_000)
    scene.until(HandoffStep.DONE)
    (text,) = agent.docs_at_clear
    assert text.startswith(DOCUMENT)
    assert "Do the job." in text.split(documents.RECORDED)[1]


# A turn that runs


def test_a_turn_is_interrupted_and_a_compaction_after_that_leaves_nobody_behind(
    scene: Scene,
) -> None:
    """What was interrupted does not go on by itself, however small it is now."""
    (agent,) = scene.agents
    agent.screen = BUSY
    scene.use(agent, 175_000)
    for _ in range(12):
        scene.tick()
    assert agent.pressed == [("Escape",)]
    scene.use(agent, 60_000)
    scene.until(HandoffStep.DONE)
    assert "may have been" in agent.sent[-1]  # the call that was cut


def ahead(scene: Scene, used: int, step: int) -> Forecast:
    reading = Reading(input_tokens=used, window_tokens=WINDOW)
    return forecast(reading, Growth(large_reply_tokens=step), scene.rules.given)


@pytest.mark.parametrize("runs", [True, False])
def test_one_that_grows_fast_is_interrupted_before_the_agent_compacts_by_itself(
    scene: Scene, runs: bool
) -> None:
    """Long before `busy_wait_s`, between two tools; with one running only if its result may bring
    the session past 90%."""
    (agent,) = scene.agents
    scene.rules.given = replace(AUTO, busy_wait_s=120)
    agent.forecast = lambda: ahead(scene, agent.used, 4_000)
    scene.use(agent, 171_000)
    scene.tick()
    assert scene.cycles()[0]["near_tokens"] is None  # another one fits below 90%
    scene.use(agent, 173_000)
    scene.tick()
    scene.tick()
    assert (scene.cycles()[0]["near_tokens"], agent.pressed) == (173_000, [])  # a tool runs
    if runs:
        scene.use(agent, 176_000)
    else:
        done = {"type": "tool_result", "tool_use_id": "toolu_Bash", "content": "ok"}
        record = json.loads(prompt("", at=scene.clock.at, session=agent.session_id))
        agent.record(json.dumps(record | {"message": {"role": "user", "content": [done]}}))
    scene.tick()
    assert agent.pressed == [("Escape",)]
    scene.until(HandoffStep.DONE)
    assert kinds(agent) == ["request", "clear", "resume"]


def test_a_running_tool_whose_result_may_bring_the_session_past_90_percent_is_interrupted(
    scene: Scene,
) -> None:
    (agent,) = scene.agents
    scene.rules.given = replace(AUTO, busy_wait_s=120)
    agent.forecast = lambda: ahead(scene, agent.used, 4_000)
    scene.use(agent, 171_000)
    scene.tick()
    scene.use(agent, 177_000)  # in one reply, which has called a tool
    scene.tick()
    assert agent.pressed == [("Escape",)]


def test_below_the_mark_a_session_whose_next_reply_may_pass_its_limit_does_not_wait_for_others(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, agents=2)
    first, second = scene.agents
    second.forecast = lambda: ahead(scene, second.used, 60_000)
    scene.use(first, 175_000)
    scene.tick()
    scene.use(second, 140_000)
    scene.tick()
    assert [each["used_tokens"] for each in scene.cycles()] == [175_000, 140_000]


def test_a_session_that_compacts_by_itself_is_left_alone(scene: Scene) -> None:
    (agent,) = scene.agents
    agent.screen = BUSY
    scene.use(agent, 175_000)
    scene.tick()
    scene.use(agent, 60_000)
    scene.tick()
    (cycle,) = scene.cycles()
    assert (cycle["step"], agent.pressed, agent.sent) == ("cancelled", [], [])


def test_a_user_who_speaks_after_the_request_gets_a_new_document(scene: Scene) -> None:
    (agent,) = scene.agents
    scene.use(agent, 175_000)
    scene.until(HandoffStep.ASKED)
    scene.clock.at += 3
    agent.record(prompt("And mind the tests.", at=scene.clock.at, session=agent.session_id))
    scene.until(HandoffStep.DONE)
    assert kinds(agent) == ["request", "request", "clear", "resume"]
    assert "And mind the tests." in agent.docs_at_clear[-1]


def test_asked_by_its_own_hook_nothing_is_typed_before_the_clearing(scene: Scene) -> None:
    (agent,) = scene.agents
    agent.screen = BUSY
    scene.use(agent, 175_000)
    scene.tick()
    (cycle,) = scene.watch.handoffs.cycles.values()
    scene.watch.handoffs.asked_by_hook(cycle)
    scene.tick()
    assert scene.cycles()[0]["step"] == "asked"
    Path(cycle.file).parent.mkdir(parents=True, exist_ok=True)
    Path(cycle.file).write_text(DOCUMENT)
    agent.screen = IDLE
    scene.until(HandoffStep.DONE)
    assert (kinds(agent), agent.pressed) == (["clear", "resume"], [])


# The user's terminal


def test_a_draft_is_waited_for_and_then_kept_and_no_key_is_pressed(scene: Scene) -> None:
    (agent,) = scene.agents
    agent.screen = replace(IDLE, draft="my own words")
    scene.use(agent, 175_000)
    scene.watch.commands.hand_over(agent.session_id, retry=False)
    for _ in range(int(AUTO.draft_wait_s) - 1):
        scene.tick()
    assert (agent.sent, agent.pressed) == ([], [])
    scene.until(HandoffStep.DONE)
    assert agent.pressed == []
    assert agent.drafts[:1] == ["my own words"]
    assert kinds(agent) == ["request", "clear", "resume"]


def test_a_prompt_that_takes_nothing_is_not_taken_for_a_turn(scene: Scene) -> None:
    """A folded paste cannot be kept: after a while the user is asked, and no key is pressed."""
    (agent,) = scene.agents
    agent.screen = replace(IDLE, draft="[Pasted text #1 +9 lines]", pasted=True)
    scene.rules.given = replace(AUTO, busy_wait_s=0)
    scene.use(agent, 175_000)
    scene.watch.commands.hand_over(agent.session_id, retry=False)
    scene.until(HandoffStep.NEEDS_USER)
    assert (agent.sent, agent.pressed) == ([], [])
    assert scene.cycles()[0]["was_cut"] is False


def test_a_draft_that_the_user_sends_is_not_held_against_the_next_one(scene: Scene) -> None:
    (agent,) = scene.agents
    agent.screen = replace(IDLE, draft="my own words")
    scene.use(agent, 175_000)
    scene.watch.commands.hand_over(agent.session_id, retry=False)
    for _ in range(20):
        scene.tick()
    agent.screen = BUSY  # sent
    for _ in range(5):
        scene.tick()
    agent.screen = replace(IDLE, draft="more")
    for _ in range(20):
        scene.tick()
    assert (agent.drafts, agent.pressed, agent.sent) == ([], [], [])


def test_a_question_of_the_agents_gets_no_key_and_the_user_a_document(scene: Scene) -> None:
    (agent,) = scene.agents
    scene.use(agent, 175_000)
    scene.tick()
    agent.screen = DIALOG
    scene.until(HandoffStep.NEEDS_USER)
    (cycle,) = scene.cycles()
    assert (agent.sent, agent.pressed, cycle["source"]) == ([], [], "segue")
    assert documents.check(Path(cycle["file"]).read_text()) == ""
    assert (cycle["file"] in cycle["why"], cycle["was_cut"]) == (True, False)
    assert sum("needs you" in line for line in scene.said) == 1
    for _ in range(30):
        scene.tick()
    assert scene.cycles()[0]["step"] == "needs_user"
    agent.screen = BUSY  # the user answered
    scene.until(HandoffStep.DONE)
    assert (kinds(agent), agent.pressed) == (["request", "clear", "resume"], [("Escape",)])


def test_a_question_that_comes_up_just_when_a_turn_is_to_be_ended_is_not_answered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    (agent,) = scene.agents
    agent.screen = BUSY
    press = scene.typist.press

    def late(*given: Any, **more: Any) -> TypingRefused | None:
        agent.screen = DIALOG
        return press(*given, **more)

    monkeypatch.setattr(scene.typist, "press", late)
    scene.use(agent, 175_000)
    scene.until(HandoffStep.NEEDS_USER)
    assert (agent.sent, agent.pressed) == ([], [])


def test_an_agent_that_ends_leaves_no_handoff_behind(scene: Scene) -> None:
    (agent,) = scene.agents
    agent.screen = BUSY
    scene.use(agent, 175_000)
    scene.tick()
    agent.screen = TypingRefused("gone")
    scene.tick()
    assert scene.cycles()[0]["step"] == "cancelled"
    assert scene.watch.handoffs.cycles == {}


# Whose move it is


@pytest.mark.parametrize("by_user", [True, False])
def test_a_session_that_is_interrupted_or_finished_above_the_mark_is_left_to_its_user(
    scene: Scene, by_user: bool
) -> None:
    (agent,) = scene.agents
    scene.use(agent, 175_000)
    scene.tick()
    agent.interrupt() if by_user else agent.finish()
    for _ in range(600):
        scene.tick()
        scene.use(agent, agent.used)
    assert (agent.sent, agent.pressed) == ([], [])
    (cycle,) = scene.cycles()
    assert (cycle["step"], scene.watch.handoffs.active) == ("resting", 0)
    assert ("interrupted" in cycle["why"]) is by_user
    assert not any("needs you" in line for line in scene.said)

    scene.begin()  # another daemon leaves it so, too
    scene.tick(60)
    assert agent.sent == []
    agent.record(prompt("Now the docs.", at=scene.clock.at, session=agent.session_id))
    agent.work()
    scene.use(agent, 176_000)
    for _ in range(int(AUTO.busy_wait_s)):
        scene.tick()
    assert agent.pressed == []  # its turn has its whole time
    scene.until(HandoffStep.DONE)
    assert (kinds(agent), agent.pressed) == (["request", "clear", "resume"], [("Escape",)])
    assert "Now the docs." in agent.docs_at_clear[-1]
    assert len(scene.cycles()) == 1


@pytest.mark.parametrize("by_user", [True, False])
def test_a_session_that_sat_there_full_before_is_not_touched(scene: Scene, by_user: bool) -> None:
    (agent,) = scene.agents
    agent.used = 190_000
    agent.interrupt() if by_user else agent.finish()
    scene.use(agent, 190_000)
    scene.tick(3_600)
    assert (scene.cycles(), agent.sent, agent.pressed) == ([], [], [])
    assert scene.notes("crossing")[-1]["zone"] == "handoff"
    said = scene.watch.commands.hand_over(agent.session_id, retry=False)
    assert "begins" in said
    scene.until(HandoffStep.DONE)
    assert kinds(agent) == ["request", "clear", "resume"]


def test_one_that_shows_its_prompt_though_its_records_break_off_is_not_touched(
    scene: Scene,
) -> None:
    """Such as one whose process was killed in a turn, and that its user has just resumed."""
    (agent,) = scene.agents
    scene.use(agent, 190_000)
    agent.screen = IDLE
    for _ in range(100):
        scene.tick()
    (cycle,) = scene.cycles()
    assert (cycle["step"], agent.sent, agent.pressed) == ("resting", [], [])


def test_a_limit_that_ends_the_turn_is_waited_for_and_no_handoff_stands_in_its_way(
    scene: Scene,
) -> None:
    (agent,) = scene.agents
    scene.use(agent, 175_000)
    scene.tick()
    agent.finish()
    scene.until(HandoffStep.RESTING)
    kept = scene.see(agent)
    ending = StoppedSession(
        agent="claude", session_id=agent.session_id, state="at_prompt", at=scene.clock.at
    )
    for number, resume in enumerate(
        (Resume("pane", "continue", "the limit is over"), Resume("pane", "handoff", "exhausted"))
    ):
        pending = Pending(id="w-1", tracked=kept, ending=ending, draw=0.0, verdict=resume)
        assert scene.watch.waking._carry(pending, resume) is None, number
        assert len(agent.sent) == 1
    scene.until(HandoffStep.DONE)
    assert [each["step"] for each in scene.cycles()] == ["cancelled", "done"]


def until_asked(scene: Scene) -> None:
    scene.agents[0].obeys = False
    scene.until(HandoffStep.ASKED)


def until_written(scene: Scene) -> None:
    scene.until(HandoffStep.ASKED)
    scene.agents[0].screen = BUSY  # it says something more
    scene.until(HandoffStep.WRITTEN)


def until_resumed(scene: Scene) -> None:
    scene.until(HandoffStep.CLEARED)
    scene.agents[0].obeys = False
    scene.until(HandoffStep.RESUMED)


@pytest.mark.parametrize("where", [until_asked, until_written, until_resumed])
def test_a_user_who_interrupts_what_segue_asked_for_is_not_asked_again(
    scene: Scene, where: Callable[[Scene], None]
) -> None:
    (agent,) = scene.agents
    scene.use(agent, 175_000)
    where(scene)
    sent = len(agent.sent)
    scene.clock.at += 2
    agent.interrupt()
    for _ in range(400):
        scene.tick()
    (cycle,) = scene.cycles()
    assert (cycle["step"], cycle["is_declined"], len(agent.sent)) == ("cancelled", True, sent)
    assert cycle["why"].startswith("the user interrupted it")
    if where is until_resumed:
        return
    for again in (False, True):  # also for a daemon that comes later
        if again:
            scene.begin()
        agent.work()
        scene.use(agent, 178_000)
        scene.tick(200)
        assert (len(scene.cycles()), len(agent.sent)) == (1, sent)
    agent.obeys = True
    scene.use(agent, 60_000)  # it was compacted, and fills again
    scene.use(agent, 175_000)
    scene.until(HandoffStep.DONE)


def test_an_interrupt_in_the_very_moment_in_which_the_context_is_to_be_cleared(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    (agent,) = scene.agents
    scene.use(agent, 175_000)
    scene.until(HandoffStep.WRITTEN)
    facts = scene.watch.handoffs.seen.facts

    def late(cycle: TerminalHandoff) -> list[AnyFact]:
        found = facts(cycle)
        if any(isinstance(fact, Ready) for fact in found):
            agent.interrupt()
        return found

    monkeypatch.setattr(scene.watch.handoffs.seen, "facts", late)
    scene.clock.at += 2
    scene.until(HandoffStep.CANCELLED)
    assert kinds(agent) == ["request"]


def test_an_interrupt_before_the_new_session_is_told_anything_leaves_it_empty(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen late: the context is cleared already."""
    (agent,) = scene.agents
    scene.use(agent, 175_000)
    scene.until(HandoffStep.CLEARED)
    old = agent.path.with_name(agent.path.name.replace("-2.", "-1."))
    with old.open("a") as file:
        file.write(interruption(at=scene.clock.at, session=f"s{agent.pid}-1") + "\n")
    scene.until(HandoffStep.CANCELLED)
    assert kinds(agent) == ["request", "clear"]
    assert scene.cycles()[0]["file"] in scene.cycles()[0]["why"]


def test_a_turn_that_ends_just_when_it_is_to_be_interrupted_is_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    (agent,) = scene.agents

    def late(*given: Any, **more: Any) -> None:
        agent.finish()  # and the key comes to an empty prompt

    monkeypatch.setattr(scene.typist, "press", late)
    scene.use(agent, 175_000)
    scene.until(HandoffStep.RESTING)
    scene.tick(300)
    assert agent.sent == []


def test_a_document_that_says_that_all_is_done_is_kept_and_nothing_is_resumed(
    scene: Scene,
) -> None:
    (agent,) = scene.agents
    agent.document = DOCUMENT.replace("1. `sh job/step 9`, then 10, 11 and 12.", "None.")
    scene.use(agent, 175_000)
    scene.until(HandoffStep.CANCELLED)
    assert kinds(agent) == ["request"]
    assert "nothing is left to do" in scene.cycles()[0]["why"]


# By hand


def test_the_user_hands_over_at_any_size_looks_and_takes_it_back(scene: Scene) -> None:
    (agent,) = scene.agents
    agent.screen = BUSY
    scene.use(agent, 40_000)
    said = scene.watch.commands.hand_over(agent.session_id, retry=False)
    assert "begins; the document will be " in said
    scene.tick()
    assert "is in progress: waiting" in scene.watch.commands.hand_over(
        agent.session_id, retry=False
    )
    assert "is cancelled" in scene.watch.commands.cancel(agent.session_id)
    scene.tick()
    (cycle,) = scene.cycles()
    assert (cycle["step"], cycle["why"]) == ("cancelled", "cancelled by the user")
    assert (agent.sent, agent.pressed) == ([], [])
    agent.screen = IDLE
    scene.watch.commands.hand_over(agent.session_id, retry=False)
    scene.until(HandoffStep.DONE)
    assert kinds(agent) == ["request", "clear", "resume"]


def test_the_user_says_continue_and_the_session_is_asked_again(scene: Scene) -> None:
    (agent,) = scene.agents
    agent.screen = Screen("unknown")
    scene.watch.commands.hand_over(agent.session_id, retry=False)
    scene.until(HandoffStep.NEEDS_USER)
    old = Path(scene.cycles()[0]["file"]).read_text()
    assert "continues" in scene.watch.commands.hand_over(agent.session_id, retry=True)
    scene.tick()
    agent.screen = IDLE
    scene.until(HandoffStep.DONE)
    assert kinds(agent) == ["request", "clear", "resume"]
    assert old not in agent.docs_at_clear


def test_a_session_that_cannot_be_asked_gets_a_newer_rule_made_document_when_it_continues(
    scene: Scene,
) -> None:
    (agent,) = scene.agents
    agent.screen = Screen("unknown")
    scene.watch.handoffs.begin(scene.see(agent), own=True)
    scene.until(HandoffStep.NEEDS_USER)
    agent.record(prompt("And mind the tests.", at=scene.clock.at, session=agent.session_id))
    agent.screen = IDLE
    scene.until(HandoffStep.DONE)
    assert kinds(agent) == ["clear", "resume"]
    (text,) = agent.docs_at_clear
    assert "And mind the tests." in text
    assert text.count(documents.RECORDED) == 1


def test_a_session_that_nothing_runs_any_more_is_not_handed_over(scene: Scene) -> None:
    (agent,) = scene.agents
    with pytest.raises(SegueError, match="no agent has it open"):
        scene.watch.handoffs.begin(scene.see(agent, process=False))


# kill -9


def whole(folder: Path) -> Scene:
    scene = Scene(folder)
    scene.agents[0].screen = BUSY
    scene.use(scene.agents[0], 175_000)
    return scene


def count(folder: Path) -> int:
    """How many moments a handoff has in which its daemon may be killed."""
    folder.mkdir()
    scene = whole(folder)
    scene.until(HandoffStep.DONE)
    scene.log.close()
    assert {"before typing", "in the input line", "sent", "pressed"} < set(scene.moments)
    return len(scene.moments)


def test_killed_at_any_moment_the_next_daemon_ends_it_and_types_nothing_twice(
    tmp_path: Path,
) -> None:
    """Also twice, one moment later."""
    for number in range(count(tmp_path / "count")):
        for again in (None, 1):
            folder = tmp_path / f"{number}-{again}"
            folder.mkdir()
            scene = whole(folder)
            (agent,) = scene.agents
            scene.left, killed, is_dead = number, 0, False
            for _ in range(300):
                try:
                    if is_dead:
                        scene.begin()
                        scene.use(agent, agent.used)
                        is_dead = False
                    scene.tick()
                    if not scene.watch.handoffs.cycles and not scene.watch.gauge.queued:
                        break
                    if scene.cycles()[0]["step"] == "needs_user":
                        agent.screen = IDLE  # killed each time that it was to be interrupted
                except Killed:
                    killed, is_dead = killed + 1, True
                    scene.left = again if killed == 1 else None
            where = f"killed at {number}, again {again}: {scene.moments[number]}"
            assert killed, where
            assert [cycle["step"] for cycle in scene.cycles()] == ["done"], where
            assert kinds(agent) == ["request", "clear", "resume"], where
            assert all(documents.check(text) == "" for text in agent.docs_at_clear), where
            assert [note["outcome"] for note in scene.notes("metrics")] == ["done"], where
            assert agent.used == 20_000
            scene.log.close()


def test_the_zone_of_the_session_that_is_replaced_is_not_that_of_the_new_one(
    scene: Scene,
) -> None:
    (agent,) = scene.agents
    scene.use(agent, 175_000)
    scene.until(HandoffStep.DONE)
    (kept,) = scene.notes("metrics")
    assert (kept["last_tokens"], kept["new_tokens"]) == (175_000, 20_000)
    assert kept["zone_path"][-1] == Zone.HANDOFF
