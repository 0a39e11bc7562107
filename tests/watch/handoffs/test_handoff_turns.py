"""Handoffs as the daemon carries them out, when the session or its user moves first: a turn that
ends or is interrupted, a user who asks for a handoff or takes it back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.homes import interruption, prompt
from support.watch.scenes import (
    AUTO,
    BUSY,
    DOCUMENT,
    IDLE,
    Scene,
    kinds,
)
from support.watch.scenes import scene as scene  # a fixture

from segue.core.handoffs import document as documents
from segue.core.handoffs.machine.types import AnyFact, HandoffStep, Ready, TerminalHandoff
from segue.core.resumes.decisions import Resume, StoppedSession
from segue.core.terminals.screen import Screen
from segue.errors import SegueError
from segue.sessions.evidence import LatestTurn
from segue.watch.handoffs.observer import CONTINUES_S
from segue.watch.resumes.pending import Pending

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
    facts = scene.watch.handoffs.observer.facts

    def late(cycle: TerminalHandoff) -> list[AnyFact]:
        found = facts(cycle)
        if any(isinstance(fact, Ready) for fact in found):
            agent.interrupt()
        return found

    monkeypatch.setattr(scene.watch.handoffs.observer, "facts", late)
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


def test_a_turn_that_only_looks_interrupted_before_it_continues_is_no_reason_to_cancel(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """opencode's records, when it is about to compact, are those of a turn that was given up."""
    (agent,) = scene.agents
    scene.use(agent, 175_000)
    agent.obeys = False
    scene.until(HandoffStep.ASKED)
    gap = LatestTurn(turn="interrupted", ended_at=scene.clock.at, may_continue=True)
    monkeypatch.setattr(scene.watch.state.records, "latest", lambda *args: gap)
    scene.tick(CONTINUES_S / 2)
    assert scene.cycles()[0]["step"] == "asked"
    scene.tick(CONTINUES_S)
    assert scene.cycles()[0]["step"] == "cancelled"
