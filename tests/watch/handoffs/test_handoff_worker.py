"""Handoffs as the daemon carries them out: with a clock, a terminal and an agent of the test's, and
the real rules, log, records and documents."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.homes import prompt
from support.waiting import LONG_S
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
from support.watch.scenes import scene as scene  # a fixture

from segue.core.handoffs import document as documents
from segue.core.handoffs.machine.types import HandoffStep
from segue.core.sessions.forecasts.forecast import Forecast, forecast
from segue.core.sessions.forecasts.growth import MIN_TASKS, Growth
from segue.core.sessions.reading import Reading, Zone
from segue.errors import StateError
from segue.runs.clock import Clock
from segue.system.tmux.typist import TypingRefused

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
    assert looks.acquire(timeout=LONG_S)
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
    scene.until(HandoffStep.DONE, max_ticks=20)
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
