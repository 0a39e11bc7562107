"""The state machine of a run: how it begins, hands over, and what it ignores."""

import pytest
from support.runs.stepping import MUTE, Led, exit_code, led, stop

from segue.core.policy import PRESETS, Policy
from segue.core.runs.types import (
    Abilities,
    AskCheckpoint,
    CancelAsked,
    CheckpointComposed,
    CheckpointReceived,
    Compose,
    ContextMeasured,
    Created,
    EndLeg,
    LegEnded,
    LegNotStarted,
    LegStarted,
    Looped,
    Replied,
    Resumed,
    RunState,
    SessionNamed,
    StartLeg,
    WaitUntil,
)
from segue.core.sessions.reading import Reading
from segue.core.stops.reasons import StopReason

R = StopReason
CONTINUOUS = PRESETS["continuous"]


# Beginning


def test_a_new_run_starts_its_first_leg_with_the_task_in_a_new_session() -> None:
    run = Led()
    run.tell(Created())
    assert (run.state, run.run.leg, run.run.is_live) == (RunState.STARTING, 1, True)
    assert run.legs() == [(1, "work", "task", "")]
    run.tell(Created())
    assert len(run.legs()) == 1


def test_the_first_reply_makes_it_work() -> None:
    run = Led()
    run.tell(Created(), LegStarted(leg=1, session_id="s1"))
    assert run.state is RunState.STARTING
    run.tell(Replied(leg=1))
    assert (run.state, run.run.session_id, run.run.has_replied) == (RunState.WORKING, "s1", True)


def test_the_agent_may_tell_its_sessions_id_later() -> None:
    run = Led()
    run.tell(Created(), LegStarted(leg=1), SessionNamed(leg=1, session_id="late"))
    assert run.run.session_id == "late"


def test_a_leg_that_cannot_be_started_fails_the_run_with_what_is_wrong() -> None:
    run = Led()
    run.tell(Created(), LegNotStarted(leg=1, what="no such program: nobody"))
    assert (run.state, exit_code(run), run.run.is_live) == (RunState.FAILED, 1, False)
    assert run.run.outcome
    assert "no such program: nobody" in run.run.outcome.what
    assert "segue resume run-1" in run.run.outcome.advice


# Marks


@pytest.mark.parametrize(("share", "hands_over"), [(0.0, False), (0.5, False), (1.0, True)])
def test_usage_at_0_50_and_100_percent(share: float, hands_over: bool) -> None:
    run = led(CONTINUOUS)
    run.reads(share)
    assert (run.state is RunState.CHECKPOINTING) is hands_over


@pytest.mark.parametrize(("share", "hands_over"), [(0.89, False), (0.90, True), (0.91, True)])
def test_thresholds_at_89_90_and_91_percent_are_inclusive(share: float, hands_over: bool) -> None:
    run = led(CONTINUOUS)
    run.reads(share)
    assert (run.state is RunState.CHECKPOINTING) is hands_over
    assert bool(run.all(AskCheckpoint)) is hands_over


def test_at_the_hard_mark_the_session_is_asked_now_and_the_reason_says_why() -> None:
    run = led()
    run.reads(0.86)
    ask = run.last(AskCheckpoint)
    assert (ask.leg, ask.now) == (1, True)
    assert ask.reason == "context at 86%, hard mark 85%: handing over now"


def test_from_the_soft_mark_on_it_is_asked_at_the_next_boundary() -> None:
    run = led()
    run.boundary()
    assert not run.all(AskCheckpoint)
    run.reads(0.80)
    assert (run.state, run.run.is_due) == (RunState.WORKING, True)
    run.boundary()
    assert (run.state, run.last(AskCheckpoint).now) == (RunState.CHECKPOINTING, False)
    assert "context at 80%, soft mark 80%" in run.last(AskCheckpoint).reason


def test_a_session_that_compacted_by_itself_is_not_due_any_more() -> None:
    run = led()
    run.reads(0.82)
    run.reads(0.30)
    run.boundary()
    assert (run.state, run.run.is_due) == (RunState.WORKING, False)


@pytest.mark.parametrize("share", [0.9, 1.0, 1.5])
def test_a_threshold_above_1_disables_handoffs(share: float) -> None:
    run = led(Policy(soft_mark=1.1, hard_mark=1.1))
    run.reads(share)
    run.boundary()
    assert (run.state, run.decisions[1:]) == (RunState.WORKING, [])


def test_missing_usage_leaves_the_run_going() -> None:
    run = led()
    for _ in range(5):
        run.boundary()
    assert (run.state, run.run.reading, len(run.decisions)) == (RunState.WORKING, None, 1)
    run.ends(R.COMPLETED)
    assert exit_code(run) == 0


@pytest.mark.parametrize(("share", "asked"), [(0.64, None), (0.65, False), (0.70, True)])
def test_the_70_percent_preset_hands_over_early(share: float, asked: bool | None) -> None:
    """70%, well before the agent's own compaction."""
    run = led(PRESETS["early"])
    run.reads(share)
    run.boundary()
    assert [ask.now for ask in run.all(AskCheckpoint)] == ([] if asked is None else [asked])


def test_an_enforced_limit_of_the_agents_own_lowers_the_marks() -> None:
    run = led(abilities=Abilities(talks=True, enforced_tokens=167_000))
    run.reads(156_999 / 200_000)
    assert run.state is RunState.WORKING
    run.reads(157_000 / 200_000)
    assert run.run.state is RunState.CHECKPOINTING


# Handing over


def test_a_talking_agent_is_asked_told_closed_and_replaced() -> None:
    run = led()
    run.reads(0.9)
    run.tell(CheckpointReceived(leg=1, number=7))
    assert (run.last(EndLeg).how, run.run.checkpoint) == ("close", 7)
    run.ends(R.COMPLETED, progressed=True)
    assert (run.state, run.run.is_live) == (RunState.CHECKPOINTING, False)
    run.last(Compose)
    run.tell(CheckpointComposed(number=8, has_summary=True))
    begun = run.last(StartLeg)
    assert (run.state, run.run.why) == (RunState.HANDING_OVER, R.CONTEXT_EXHAUSTED)
    assert (begun.leg, begun.prompt, begun.session_id) == (2, "continuation", "")
    assert begun.strategy == "checkpoint"
    run.up()
    assert (run.state, run.run.handoffs, run.run.checkpoint) == (RunState.WORKING, 1, 8)


def test_an_agent_that_does_not_talk_is_interrupted_and_its_session_asked_in_a_leg_of_its_own() -> (
    None
):
    run = led(abilities=MUTE)
    run.reads(0.9)
    assert run.last(AskCheckpoint).now
    run.ends(R.USER_EXIT, ended_by="segue", confidence=0.6, progressed=True)
    assert run.legs()[1:] == [(2, "checkpoint", "checkpoint", "s1")]
    assert run.state is RunState.CHECKPOINTING
    run.up()
    assert (run.state, run.run.leg_replied) == (RunState.CHECKPOINTING, True)
    run.tell(CheckpointReceived(leg=2, number=1))
    run.ends(R.COMPLETED)
    run.last(Compose)
    run.tell(CheckpointComposed(number=2, has_summary=True))
    assert run.legs()[2:] == [(3, "work", "continuation", "")]


def test_a_mute_agent_that_completed_before_the_interrupt_is_done() -> None:
    run = led(abilities=MUTE)
    run.reads(0.9)
    run.ends(R.COMPLETED)
    assert run.state is RunState.DONE


def test_restarts_come_in_sequence_1_2_3() -> None:
    run = led()
    for number in (1, 2, 3):
        run.reads(0.95)
        run.hands_over(number)
        assert (run.run.handoffs, run.run.leg) == (number, number + 1)
    run.ends(R.COMPLETED)
    assert [leg[0] for leg in run.legs()] == [1, 2, 3, 4]
    assert exit_code(run) == 0


def test_each_leg_after_a_handoff_begins_with_fresh_state() -> None:
    run = led()
    run.reads(0.95)
    run.tell(CheckpointReceived(leg=1, number=1))
    run.ends(R.COMPLETED, progressed=True)
    run.tell(CheckpointComposed(number=1, has_summary=True))
    new = run.run
    assert new.reading is None
    assert new.session_id == ""
    assert not (new.is_due)
    assert not (new.asked)
    assert not (new.has_handed_over)
    assert not (new.has_replied)
    assert not (new.leg_replied)
    assert (new.ending, new.ended_how, new.asked_at) == (None, "", None)


def test_a_refused_checkpoint_leads_to_a_minimal_continuation() -> None:
    """The request itself is too long. What is known without the agent follows, and if
    there is nothing, the task alone."""
    run = led(abilities=MUTE)
    run.reads(0.9)
    run.ends(R.USER_EXIT, progressed=True)
    run.ends(R.CONTEXT_EXHAUSTED)
    run.last(Compose)
    run.tell(CheckpointComposed(number=0))
    assert (run.last(StartLeg).prompt, run.last(StartLeg).strategy) == ("continuation", "minimal")


def test_a_checkpoint_without_the_agents_words_is_handed_on_by_rules() -> None:
    run = led()
    run.reads(0.9)
    run.elapses("checkpoint")
    assert (run.last(EndLeg).how, run.run.has_handed_over) == ("gentle", False)
    run.ends(R.USER_EXIT, progressed=True)
    run.tell(CheckpointComposed(number=3))
    assert run.last(StartLeg).strategy == "rules"


def test_a_session_too_large_to_be_resumed_is_not_asked_at_all() -> None:
    run = led(abilities=Abilities(resume_factor=1.3))
    run.reads(0.86)
    assert not run.all(AskCheckpoint)
    assert run.last(EndLeg).how == "gentle"
    run.ends(R.USER_EXIT, progressed=True)
    run.last(Compose)
    assert len(run.legs()) == 1


def test_a_session_that_can_still_be_resumed_is_asked() -> None:
    run = led(abilities=Abilities(resume_factor=1.1))
    run.reads(0.86)
    run.last(AskCheckpoint)


def test_a_session_that_would_not_fit_once_resumed_is_handed_over_after_a_wait() -> None:
    """Seen in a simulation: the resumed session was refused as too long at its first request."""
    run = led(abilities=Abilities(talks=False, resume_factor=2.0))
    run.reads(0.55)
    run.ends(R.OVERLOADED, progressed=True)
    run.waits()
    assert "too large to continue" in run.last(Compose).reason
    assert len(run.legs()) == 1


@pytest.mark.parametrize(("used", "resumes"), [(0.40, True), (0.45, False)])
def test_a_session_that_would_pass_its_hard_mark_by_being_resumed_is_handed_over(
    used: float, resumes: bool
) -> None:
    """Seen in drills: resumed at 49%, it was at 95%, and its request was refused at 98.5%."""
    run = led(abilities=Abilities(talks=False, resume_factor=2.0))
    run.reads(used)
    run.tell(CancelAsked())
    run.ends(R.USER_EXIT)
    run.tell(Resumed())
    if resumes:
        assert run.last(StartLeg).session_id == "s1"
    else:
        assert "too large to continue" in run.last(Compose).reason


def test_what_grew_by_resuming_once_grows_no_more() -> None:
    """60%, of which all was loaded by the last resume: resumed again, it is no larger."""
    run = led(abilities=Abilities(talks=False, resume_factor=2.0))
    run.reads(0.28)
    for before, used in ((0.28, 0.58), (0.58, 0.62)):
        run.ends(R.OVERLOADED, progressed=True)
        run.waits()
        run.up()
        run.reads(before)  # its file says so once more
        run.reads(used)
    run.ends(R.OVERLOADED, progressed=True)
    run.waits()
    assert (run.state, not run.all(Compose)) == (RunState.RESUMING, True)


def test_an_agent_that_can_neither_talk_nor_resume_is_handed_over_by_rules() -> None:
    run = led(abilities=Abilities(resumes=False))
    run.reads(0.86)
    assert run.last(EndLeg).how == "gentle"
    run.ends(R.USER_EXIT, progressed=True)
    run.last(Compose)


def test_an_old_session_does_nothing_after_it_told_its_checkpoint() -> None:
    run = led()
    run.reads(0.86)
    run.tell(CheckpointReceived(leg=1, number=1))
    seen = len(run.decisions)
    run.reads(0.99)
    run.boundary()
    run.tell(Replied(leg=1, acted=True), CheckpointReceived(leg=1, number=1))
    assert run.decisions[seen:] == []


@pytest.mark.parametrize("reason", [R.RATE_LIMIT, R.AUTH, R.MAX_TURNS, R.CRASH])
def test_a_told_checkpoint_is_handed_on_however_its_leg_ends(reason: R) -> None:
    run = led()
    run.reads(0.86)
    run.tell(CheckpointReceived(leg=1, number=1))
    run.ends(reason, progressed=True)
    run.last(Compose)


def test_a_closed_session_that_lingers_is_ended_when_its_time_is_over() -> None:
    run = led()
    run.reads(0.86)
    run.tell(CheckpointReceived(leg=1, number=1))
    run.elapses("checkpoint")
    assert run.ended() == [(1, "close"), (1, "gentle")]
    run.elapses("checkpoint")
    assert len(run.ended()) == 2


def test_a_new_session_that_replies_without_acting_has_not_taken_over() -> None:
    run = led()
    run.reads(0.9)
    run.tell(CheckpointReceived(leg=1, number=1))
    run.ends(R.COMPLETED, progressed=True)
    run.tell(CheckpointComposed(number=1, has_summary=True))
    run.up(acted=False)
    assert (run.state, run.run.handoffs) == (RunState.HANDING_OVER, 0)
    run.tell(Replied(leg=2, acted=True))
    assert (run.state, run.run.handoffs) == (RunState.WORKING, 1)


def handing(policy: Policy | None = None) -> Led:
    run = led(policy)
    run.reads(0.9)
    run.tell(CheckpointReceived(leg=1, number=1))
    run.ends(R.COMPLETED, progressed=True)
    run.tell(CheckpointComposed(number=1, has_summary=True))
    return run


@pytest.mark.parametrize("reason", [R.CRASH, R.ERROR, R.UNKNOWN, R.CONTEXT_EXHAUSTED, R.TIMEOUT])
def test_a_continuation_that_is_not_taken_is_tried_in_three_ways_then_fails(reason: R) -> None:
    run = handing()
    for strategy in ("rules", "minimal"):
        run.ends(reason, failure="same")
        assert (run.state, run.last(StartLeg).strategy) == (RunState.HANDING_OVER, strategy)
    run.ends(reason, failure="same")
    assert (run.state, exit_code(run)) == (RunState.FAILED, 1)
    assert run.run.outcome
    assert "not even with the task alone" in run.run.outcome.what


def test_a_new_session_that_completes_at_once_without_a_word_has_not_taken_over() -> None:
    run = handing()
    run.ends(R.COMPLETED, replied=False)
    assert run.last(StartLeg).strategy == "rules"
    run.ends(R.COMPLETED, replied=True)
    assert (run.state, run.run.handoffs) == (RunState.DONE, 1)


@pytest.mark.parametrize("reason", [R.RATE_LIMIT, R.OVERLOADED])
@pytest.mark.parametrize("replied", [False, True])
def test_a_limited_continuation_waits_and_begins_again_the_same_way(
    reason: R, replied: bool
) -> None:
    run = handing()
    run.up(acted=False) if replied else None
    run.ends(reason, replied=replied)
    assert run.state is RunState.WAITING
    run.waits()
    assert run.run.state is RunState.HANDING_OVER
    begun = run.last(StartLeg)
    assert (begun.prompt, begun.session_id, begun.strategy) == ("continuation", "", "checkpoint")


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        (R.USER_EXIT, RunState.CANCELLED),
        (R.AUTH, RunState.FAILED),
        (R.BILLING, RunState.FAILED),
        (R.REFUSAL, RunState.FAILED),
        (R.NEEDS_USER, RunState.NEEDS_YOU),
    ],
)
def test_a_continuation_that_no_other_form_would_help_ends_as_everywhere(
    reason: R, state: RunState
) -> None:
    run = handing()
    run.ends(reason)
    assert run.state is state


@pytest.mark.parametrize("reason", [R.BILLING, R.AUTH, R.MAX_BUDGET])
def test_an_account_that_does_not_work_is_not_asked_for_a_checkpoint(reason: R) -> None:
    run = led(abilities=MUTE)
    run.reads(0.9)
    run.ends(reason)
    assert run.state is RunState.FAILED


def test_a_limit_that_comes_while_it_is_asked_is_waited_for_and_then_it_is_asked_again() -> None:
    run = led()
    run.reads(0.9)
    run.ends(R.RATE_LIMIT)
    run.waits()
    assert run.legs()[1:] == [(2, "work", "resume", "s1")]
    run.tell(LegStarted(leg=2, session_id="s1"), Replied(leg=2))
    assert (run.state, run.last(AskCheckpoint).leg) == (RunState.CHECKPOINTING, 2)


# News that is old


def test_news_of_an_old_leg_changes_nothing() -> None:
    run = led()
    run.ends(R.CRASH)
    before = run.run
    full = Reading(input_tokens=199_000)
    run.tell(
        ContextMeasured(leg=1, reading=full),
        Replied(leg=1, acted=True),
        CheckpointReceived(leg=1, number=1),
        LegEnded(leg=1, stop=stop(R.AUTH)),
        LegNotStarted(leg=1, what="gone"),
        SessionNamed(leg=1, session_id="other"),
        Looped(leg=1, calls=999),
        LegEnded(leg=9, stop=stop(R.AUTH)),
    )
    assert run.run == before


def test_the_same_end_told_twice_counts_once() -> None:
    run = led()
    run.ends(R.RATE_LIMIT, tokens=100)
    run.ends(R.RATE_LIMIT, tokens=100)
    assert (run.run.tokens, run.run.limit_tries, len(run.all(WaitUntil))) == (100, 1, 1)
