"""A handoff in a terminal step by step: the way it should go, waiting, the document, typing, and
the agent's own compaction."""

import pytest
from support.terminals.handoff_cycles import (
    AT,
    POLICY,
    Led,
    asked,
    cleared,
    new,
    resumed,
    working,
    written,
)

from segue.core.handoffs.machine import (
    AgentGone,
    AnyFact,
    AskUser,
    Busy,
    Cleared,
    Done,
    FileSeen,
    HandoffStep,
    Interrupt,
    Metrics,
    NotTyped,
    NotWritten,
    OwnWritten,
    Planned,
    PromptSeen,
    ReadFile,
    Ready,
    RecordFigures,
    RetryRequested,
    TimeUp,
    Typed,
    TypeText,
    Used,
    UserSpoke,
    WentOn,
    WriteOwn,
    acts_again,
    due,
    metrics,
)

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


def test_the_figures_of_a_handoff_are_recorded() -> None:
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
