"""The state machine of a handoff in a terminal: its paths, its fallbacks, and its invariants."""

import random
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import decode, encode

from segue.core.handoffs.machine import (
    TABLE,
    AgentGone,
    AnyAct,
    AnyFact,
    AskUser,
    Blocked,
    Busy,
    Cancel,
    Cleared,
    Done,
    FileSeen,
    HandoffFact,
    HandoffStep,
    Interrupt,
    KeyPressed,
    Metrics,
    NotInterrupted,
    NotTyped,
    NotWritten,
    OwnWritten,
    Planned,
    PromptSeen,
    ReadFile,
    Ready,
    RecordFigures,
    RetryRequested,
    TerminalHandoff,
    TimeUp,
    TurnInterrupted,
    Typed,
    TypeText,
    Used,
    UserSpoke,
    WentOn,
    What,
    WriteOwn,
    acts_again,
    due,
    fold,
    metrics,
    step,
    transitions,
)
from segue.core.policy import Policy

AT = 1_794_787_200.0
POLICY = Policy()
FACTS: tuple[type[HandoffFact], ...] = get_args(AnyFact)
WHATS: tuple[What, ...] = get_args(What)
PENDING: dict[HandoffStep, What] = {
    HandoffStep.ASKING: "request",
    HandoffStep.CLEARING: "clear",
    HandoffStep.RESUMING: "resume",
}


def new(**given: object) -> TerminalHandoff:
    known = {
        "id": "h-1",
        "agent": "claude",
        "session_id": "s1",
        "project": "/p",
        "cwd": "/p",
        "file": "/p/.segue/handoffs/handoff-20261116T0000-h-1.md",
        "began_at": AT,
        "step_at": AT,
        "used_tokens": 170_000,
        "window_tokens": 200_000,
        "zone_path": ("warning", "critical", "handoff"),
        "owes": True,  # its turn was interrupted for the handoff
    }
    return TerminalHandoff(**{**known, **given})  # type: ignore[arg-type]


class Led:
    """A cycle and all that happened to it."""

    def __init__(self, cycle: TerminalHandoff | None = None, policy: Policy = POLICY) -> None:
        self.first = self.cycle = cycle or new()
        self.policy, self.now = policy, AT
        self.log: list[tuple[AnyFact, float]] = []
        self.steps: list[tuple[TerminalHandoff, list[AnyAct]]] = []

    def at(self, where: HandoffStep) -> bool:
        return self.cycle.step is where

    def tell(self, *facts: AnyFact, after_s: float = 1.0) -> list[AnyAct]:
        """Tells these, each so much later; what the last one led to."""
        acts: list[AnyAct] = []
        for fact in facts:
            self.now += after_s
            self.cycle, acts = step(self.cycle, fact, self.policy, self.now)
            self.log.append((fact, self.now))
            self.steps.append((self.cycle, acts))
        return acts

    def time_up(self) -> list[AnyAct]:
        when = due(self.cycle, self.policy)
        assert when is not None
        self.now = max(self.now, when)
        return self.tell(TimeUp(), after_s=0.0)

    def all(self, kind: type[AnyAct]) -> list[AnyAct]:
        return [act for _, acts in self.steps for act in acts if isinstance(act, kind)]

    def typed(self) -> list[str]:
        return [act.what for act in self.all(TypeText) if isinstance(act, TypeText)]


def asked() -> Led:
    led = Led()
    led.tell(Planned(), Ready(), Typed("request"))
    return led


def written(**seen: int) -> Led:
    led = asked()
    led.tell(PromptSeen("request"), FileSeen(ok=True, bytes=4_000))
    return led


def cleared() -> Led:
    led = written()
    led.tell(Ready(), Typed("clear"), Cleared("s2"))
    return led


def resumed() -> Led:
    led = cleared()
    led.tell(Ready(), Typed("resume"), PromptSeen("resume"))
    return led


# The way that it should go


def test_a_session_is_asked_writes_is_cleared_reads_and_continues() -> None:
    led = Led()
    assert led.tell(Planned()) == []
    assert led.tell(Ready()) == [TypeText("request")]
    assert led.tell(Typed("request")) == []
    assert led.at(HandoffStep.ASKED)
    assert led.tell(Busy(), Used(172_000, "handoff"), FileSeen(ok=True, bytes=6_000)) == []
    assert (led.cycle.step, led.cycle.source) == (HandoffStep.WRITTEN, "agent")
    assert led.tell(Ready()) == [TypeText("clear")]
    assert led.tell(Typed("clear"), Cleared("s2")) == []
    assert (led.cycle.step, led.cycle.new_session_id) == (HandoffStep.CLEARED, "s2")
    assert led.tell(Ready()) == [TypeText("resume")]
    assert led.tell(Typed("resume"), PromptSeen("resume"), ReadFile(), Used(9_000)) == []
    assert led.at(HandoffStep.RESUMED)
    record, done = led.tell(WentOn())
    assert (led.cycle.step, done) == (HandoffStep.DONE, Done())
    assert isinstance(record, RecordFigures)
    assert led.typed() == ["request", "clear", "resume"]


def test_what_adr_017_wants_to_know_is_recorded() -> None:
    led = asked()
    led.tell(Used(172_000, "handoff"), FileSeen(ok=True, bytes=6_000), Ready(), Typed("clear"))
    led.tell(Cleared("s2"), Ready(), PromptSeen("resume"), Used(9_000), ReadFile(), WentOn())
    (record,) = led.all(RecordFigures)
    assert isinstance(record, RecordFigures)
    assert record.metrics == Metrics(
        id="h-1",
        agent="claude",
        session_id="s1",
        new_session_id="s2",
        project="/p",
        outcome=HandoffStep.DONE,
        why="",
        began_at=AT,
        by_user=False,
        source="agent",
        trigger_tokens=170_000,
        trigger_fraction=0.85,
        window_tokens=200_000,
        last_tokens=172_000,
        last_fraction=0.86,
        document_bytes=6_000,
        document_tokens=1_500,
        new_tokens=9_000,
        zone_path=("warning", "critical", "handoff"),
        waited_s=3.0,
        written_s=2.0,
        duration_s=13.0,
        interrupts=0,
        tries={"request": 1, "clear_tried": 1, "clear": 1, "resume": 1},
        went_on=True,
        justified=False,
    )


@pytest.mark.parametrize(
    ("used", "limit", "fits", "justified"),
    [
        (179_999, None, None, False),
        (180_000, None, None, True),
        (172_000, None, True, False),
        (172_000, None, False, True),
        (160_000, 167_000, None, True),  # it would have compacted by itself
    ],
)
def test_a_handoff_was_justified_from_90_percent_on_or_if_the_next_work_did_not_fit(
    used: int, limit: int | None, fits: bool | None, justified: bool
) -> None:
    led = Led(new(limit_tokens=limit))
    led.tell(Used(used, "handoff", fits), Used(used, "handoff"))
    assert metrics(led.cycle, led.now).justified is None
    led.tell(Ready(), Typed("request"), FileSeen(ok=True), Ready(), Typed("clear"), Cleared("s2"))
    assert metrics(led.cycle, led.now).justified is justified


def test_zones_are_recorded_in_their_order_each_change_once() -> None:
    led = Led(new(zone_path=()))
    led.tell(Used(1, "monitor"), Used(2, "monitor"), Used(3, "handoff"), Used(4))
    assert led.cycle.zone_path == ("monitor", "handoff")


# Waiting and interrupting


def test_a_turn_that_does_not_end_is_interrupted_and_then_the_user_asked() -> None:
    led = Led()
    led.tell(Planned(), Busy())
    assert due(led.cycle, POLICY) == AT + POLICY.busy_wait_s
    assert led.tell(TimeUp()) == []  # too early
    for _ in range(3):
        assert led.time_up() == [Interrupt()]
    assert led.time_up() == [WriteOwn()]
    (ask,) = led.tell(OwnWritten(900))
    assert isinstance(ask, AskUser)
    assert "cannot be interrupted" in ask.why
    assert led.cycle.file in ask.why
    assert led.typed() == []


def test_a_session_that_works_on_after_its_document_is_interrupted_before_it_is_cleared() -> None:
    led = written()
    led.tell(Busy())
    assert led.time_up() == [Interrupt()]
    assert led.tell(Ready()) == [TypeText("clear")]


# The document


def test_a_document_that_never_comes_is_written_by_segue() -> None:
    led = asked()
    asked_at = led.cycle.step_at
    assert due(led.cycle, POLICY) == asked_at + 300
    assert led.time_up() == [WriteOwn()]
    assert led.tell(Ready()) == []  # not yet
    led.tell(OwnWritten(900))
    assert (led.cycle.step, led.cycle.source) == (HandoffStep.WRITTEN, "segue")
    assert led.tell(Ready()) == [TypeText("clear")]


def test_an_invalid_document_is_asked_for_once_more_and_then_written_by_segue() -> None:
    led = asked()
    assert led.tell(FileSeen(ok=False, stable=False)) == []  # half of it
    assert led.at(HandoffStep.ASKED)
    assert led.tell(FileSeen(ok=False, why="it is empty")) == []
    assert "it is empty" in led.cycle.why
    assert led.tell(Ready()) == [TypeText("request")]
    assert led.tell(Typed("request"), FileSeen(ok=False, why="again")) == [WriteOwn()]


def test_a_file_of_an_earlier_request_changes_nothing() -> None:
    led = asked()
    old = led.now
    led.tell(FileSeen(ok=False, changed_at=old), Ready(), Typed("request"))
    assert led.tell(FileSeen(ok=False, changed_at=old)) == []  # still the same
    assert led.at(HandoffStep.ASKED)
    led.tell(FileSeen(ok=True, changed_at=led.now))
    assert led.at(HandoffStep.WRITTEN)
    old = led.now
    led.tell(UserSpoke(), Ready(), FileSeen(ok=True, changed_at=old), Typed("request"))
    assert led.at(HandoffStep.ASKED)
    assert led.tell(FileSeen(ok=True, changed_at=old)) == []
    assert not led.cycle.has_document


def test_a_valid_file_that_still_changes_is_not_a_document_yet() -> None:
    led = asked()
    assert led.tell(FileSeen(ok=True, stable=False), Ready()) == []
    led.tell(FileSeen(ok=True))
    assert led.at(HandoffStep.WRITTEN)
    assert led.tell(FileSeen(ok=True, stable=False), Ready()) == []
    assert led.tell(FileSeen(ok=True), Ready()) == [TypeText("clear")]


def test_a_document_that_vanishes_is_written_by_segue_before_anything_is_cleared() -> None:
    led = written()
    assert led.tell(FileSeen(ok=False, why="no such file")) == [WriteOwn()]
    led.tell(OwnWritten(900), Ready())
    assert led.at(HandoffStep.CLEARING)
    led.tell(FileSeen(ok=False))
    assert acts_again(led.cycle) == [WriteOwn()]
    assert led.tell(NotTyped("clear", "the document is gone")) == [WriteOwn()]


def test_a_document_that_vanishes_while_the_context_is_cleared_is_written_from_the_records() -> (
    None
):
    led = written()
    led.tell(Ready(), Typed("clear"), FileSeen(ok=False))
    assert led.tell(Cleared("s2")) == [WriteOwn()]
    led.tell(OwnWritten(900))
    assert led.at(HandoffStep.CLEARED)
    assert led.tell(FileSeen(ok=False)) == [WriteOwn()]
    assert led.tell(OwnWritten(900), Ready()) == [TypeText("resume")]


def test_a_disk_that_takes_nothing_leads_to_a_question_and_nothing_is_cleared() -> None:
    led = asked()
    led.time_up()
    (ask,) = led.tell(NotWritten("No space left on device"))
    assert isinstance(ask, AskUser)
    assert "No space left" in ask.why
    assert "clear" not in led.typed()


def test_a_document_that_the_session_wrote_unasked_or_by_a_hook_is_taken() -> None:
    led = Led()
    led.tell(FileSeen(ok=True))
    assert led.at(HandoffStep.WRITTEN)
    led = Led()
    led.tell(PromptSeen("request"), FileSeen(ok=True))
    assert (led.cycle.step, led.typed()) == (HandoffStep.WRITTEN, [])


# Typing


def test_what_cannot_be_typed_now_is_tried_again_and_after_a_while_segue_writes_itself() -> None:
    led = Led()
    led.tell(Ready(), NotTyped("request", "draft"))
    assert led.at(HandoffStep.WAITING)
    assert led.tell(Ready()) == [TypeText("request")]
    assert led.tell(NotTyped("request", "draft"), after_s=500) == [WriteOwn()]
    led.tell(OwnWritten(900))
    assert led.tell(Ready()) == [TypeText("clear")]
    led.tell(NotTyped("clear", "draft"), Ready())
    (ask,) = led.tell(NotTyped("clear", "draft"), after_s=500)
    assert isinstance(ask, AskUser)
    assert led.at(HandoffStep.NEEDS_USER)


def test_where_nothing_can_be_typed_the_user_is_asked_once_with_a_document_on_disk() -> None:
    led = Led()
    assert led.tell(Ready(), NotTyped("request", "gone", retry=False)) == [WriteOwn()]
    (ask,) = led.tell(OwnWritten(900))
    assert isinstance(ask, AskUser)
    assert led.cycle.file in ask.why
    assert led.tell(Ready(), Busy(), UserSpoke(), FileSeen(ok=True)) == []
    assert len(led.all(AskUser)) == 1


def test_the_user_says_continue_and_it_continues_from_there() -> None:
    led = Led()
    led.tell(Ready(), NotTyped("request", "gone", retry=False), OwnWritten(900), RetryRequested())
    assert led.at(HandoffStep.WAITING)
    assert led.tell(FileSeen(ok=True, changed_at=AT)) == []  # much may have happened since
    assert led.tell(Ready()) == [TypeText("request")]
    led.tell(Typed("request"), FileSeen(ok=True), Ready())
    led.tell(Typed("clear"), Cleared("s2"), AgentGone("crash"))
    assert led.at(HandoffStep.NEEDS_USER)
    assert led.tell(RetryRequested(), Ready()) == [TypeText("resume")]


def test_a_context_that_does_not_clear_is_tried_three_times() -> None:
    led = written()
    for _ in range(3):
        assert led.tell(Ready()) == [TypeText("clear")]
        led.tell(Typed("clear"))
        led.time_up()
    assert led.at(HandoffStep.NEEDS_USER)
    led = written()
    led.tell(Ready(), Typed("clear"))
    led.time_up()
    led.tell(Cleared("s2"))  # late
    assert led.at(HandoffStep.CLEARED)


def test_a_resume_prompt_that_is_not_heard_is_typed_again() -> None:
    led = cleared()
    led.tell(Ready(), Typed("resume"))
    led.time_up()
    assert led.at(HandoffStep.CLEARED)
    assert led.tell(Ready()) == [TypeText("resume")]
    led.tell(Typed("resume"), PromptSeen("resume"))
    (ask,) = led.time_up()
    assert isinstance(ask, AskUser)
    assert "did not read" in ask.why
    led.tell(ReadFile(), WentOn())  # late: after a limit, say
    assert led.at(HandoffStep.DONE)


def test_continuing_without_reading_is_not_a_handoff() -> None:
    led = resumed()
    assert led.tell(WentOn()) == []
    assert led.at(HandoffStep.RESUMED)
    led.tell(ReadFile())
    assert led.at(HandoffStep.DONE)


def test_a_prompt_that_nobody_answers_for_is_taken_as_not_typed() -> None:
    led = Led()
    led.tell(Ready())
    led.time_up()
    assert led.at(HandoffStep.WAITING)


# The user


def test_what_the_user_says_before_the_clearing_makes_the_document_stale() -> None:
    led = written()
    led.tell(UserSpoke())
    assert (led.cycle.step, led.cycle.has_document) == (HandoffStep.WAITING, False)
    assert led.tell(FileSeen(ok=True)) == []  # the old one
    assert led.at(HandoffStep.WAITING)
    assert led.tell(Ready()) == [TypeText("request")]
    led.tell(Typed("request"), FileSeen(ok=True), Ready(), UserSpoke())
    led.tell(NotTyped("clear", "draft"))
    assert led.at(HandoffStep.WAITING)


def test_a_request_that_is_being_typed_is_not_given_again_because_the_user_spoke() -> None:
    led = Led()
    led.tell(Ready(), UserSpoke(), Ready())
    assert (led.cycle.step, led.typed()) == (HandoffStep.ASKING, ["request"])


def test_a_user_who_continues_talking_is_not_asked_for_documents_for_ever() -> None:
    led = Led()
    for _ in range(3):
        led.tell(Ready(), Typed("request"), UserSpoke())
    assert led.tell(Ready()) == [WriteOwn()]


def test_a_user_who_takes_the_new_session_over_is_not_typed_over() -> None:
    led = cleared()
    (ask,) = led.tell(UserSpoke())
    assert isinstance(ask, AskUser)
    assert led.tell(Ready()) == []


@pytest.mark.parametrize("where", [Led, asked, written])
def test_a_context_that_the_user_clears_ends_it(where: Callable[[], Led]) -> None:
    led = where()
    led.tell(Cleared("s9"))
    assert (led.cycle.step, led.cycle.why) == (
        HandoffStep.CANCELLED,
        "the user cleared the context",
    )


def test_a_process_that_ends_before_the_clearing_cancels_and_after_it_asks() -> None:
    for before in (Led, asked, written):
        led = before()
        led.tell(AgentGone("crash"))
        assert led.at(HandoffStep.CANCELLED)
    for after in (cleared, resumed):
        led = after()
        (ask,) = led.tell(AgentGone("crash"))
        assert isinstance(ask, AskUser)
        assert led.cycle.file in ask.why
    led = written()
    led.tell(Ready(), Typed("clear"), AgentGone())  # nobody knows whether it was cleared
    assert led.at(HandoffStep.NEEDS_USER)


def test_a_dialog_is_left_to_the_user_and_once_it_is_gone_the_session_is_asked_again() -> None:
    led = Led(new())
    led.tell(Blocked("a dialog is open"))
    assert led.time_up() == [WriteOwn()]
    (ask,) = led.tell(OwnWritten(900))
    assert isinstance(ask, AskUser)
    assert "a dialog is open" in ask.why
    assert led.tell(Blocked("a dialog is open")) == []
    led.tell(Busy())  # it was answered
    assert (led.cycle.step, led.cycle.blocked, led.all(Interrupt)) == (HandoffStep.WAITING, "", [])
    assert led.tell(Ready()) == [TypeText("request")]


def test_a_turn_that_could_not_be_interrupted_is_handed_over_when_it_ends() -> None:
    led = Led(new())
    for _ in range(4):
        led.time_up()
    led.tell(OwnWritten(900), Busy())
    assert led.at(HandoffStep.NEEDS_USER)
    led.tell(Ready())
    assert led.at(HandoffStep.WAITING)


def test_a_turn_that_continues_after_a_dialog_gets_its_whole_time() -> None:
    led = Led(new())
    led.tell(Blocked("?"), after_s=100)
    led.tell(Busy())
    assert due(led.cycle, POLICY) == led.now + POLICY.busy_wait_s


def test_a_user_who_continues_by_hand_in_the_new_session_ends_it() -> None:
    led = cleared()
    led.tell(AgentGone("?"), UserSpoke())
    assert (led.cycle.step, led.cycle.why) == (HandoffStep.CANCELLED, "the user continued the work")


# Whose move it is


def working(**given: object) -> Led:
    """In a turn of its own, which segue has not touched."""
    return Led(new(**{"owes": False, **given}))


@pytest.mark.parametrize(
    ("fact", "rests"),
    [
        (Ready(is_over=True), True),
        (Ready(is_long=True), True),  # whatever its records say
        (TurnInterrupted(AT + 1), True),
        (TurnInterrupted(None), True),
        (Ready(), False),  # for a moment, between two tools
        (Busy(), False),
        (Blocked(), False),
    ],
)
def test_a_session_that_comes_to_its_prompt_is_its_users(fact: AnyFact, rests: bool) -> None:
    led = working()
    led.tell(Busy(), fact)
    assert led.at(HandoffStep.RESTING if rests else HandoffStep.WAITING)
    if not rests:
        return
    assert not led.cycle.step.is_active
    assert due(led.cycle, POLICY) is None
    led.tell(Ready(is_over=True), Ready(is_long=True), TimeUp(), TurnInterrupted(), after_s=1e6)
    led.tell(FileSeen(ok=True), Used(180_000, is_near=True, is_past=True), after_s=1e6)
    assert (led.cycle.step, led.typed(), led.all(Interrupt)) == (HandoffStep.RESTING, [], [])


def test_the_users_next_words_make_it_work_and_then_its_turn_has_its_whole_time() -> None:
    led = working()
    led.tell(Busy(), Ready(is_over=True))
    led.tell(Busy(), after_s=3_600)
    assert (led.cycle.step, led.cycle.why) == (HandoffStep.WAITING, "")
    assert due(led.cycle, POLICY) == led.now + POLICY.busy_wait_s
    assert led.time_up() == [Interrupt()]
    assert led.tell(TurnInterrupted(led.now), Ready()) == [TypeText("request")]


def test_a_session_that_rests_is_handed_over_when_the_user_says_so() -> None:
    led = working()
    led.tell(Ready(is_over=True), RetryRequested())
    assert led.tell(Ready(is_over=True)) == [TypeText("request")]


@pytest.mark.parametrize("fact", [AgentGone("exit"), Cleared("s2"), Cancel("compacted")])
def test_a_rest_ends_with_the_session(fact: AnyFact) -> None:
    led = working()
    led.tell(Ready(is_over=True), fact)
    assert led.at(HandoffStep.CANCELLED)


def test_a_turn_that_ends_just_before_it_is_interrupted_is_over_all_the_same() -> None:
    led = working()
    assert led.time_up() == [Interrupt()]
    led.tell(Ready())  # its records are not there yet
    assert (led.cycle.step, led.typed()) == (HandoffStep.WAITING, [])
    led.tell(Ready(is_over=True))
    assert (led.cycle.step, led.cycle.cut_at) == (HandoffStep.RESTING, None)


def test_an_interrupt_that_no_record_tells_of_is_believed_after_a_while() -> None:
    led = working()
    led.time_up()
    assert led.tell(Ready()) == []
    assert led.tell(Ready(is_long=True)) == [TypeText("request")]


def test_a_key_that_was_not_pressed_is_not_an_interrupt_and_the_users_is_theirs() -> None:
    led = working()
    led.time_up()
    led.tell(NotInterrupted("busy"))
    assert (led.cycle.cut_at, led.cycle.was_cut) == (None, False)
    led.tell(TurnInterrupted(led.now))
    assert led.at(HandoffStep.RESTING)


def test_a_second_key_that_came_too_late_does_not_make_the_first_one_the_users() -> None:
    led = working()
    led.time_up()
    led.time_up()
    led.tell(NotInterrupted("idle"), TurnInterrupted(led.now - 1))
    assert led.tell(Ready()) == [TypeText("request")]


def test_a_turn_that_takes_no_key_is_told_to_the_user_after_a_while() -> None:
    led = working()
    for _ in range(10):
        led.time_up()
        led.tell(NotInterrupted("user_active"))
    led.tell(OwnWritten(900))
    assert led.at(HandoffStep.NEEDS_USER)
    assert "cannot be interrupted: user_active" in led.cycle.why


def test_an_interrupt_long_after_segues_own_is_the_users() -> None:
    led = working()
    led.time_up()
    led.tell(TurnInterrupted(led.now + 11))
    assert led.at(HandoffStep.RESTING)


def test_an_interrupt_after_segue_was_killed_before_its_own_key_is_the_users() -> None:
    """Nothing is cleared: the user has called it off. Had segue pressed its key, it would have
    logged that, and the same record would be segue's."""
    led, pressed = working(), working()
    for each in (led, pressed):
        each.time_up()
    pressed.tell(KeyPressed())
    for each in (led, pressed):
        each.tell(TurnInterrupted(each.now + 5))
    assert led.at(HandoffStep.RESTING)
    assert (pressed.cycle.step, pressed.cycle.owes) == (HandoffStep.WAITING, True)


def test_a_session_that_its_hook_asks_just_when_segue_interrupts_it_is_asked_once_more() -> None:
    led = working()
    led.time_up()
    led.tell(PromptSeen("request"))
    assert led.at(HandoffStep.ASKED)
    told = TurnInterrupted(led.now)
    led.tell(told, told)  # the same record each time that it is looked at
    led.time_up()
    led.tell(NotInterrupted("idle"), told)
    assert led.tell(Ready()) == [TypeText("request")]
    led.tell(Typed("request"), TurnInterrupted(led.now))  # this is the user's
    assert (led.cycle.step, led.cycle.is_declined) == (HandoffStep.CANCELLED, True)


def test_what_the_user_says_instead_of_what_was_interrupted_is_theirs() -> None:
    led = working()
    led.time_up()
    led.tell(TurnInterrupted(led.now), UserSpoke(), Busy(), Ready(is_over=True))
    assert (led.cycle.step, led.typed()) == (HandoffStep.RESTING, [])


def test_a_user_who_asked_for_it_may_interrupt_so_that_it_comes_sooner() -> None:
    led = working(by_user=True)
    assert led.tell(Busy(), TurnInterrupted(AT + 2), Ready()) == [TypeText("request")]
    led.tell(Typed("request"), TurnInterrupted(AT - 50))  # of long before
    assert led.at(HandoffStep.ASKED)
    led.tell(TurnInterrupted(led.now))
    assert led.at(HandoffStep.CANCELLED)


def clearing() -> Led:
    led = written()
    led.tell(Ready())
    return led


def resuming() -> Led:
    led = cleared()
    led.tell(Ready())
    return led


@pytest.mark.parametrize("where", [asked, written, clearing, cleared, resuming, resumed])
def test_a_user_who_interrupts_what_segue_asked_for_is_left_alone(where: Callable[[], Led]) -> None:
    led = where()
    acts = led.tell(TurnInterrupted(led.now))
    assert [type(act) for act in acts] == [RecordFigures, Done]
    assert (led.cycle.step, led.cycle.is_declined) == (HandoffStep.CANCELLED, True)
    assert led.cycle.why.startswith("the user interrupted it")
    assert (led.cycle.file in led.cycle.why) is led.cycle.has_document


def test_a_session_that_works_on_after_its_document_is_interrupted_by_segue_not_by_the_user() -> (
    None
):
    led = written()
    assert led.time_up() == [Interrupt()]
    led.tell(TurnInterrupted(led.now))
    assert led.tell(Ready()) == [TypeText("clear")]


def test_a_document_that_says_that_nothing_is_left_is_kept_and_nothing_is_resumed() -> None:
    led = asked()
    led.tell(FileSeen(ok=True, bytes=900, nothing_left=True))
    assert led.at(HandoffStep.CANCELLED)
    assert led.cycle.why.startswith("nothing is left to do")
    assert led.cycle.file in led.cycle.why
    led = Led(new(by_user=True))  # a new session is what they want
    led.tell(Ready(), Typed("request"), FileSeen(ok=True, nothing_left=True))
    assert led.at(HandoffStep.WRITTEN)


# Before the agent compacts by itself


@pytest.mark.parametrize(
    ("used", "busy", "is_cut"),
    [
        ([Used(150_000)], Busy(at_boundary=True), False),
        ([Used(170_000, is_near=True)], Busy(), False),  # a tool runs
        ([Used(170_000, is_near=True)], Busy(at_boundary=True), True),
        ([Used(170_000, is_near=True)], Busy(at_boundary=True, is_hooked=True), False),
        # The moment between two tools was missed.
        ([Used(170_000, is_near=True), Used(180_000, is_near=True)], Busy(), True),
        ([Used(170_000, is_near=True), Used(180_000, is_near=True)], Busy(is_hooked=True), False),
        # There is no room for what the tool that runs will print.
        ([Used(192_000, is_near=True, is_past=True)], Busy(), True),
        ([Used(192_000, is_near=True, is_past=True)], Busy(is_hooked=True), False),
        # It was compacted.
        ([Used(170_000, is_near=True), Used(60_000)], Busy(at_boundary=True), False),
    ],
)
def test_a_turn_near_the_agents_own_limit_is_interrupted_between_two_tools_if_that_can_be(
    used: list[AnyFact], busy: Busy, is_cut: bool
) -> None:
    led = working()
    acts = led.tell(Busy(), *used, busy)
    assert acts == ([Interrupt()] if is_cut else [])
    assert led.tell(busy) == []  # once


def test_a_key_that_is_swallowed_near_the_limit_is_pressed_again_soon() -> None:
    led = working()
    led.tell(Used(170_000, is_near=True), Busy(at_boundary=True))
    when = due(led.cycle, POLICY)
    assert when is not None
    assert when - led.now < 10
    assert led.time_up() == [Interrupt()]


# Whatever happens


class Dice:
    """Facts by chance, mostly such as answer what is awaited."""

    def __init__(self, chance: random.Random) -> None:
        self.of = chance

    def maybe(self, share: float = 0.5) -> bool:
        return self.of.random() < share

    def fact(self, cycle: TerminalHandoff) -> AnyFact:
        what = PENDING.get(cycle.step, "resume" if cycle.is_cleared else "request")
        what = what if self.maybe(0.9) else self.of.choice(WHATS)
        make: dict[type[HandoffFact], Callable[[], AnyFact]] = {
            Typed: lambda: Typed(what),
            NotTyped: lambda: NotTyped(what, "?", self.maybe(0.8)),
            PromptSeen: lambda: PromptSeen(what),
            FileSeen: lambda: FileSeen(
                self.maybe(), "?", 10, self.maybe(0.8), nothing_left=self.maybe(0.05)
            ),
            Ready: lambda: Ready(self.maybe(0.2), self.maybe(0.2)),
            Busy: lambda: Busy(self.maybe(0.2), self.maybe(), self.maybe()),
            TurnInterrupted: lambda: TurnInterrupted(
                self.of.choice((None, AT - 50, cycle.step_at))
            ),
            KeyPressed: KeyPressed,
            NotInterrupted: lambda: NotInterrupted("?"),
            OwnWritten: lambda: OwnWritten(10),
            NotWritten: lambda: NotWritten("?"),
            Cleared: lambda: Cleared(self.of.choice(("", "s2"))),
            AgentGone: lambda: AgentGone("?"),
            Used: lambda: Used(
                self.of.randrange(200_000),
                self.of.choice(("", "a", "b")),
                is_near=self.maybe(),
                is_past=self.maybe(),
            ),
        }
        rare = (AgentGone, Cancel, Cleared, NotWritten, UserSpoke, TurnInterrupted)
        kinds = [kind for kind in FACTS if kind not in rare or self.maybe(0.15)]
        if self.maybe(0.4):
            likely: dict[HandoffStep, tuple[type[HandoffFact], ...]] = {
                HandoffStep.WAITING: (Ready, Busy, NotInterrupted),
                HandoffStep.RESTING: (Busy, RetryRequested),
                HandoffStep.ASKING: (Typed, PromptSeen, FileSeen),
                HandoffStep.ASKED: (FileSeen, TimeUp),
                HandoffStep.WRITING: (OwnWritten, Cleared, UserSpoke),
                HandoffStep.WRITTEN: (Ready, Ready, TimeUp, FileSeen, NotInterrupted),
                HandoffStep.CLEARING: (Typed, Cleared, UserSpoke, FileSeen),
                HandoffStep.CLEARED: (Ready,),
                HandoffStep.RESUMING: (Typed, UserSpoke),
                HandoffStep.RESUMED: (ReadFile, WentOn, TimeUp),
                HandoffStep.NEEDS_USER: (RetryRequested, Cleared, ReadFile),
            }
            kinds = list(likely.get(cycle.step, FACTS))
        kind = self.of.choice(kinds)
        return make.get(kind, kind)()  # type: ignore[return-value]


def walk(seed: int, steps: int = 40) -> Led:
    dice = Dice(random.Random(seed))
    led = Led(new(owes=dice.maybe()))
    for _ in range(steps):
        led.tell(dice.fact(led.cycle), after_s=dice.of.choice((0.1, 5.0, 50.0, 400.0)))
    return led


seeds = st.integers(0, 2**64).map(walk)


def test_the_table_has_a_rule_for_every_step_and_every_fact() -> None:
    assert set(TABLE) == {(where, fact) for where in HandoffStep for fact in FACTS}
    found = {(where, fact) for where, fact, _ in transitions()}
    assert not any(where.is_final for where, _ in found)
    assert (HandoffStep.WAITING, Ready) in found


def test_the_table_says_exactly_where_each_fact_may_lead() -> None:
    """Both ways: no way but those in the table, and each of those is gone by some cycle."""
    seen: dict[tuple[HandoffStep, type[HandoffFact]], set[HandoffStep]] = {}
    rare = written()
    rare.tell(Ready(), NotTyped("clear", "draft"), FileSeen(ok=False, stable=False), Cleared("s2"))
    refused = written()
    refused.tell(FileSeen(ok=False, stable=False), *[NotInterrupted("the user types")] * 10)
    for led in (rare, refused, *map(walk, range(6_000))):
        before = led.first
        for (fact, _), (after, _) in zip(led.log, led.steps, strict=True):
            seen.setdefault((before.step, type(fact)), set()).add(after.step)
            before = after
    wrong = {key: seen[key] - TABLE[key].leads_to for key in seen}
    assert not {key: steps for key, steps in wrong.items() if steps}
    unused = {key: TABLE[key].leads_to - seen.get(key, set()) - {key[0]} for key in TABLE}
    assert not {key: steps for key, steps in unused.items() if steps}


@settings(max_examples=100)
@given(seeds)
def test_a_context_is_never_cleared_without_a_valid_document(led: Led) -> None:
    is_valid = False
    for (fact, _), (cycle, acts) in zip(led.log, led.steps, strict=True):
        if isinstance(fact, FileSeen):
            is_valid = fact.ok and fact.stable
        elif isinstance(fact, OwnWritten):
            is_valid = True
        assert is_valid or not cycle.has_document or cycle.step.is_final
        assert is_valid or TypeText("clear") not in (*acts, *acts_again(cycle))


@settings(max_examples=100)
@given(seeds)
def test_never_are_two_different_things_to_be_typed_at_once(led: Led) -> None:
    pending: What | None = None
    before = led.first
    for (fact, at), (cycle, acts) in zip(led.log, led.steps, strict=True):
        answers = "clear" if isinstance(fact, Cleared) else getattr(fact, "what", None)
        if answers == pending:
            pending = None
        elif isinstance(fact, TimeUp):
            when = due(before, led.policy)
            pending = None if when is not None and at >= when else pending
        given_now = [act.what for act in acts if isinstance(act, TypeText)]
        assert len(given_now) < 2
        assert not (given_now and pending) or given_now[0] == pending
        pending = given_now[0] if given_now else pending
        before = cycle


@settings(max_examples=100)
@given(seeds)
def test_nothing_is_done_after_its_end_and_it_is_recorded_once(led: Led) -> None:
    ends = [n for n, (cycle, _) in enumerate(led.steps) if cycle.step.is_final]
    if ends:
        cycle, acts = led.steps[ends[0]]
        assert [type(act) for act in acts] == [RecordFigures, Done]
        assert all(after == (cycle, []) for after in led.steps[ends[0] + 1 :])
        assert acts_again(cycle) == []
        assert due(cycle, led.policy) is None
    assert len(led.all(RecordFigures)) == bool(ends)


@settings(max_examples=100)
@given(seeds)
def test_the_user_is_asked_once_for_each_time_that_it_stops_for_them(led: Led) -> None:
    stops, before = 0, led.first
    for cycle, _ in led.steps:
        stops += cycle.step is HandoffStep.NEEDS_USER and before.step is not HandoffStep.NEEDS_USER
        before = cycle
    assert len(led.all(AskUser)) == stops


@settings(max_examples=100)
@given(seeds)
def test_a_cycle_is_what_its_facts_made_of_it_also_when_they_were_written_down(led: Led) -> None:
    kept = [(decode(encode(fact), type=AnyFact), at) for fact, at in led.log]
    assert fold(led.first, kept, led.policy) == led.cycle
    assert decode(encode(led.cycle), type=TerminalHandoff) == led.cycle
    acts = [act for _, acts in led.steps for act in acts]
    assert decode(encode(acts), type=list[AnyAct]) == acts


@settings(max_examples=100)
@given(seeds)
def test_whatever_happened_a_silent_world_leads_to_an_end_or_to_the_user(led: Led) -> None:
    """With time alone: nothing waits for ever."""
    led.tell(Planned())
    for _ in range(60):
        if not led.cycle.step.is_active:
            return
        if led.at(HandoffStep.WRITING):
            led.tell(NotWritten("?"))
        elif led.cycle.step in PENDING and not led.cycle.is_typed:
            led.tell(NotTyped("request", "?"), NotTyped("clear", "?"), NotTyped("resume", "?"))
        else:
            led.time_up()
    raise AssertionError(led.cycle)


@settings(max_examples=100)
@given(seeds)
def test_whatever_happened_an_agent_that_does_as_told_leads_to_the_end(led: Led) -> None:
    answers: dict[HandoffStep, tuple[AnyFact, ...]] = {
        HandoffStep.WAITING: (Ready(),),
        HandoffStep.RESTING: (RetryRequested(),),
        HandoffStep.ASKING: (Typed("request"),),
        HandoffStep.ASKED: (FileSeen(ok=True),),
        HandoffStep.WRITING: (OwnWritten(9),),
        HandoffStep.WRITTEN: (FileSeen(ok=True), Ready()),
        HandoffStep.CLEARING: (FileSeen(ok=True), Typed("clear"), Cleared("s2")),
        HandoffStep.CLEARED: (FileSeen(ok=True), Ready()),
        HandoffStep.RESUMING: (Typed("resume"),),
        HandoffStep.RESUMED: (ReadFile(), WentOn()),
        HandoffStep.NEEDS_USER: (RetryRequested(),),
    }
    for _ in range(30):
        if led.cycle.step.is_final:
            return
        if led.at(HandoffStep.WAITING) and not led.cycle.owes:
            led.tell(Planned())
            led.time_up()
            led.tell(TurnInterrupted(led.now))
        if not led.cycle.step.is_final:
            led.tell(*answers[led.cycle.step])
    raise AssertionError(led.cycle)


def test_what_is_seen_again_of_a_new_session_does_not_begin_its_time_again() -> None:
    """A session that has read its document and hangs is asked about in the end: each look shows
    once more that it has read it."""
    cycle = new(step=HandoffStep.RESUMED, is_cleared=True, is_heard=True, has_document=True)
    cycle, _ = step(cycle, ReadFile(), POLICY, AT + 10)
    assert (cycle.is_read, cycle.step_at) == (True, AT + 10)
    again, acts = step(cycle, ReadFile(), POLICY, AT + 200)
    assert (again, acts) == (cycle, [])
    asked, _ = step(again, TimeUp(), POLICY, AT + 10 + POLICY.handoff_wait_s)
    assert asked.step is HandoffStep.NEEDS_USER


def test_a_user_who_was_asked_is_not_asked_again_for_what_was_heard_before() -> None:
    """The records still show that the new session was told: that is no news, and its user is not
    asked every five minutes."""
    cycle = new(step=HandoffStep.RESUMED, is_cleared=True, is_heard=True, has_document=True)
    asked, acts = step(cycle, TimeUp(), POLICY, AT + POLICY.handoff_wait_s)
    assert asked.step is HandoffStep.NEEDS_USER
    assert any(isinstance(act, AskUser) for act in acts)
    assert step(asked, PromptSeen("resume"), POLICY, AT + 1_000) == (asked, [])
    read, _ = step(asked, ReadFile(), POLICY, AT + 1_001)
    assert read.step is HandoffStep.RESUMED


def test_a_cleared_context_that_is_seen_at_every_look_is_no_news() -> None:
    """A handoff that waits for its user is looked at for days: the log must not grow with it."""
    cycle = new(
        step=HandoffStep.NEEDS_USER, is_cleared=True, cleared_at=AT, has_document=True,
        new_session_id="s2",
    )  # fmt: skip
    assert step(cycle, Cleared("s2"), POLICY, AT + 1_000) == (cycle, [])
