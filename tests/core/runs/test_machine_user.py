"""The state machine of a run: Ctrl+C, cancel and resume."""

import pytest
from support.runs.stepping import MUTE, TALKS, Led, exit_code, led

from segue.core.policy import Policy
from segue.core.runs.types import (
    Abilities,
    AnyFact,
    AskCheckpoint,
    CancelAsked,
    Checked,
    CheckpointComposed,
    CheckpointReceived,
    Compose,
    Created,
    EndLeg,
    Finish,
    HungUp,
    InterruptRequested,
    Resumed,
    RunCheck,
    RunState,
    StartLeg,
    WaitUntil,
)
from segue.core.stops.reasons import StopReason

R = StopReason


# Ctrl+C and cancel


def test_ctrl_c_in_stages_asks_then_ends_then_kills() -> None:
    run = led()
    run.tell(InterruptRequested())
    assert (run.state, run.last(AskCheckpoint).now) == (RunState.STOPPING, False)
    run.tell(InterruptRequested())
    assert run.last(EndLeg).how == "gentle"
    run.tell(InterruptRequested())
    assert run.last(EndLeg).how == "kill"
    run.ends(R.CRASH)
    assert (run.state, exit_code(run)) == (RunState.CANCELLED, 130)
    assert "not auto-resuming" in run.last(Finish).outcome.what


def test_the_first_ctrl_c_lets_a_talking_agent_write_its_checkpoint() -> None:
    run = led()
    run.tell(InterruptRequested(), CheckpointReceived(leg=1, number=4))
    assert (run.last(EndLeg).how, run.run.checkpoint) == ("close", 4)
    run.ends(R.COMPLETED)
    assert (run.state, exit_code(run)) == (RunState.CANCELLED, 130)


def test_the_first_ctrl_c_lets_a_mute_agents_tool_finish() -> None:
    run = led(abilities=MUTE)
    run.tell(InterruptRequested())
    assert run.steps[-1].decisions == ()
    run.boundary()
    assert run.last(EndLeg).how == "gentle"


def test_a_tool_that_takes_too_long_after_ctrl_c_is_ended() -> None:
    run = led(abilities=MUTE)
    run.tell(InterruptRequested())
    run.elapses("finish")
    assert run.last(EndLeg).how == "gentle"
    run.elapses("finish")
    assert len(run.ended()) == 1


def test_ctrl_c_before_the_first_reply_ends_the_leg() -> None:
    run = Led(abilities=TALKS)
    run.tell(Created(), InterruptRequested())
    assert run.last(EndLeg).how == "gentle"


def test_ctrl_c_while_waiting_cancels_at_once() -> None:
    run = led()
    run.ends(R.RATE_LIMIT)
    run.tell(InterruptRequested())
    assert (run.state, exit_code(run)) == (RunState.CANCELLED, 130)


def test_ctrl_c_while_handing_over_cancels_and_nothing_new_is_started() -> None:
    run = led()
    run.reads(0.9)
    run.tell(CheckpointReceived(leg=1, number=1), InterruptRequested())
    run.ends(R.COMPLETED)
    assert (run.state, len(run.legs())) == (RunState.CANCELLED, 1)
    run = led()
    run.ends(R.CONTEXT_EXHAUSTED)
    run.tell(InterruptRequested())
    assert run.state is RunState.CANCELLED


def test_user_exits_that_are_resumed_by_policy_leave_ctrl_c_alone() -> None:
    run = led(Policy(resume_user_exits=True))
    run.tell(InterruptRequested(), InterruptRequested())
    run.ends(R.USER_EXIT)
    assert run.state is RunState.CANCELLED


def test_ctrl_c_beats_a_time_limit_that_has_just_passed() -> None:
    run = led(Policy(max_active_s=600))
    run.elapses("active")
    run.tell(InterruptRequested())
    run.ends(R.COMPLETED)
    assert exit_code(run) == 130


def test_cancel_ends_gently_and_once() -> None:
    run = led()
    run.tell(CancelAsked(), CancelAsked())
    assert run.ended() == [(1, "gentle")]
    run.ends(R.USER_EXIT)
    assert (run.state, exit_code(run)) == (RunState.CANCELLED, 130)
    assert "(segue cancel)" in run.last(Finish).outcome.what
    run = led()
    run.ends(R.RATE_LIMIT)
    run.tell(CancelAsked(by="SIGTERM"))
    assert "(SIGTERM)" in run.last(Finish).outcome.what


# Going on with a run


def test_resume_continues_in_the_same_session_and_forgets_what_was_counted() -> None:
    run = led()
    run.tell(InterruptRequested(), InterruptRequested())
    run.ends(R.USER_EXIT, tokens=10, failure="x")
    run.tell(Resumed())
    assert (run.state, run.legs()[1:]) == (RunState.RESUMING, [(2, "work", "resume", "s1")])
    assert (run.run.presses, run.run.failures, run.run.idle_legs) == (0, 0, 0)
    assert (run.run.tokens, run.run.outcome, run.run.pressed_at) == (10, None, None)


def test_resume_fresh_is_a_new_session_with_a_checkpoint() -> None:
    run = led()
    run.ends(R.ERROR)
    run.tell(Resumed(fresh=True))
    run.last(Compose)
    run.tell(CheckpointComposed(number=1))
    assert run.legs()[1:] == [(2, "work", "continuation", "")]


def test_resume_of_a_run_that_never_replied_gives_the_task_again() -> None:
    run = Led()
    run.tell(Created())
    run.ends(R.AUTH)
    for fresh in (False, True):
        run.tell(Resumed(fresh=fresh))
        assert run.legs()[-1][1:] == ("work", "task", "")
        run.ends(R.AUTH)


def test_resume_of_a_full_session_is_a_handoff() -> None:
    run = led(Policy(idle_legs=1))
    run.ends(R.CONTEXT_EXHAUSTED)
    assert run.state is RunState.FAILED
    run.tell(Resumed())
    run.last(Compose)


def test_resume_strict_fails_where_another_session_would_be_needed() -> None:
    run = led()
    run.ends(R.CRASH)
    run.tell(InterruptRequested(), InterruptRequested())
    run.ends(R.USER_EXIT)
    run.tell(Resumed(strict=True))
    run.ends(R.CRASH)
    assert (run.state, exit_code(run)) == (RunState.FAILED, 1)
    assert run.run.outcome
    assert "--strict" in run.run.outcome.change


def test_resume_with_a_larger_cap_continues_and_with_the_same_fails_again() -> None:
    run = led(Policy(max_legs=1))
    run.ends(R.CRASH)
    run.tell(Resumed())
    assert run.run.outcome
    assert run.run.outcome.reason == "cap"
    run.tell(Resumed(policy=Policy(max_legs=2)))
    assert run.state is RunState.RESUMING


def test_resume_of_a_run_whose_segue_is_gone_says_again_what_was_under_way() -> None:
    run = led(check="make")
    run.ends(R.RATE_LIMIT)
    wait = run.run.wait
    run.tell(Resumed())
    assert (run.last(WaitUntil).wait, run.state) == (wait, RunState.WAITING)
    run.waits()
    run.up()
    run.tell(Resumed())
    assert run.steps[-1].decisions == ()
    run.ends(R.CONTEXT_EXHAUSTED)
    run.tell(Resumed())
    run.last(Compose)
    run.tell(CheckpointComposed(number=1))
    run.up()
    run.ends(R.COMPLETED)
    run.tell(Resumed())
    run.last(RunCheck)


def test_resume_fresh_while_waiting_or_working_is_a_handoff() -> None:
    run = led()
    run.tell(Resumed(fresh=True))
    assert (run.state, run.last(AskCheckpoint).now) == (RunState.CHECKPOINTING, True)
    run = led()
    run.ends(R.RATE_LIMIT)
    run.tell(Resumed(fresh=True))
    run.last(Compose)


def test_resume_while_it_is_being_stopped_continues_when_that_is_over() -> None:
    run = led()
    run.tell(InterruptRequested(), InterruptRequested(), Resumed())
    run.ends(R.USER_EXIT)
    assert run.legs()[1:] == [(2, "work", "resume", "s1")]


@pytest.mark.parametrize("last", [CancelAsked(), InterruptRequested()])
def test_what_the_user_ends_after_resuming_it_is_not_started_again(last: AnyFact) -> None:
    """Seen in a simulation (seed 7, world 822): the leg was still being ended."""
    run = led()
    run.tell(InterruptRequested(), InterruptRequested(), Resumed(), last)
    run.ends(R.USER_EXIT)
    assert (run.state, len(run.legs())) == (RunState.CANCELLED, 1)


def test_a_task_that_was_completed_while_it_was_being_stopped_by_a_limit_is_not_resumed() -> None:
    run = led(Policy(max_active_s=600))
    run.elapses("active")
    run.tell(Resumed())
    run.ends(R.COMPLETED)
    assert run.state is RunState.DONE


def test_what_a_run_was_stopped_for_is_forgotten_when_it_continues_at_once() -> None:
    run = led(Policy(max_active_s=600))
    run.elapses("active")
    run.tell(Resumed(fresh=True, policy=Policy()))
    run.ends(R.USER_EXIT, active_s=600)
    assert run.state is RunState.CHECKPOINTING
    run.tell(CheckpointComposed(number=1))
    assert (run.run.again, run.run.outcome_due, run.run.policy) == ("", None, Policy())


def test_a_run_cancelled_before_a_new_session_heard_of_a_failed_check_continues_with_it() -> None:
    """Seen in a simulation (seed 7, world 115): it did the whole task a second time."""
    run = led(abilities=Abilities(resumes=False), check="make test")
    run.ends(R.COMPLETED, progressed=True)
    run.tell(Checked(ok=False, exit_code=1))
    assert run.last(StartLeg).prompt == "check"
    run.tell(CancelAsked())
    run.ends(R.USER_EXIT)
    run.tell(Resumed())
    run.tell(CheckpointComposed(number=1))
    assert run.last(StartLeg).prompt == "check"


def test_a_full_session_that_a_hang_up_cut_short_is_handed_over_and_not_resumed() -> None:
    """Seen in a simulation (seed 7, world 1335): it was resumed, and refused once more."""
    run = led()
    run.reads(0.5)
    run.tell(HungUp())
    run.ends(R.CONTEXT_EXHAUSTED, progressed=True)
    assert run.state is RunState.WAITING
    run.waits()
    assert "its context window is full" in run.last(Compose).reason
    assert len(run.legs()) == 1


# What the user adds


def test_what_the_user_adds_is_unheard_until_a_session_that_was_told_replies() -> None:
    run = led()
    run.tell(CancelAsked())
    run.ends(R.USER_EXIT)
    run.tell(Resumed(addition="use port 8081"))
    assert run.last(StartLeg).session_id
    assert list(run.run.unanswered_additions) == ["use port 8081"]
    run.up()
    assert not run.run.unanswered_additions
    assert list(run.run.additions) == ["use port 8081"]


def test_a_leg_that_was_started_before_the_user_spoke_has_not_heard_it() -> None:
    run = led()
    run.ends(R.CRASH)
    run.tell(Resumed(addition="use port 8081"))  # its segue was gone; the leg is there
    run.up()
    assert run.run.unanswered_additions == ("use port 8081",)
    run.ends(R.COMPLETED)
    assert (run.state, run.last(StartLeg).prompt) == (RunState.RESUMING, "resume")


def test_a_session_that_is_asked_for_a_checkpoint_has_heard_nothing() -> None:
    run = led(abilities=MUTE)
    run.reads(0.9)
    run.ends(R.USER_EXIT, ended_for="handoff")
    assert run.last(StartLeg).purpose == "checkpoint"
    run.tell(Resumed(addition="use port 8081"))
    run.up()
    assert run.run.unanswered_additions == ("use port 8081",)


def test_a_working_agent_of_a_segue_that_is_gone_is_interrupted_to_be_told() -> None:
    run = led()
    run.tell(Resumed(addition="use port 8081"))
    assert run.last(EndLeg).how == "gentle"
    run.ends(R.USER_EXIT, ended_for="recall")
    assert (run.state, run.last(StartLeg).prompt) == (RunState.RESUMING, "resume")
    assert "what the user added" in run.last(StartLeg).reason


def test_with_something_to_add_the_check_is_not_repeated_first() -> None:
    run = led(check="make test")
    run.ends(R.COMPLETED)
    run.tell(HungUp(), Resumed(addition="use port 8081"))
    assert run.last(StartLeg).prompt == "resume"
