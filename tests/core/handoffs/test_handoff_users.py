"""A handoff in a terminal and its user: whose move it is, and what the user may do at each step."""

from collections.abc import Callable

import pytest
from support.terminals.handoff_cycles import (
    AT,
    POLICY,
    Led,
    asked,
    cleared,
    clearing,
    new,
    resumed,
    resuming,
    working,
    written,
)

from segue.core.handoffs.machine import (
    AgentGone,
    AnyFact,
    AskUser,
    Blocked,
    Busy,
    Cancel,
    Cleared,
    Done,
    FileSeen,
    HandoffStep,
    Interrupt,
    KeyPressed,
    NotInterrupted,
    NotTyped,
    OwnWritten,
    PromptSeen,
    Ready,
    RecordFigures,
    RetryRequested,
    TimeUp,
    TurnInterrupted,
    Typed,
    TypeText,
    Used,
    UserSpoke,
    WriteOwn,
    due,
)

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
