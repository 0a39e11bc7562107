"""The state machine of a run: what follows a stop, a wait, a guard, a stall and a check."""

from typing import Any

import pytest
from support.runs.stepping import AT, MUTE, Led, exit_code, led

from segue.core.policy import Policy
from segue.core.runs.types import (
    Abilities,
    AskCheckpoint,
    Checked,
    CheckpointComposed,
    Compose,
    Created,
    EndLeg,
    Finish,
    LegStarted,
    Looped,
    Resumed,
    RunCheck,
    RunState,
    SessionReminded,
    StartLeg,
    WaitUntil,
)
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import FailureInfo

R = StopReason


# After the stop


def test_auto_resume_rate_limit_waits_then_continues_in_the_same_session() -> None:
    run = led()
    run.ends(R.RATE_LIMIT, retry_at=AT + 3_600)
    wait = run.last(WaitUntil)
    assert run.state is RunState.WAITING
    assert AT + 3_605 <= wait.wait.until <= AT + 3_660
    assert "2026-11-16T" in wait.reason
    assert wait.reason.startswith("rate limited until")
    run.waits()
    assert (run.state, run.legs()[1:]) == (RunState.RESUMING, [(2, "work", "resume", "s1")])
    run.up()
    assert run.run.state is RunState.WORKING


def test_auto_resume_overloaded_waits_and_gives_up_after_its_tries_with_75() -> None:
    run = led(Policy(overload_tries=2))
    for tries in (1, 2):
        run.ends(R.OVERLOADED)
        assert run.run.overload_tries == tries
        run.waits()
        run.up()
    run.ends(R.OVERLOADED)
    assert (run.state, exit_code(run)) == (RunState.FAILED, 75)
    assert run.run.outcome
    assert run.run.outcome.change == "overload_tries = 2 in [policy], or --set overload_tries=N"


def test_auto_resume_context_exhausted_starts_a_new_session_with_a_checkpoint() -> None:
    run = led()
    run.ends(R.CONTEXT_EXHAUSTED, progressed=True)
    run.last(Compose)
    run.tell(CheckpointComposed(number=1))
    assert run.legs()[1:] == [(2, "work", "continuation", "")]


def test_auto_resume_crash_continues_in_the_same_session() -> None:
    run = led()
    run.ends(R.CRASH)
    assert run.legs()[1:] == [(2, "work", "resume", "s1")]
    assert run.run.why is R.CRASH


def test_auto_resume_completed_does_nothing_more() -> None:
    run = led()
    run.ends(R.COMPLETED, confidence=0.3)
    assert (run.state, exit_code(run)) == (RunState.DONE, 0)


def test_auto_resume_user_exit_is_never_resumed_and_says_so() -> None:
    run = led()
    run.ends(R.USER_EXIT, confidence=0.5)
    assert (run.state, exit_code(run)) == (RunState.CANCELLED, 130)
    outcome = run.last(Finish).outcome
    assert "Session ended by user, not auto-resuming" in outcome.what
    assert "segue resume run-1" in outcome.advice
    assert "resume_user_exits = false" in outcome.change


def test_user_exits_are_resumed_if_the_policy_says_so() -> None:
    run = led(Policy(resume_user_exits=True))
    run.ends(R.USER_EXIT)
    assert run.legs()[1:] == [(2, "work", "resume", "s1")]


@pytest.mark.parametrize(
    "reason",
    [R.BILLING, R.AUTH, R.MAX_BUDGET, R.MAX_TURNS, R.REFUSAL, R.ERROR, R.UNKNOWN],
)
def test_auto_resume_nothing_by_itself_and_the_stops_remediation_is_the_advice(reason: R) -> None:
    run = led()
    run.ends(reason, remediation="Do this first.")
    assert (run.state, exit_code(run)) == (RunState.FAILED, 1)
    outcome = run.last(Finish).outcome
    assert outcome.reason == reason
    assert outcome.advice.startswith("Do this first.\n")
    assert "segue resume run-1\n" in outcome.advice
    assert outcome.advice.endswith("segue resume run-1 --fresh")


def test_needs_user_keeps_the_run_and_exits_3() -> None:
    run = led()
    run.ends(R.NEEDS_USER)
    assert (run.state, exit_code(run)) == (RunState.NEEDS_YOU, 3)
    run.tell(Resumed())
    assert run.legs()[1:] == [(2, "work", "resume", "s1")]


@pytest.mark.parametrize("reason", [R.RATE_LIMIT, R.OVERLOADED, R.CRASH, R.CONTEXT_EXHAUSTED])
def test_a_verdict_that_is_not_sure_is_not_acted_on(reason: R) -> None:
    run = led()
    run.ends(reason, confidence=0.79)
    assert run.state is RunState.FAILED
    assert run.run.outcome
    assert "79% sure" in run.run.outcome.what
    assert "min_confidence = 0.8" in run.run.outcome.change


def test_timeout_with_progress_continues() -> None:
    run = led()
    run.ends(R.TIMEOUT, progressed=True)
    assert run.state is RunState.RESUMING


def test_timeout_without_progress_gives_up_with_124_and_keeps_what_there_is() -> None:
    run = led()
    run.ends(R.TIMEOUT, progressed=False, tokens=500)
    assert (run.state, exit_code(run), run.run.tokens) == (RunState.FAILED, 124, 500)


def test_a_session_that_never_replied_is_restarted_with_its_first_prompt() -> None:
    run = Led()
    run.tell(Created(), LegStarted(leg=1, session_id="s1"))
    run.ends(R.RATE_LIMIT)
    run.waits()
    assert (run.state, run.legs()[1:]) == (RunState.STARTING, [(2, "work", "task", "")])


@pytest.mark.parametrize("reason", [R.CRASH, R.ERROR, R.UNKNOWN, R.CONTEXT_EXHAUSTED])
def test_a_session_that_does_not_load_again_is_handed_over(reason: R) -> None:
    run = led()
    run.ends(R.RATE_LIMIT)
    run.waits()
    run.ends(reason, confidence=0.4)
    assert run.state is RunState.CHECKPOINTING
    assert "cannot be loaded" in run.last(Compose).reason
    run.tell(CheckpointComposed(number=1))
    assert run.legs()[-1][2:] == ("continuation", "")


def test_a_resumed_session_that_says_something_about_the_account_is_not_a_broken_session() -> None:
    run = led()
    run.ends(R.RATE_LIMIT)
    run.waits()
    run.ends(R.AUTH)
    assert run.state is RunState.FAILED


def test_an_agent_that_cannot_resume_continues_in_a_new_session() -> None:
    run = led(abilities=Abilities(resumes=False))
    run.ends(R.CRASH)
    run.last(Compose)


# Waits


def test_waiting_in_a_row_is_bounded_and_ends_with_75() -> None:
    run = led(Policy(max_limited_s=400))
    while run.state is not RunState.FAILED:
        run.ends(R.RATE_LIMIT)
        if run.state is RunState.WAITING:
            run.waits()
            run.up()
    assert [round(w.wait.until - w.wait.since) for w in run.all(WaitUntil)] == [30, 60, 120]
    assert exit_code(run) == 75
    assert run.run.outcome
    assert "max_limited_s = 400" in run.run.outcome.change


def test_a_limit_is_tried_more_often_than_an_overload() -> None:
    run = led(Policy(overload_tries=1))
    for _ in range(5):
        run.ends(R.RATE_LIMIT)
        run.waits()
        run.up()
    assert (run.state, run.run.limit_tries) == (RunState.WORKING, 5)


def test_progress_makes_the_next_wait_the_first_again() -> None:
    run = led()
    for _ in range(3):
        run.ends(R.RATE_LIMIT)
        run.waits()
        run.up()
    run.ends(R.RATE_LIMIT, progressed=True)
    assert (run.run.limit_tries, round(run.run.limited_s)) == (1, 30)


def test_a_reset_that_lies_too_far_ahead_is_not_waited_for() -> None:
    run = led()
    run.ends(R.RATE_LIMIT, retry_at=AT + 9 * 86_400)
    assert (run.state, exit_code(run)) == (RunState.FAILED, 75)
    assert run.run.outcome
    assert "until 2026-11-25T" in run.run.outcome.what


def test_a_weekly_limit_is_waited_for() -> None:
    run = led()
    run.ends(R.RATE_LIMIT, retry_at=AT + 7 * 86_400)
    assert run.state is RunState.WAITING


def test_a_wait_ends_at_the_reset_and_not_before() -> None:
    run = led()
    run.ends(R.RATE_LIMIT, retry_at=AT + 3_600)
    run.elapses("wait", after_s=3_000)
    assert run.state is RunState.WAITING
    run.waits()
    assert run.run.state is RunState.RESUMING


def test_wall_time_that_ends_before_the_reset_gives_up_at_once_with_75() -> None:
    run = led(Policy(max_wall_s=1_000))
    run.ends(R.RATE_LIMIT, retry_at=AT + 3_600)
    assert (run.state, exit_code(run)) == (RunState.FAILED, 75)
    assert run.run.outcome
    assert "max_wall_s = 1000" in run.run.outcome.change


def test_wall_time_that_is_over_while_waiting_is_75() -> None:
    run = led(Policy(max_wall_s=1_000))
    run.ends(R.RATE_LIMIT)
    run.elapses("wall")
    assert (run.state, exit_code(run)) == (RunState.FAILED, 75)


# Guards and caps


def test_three_identical_failures_without_progress_open_the_breaker() -> None:
    run = led(Policy(idle_legs=100))
    for _ in range(2):
        run.ends(R.CRASH, failure="panic <n>", replied=True)
        run.up()
    run.ends(R.CRASH, failure="panic <n>", details=FailureInfo(message="panic 7"))
    assert (run.state, exit_code(run)) == (RunState.FAILED, 1)
    outcome = run.last(Finish).outcome
    assert (outcome.reason, "panic 7" in outcome.what) == ("breaker", True)
    assert outcome.change == "same_failures = 3 in [policy], or --set same_failures=N"


def test_another_failure_or_progress_in_between_keeps_the_breaker_closed() -> None:
    run = led(Policy(idle_legs=100))
    for failure, progressed in [("a", False), ("a", False), ("b", False), ("a", False)]:
        run.ends(R.CRASH, failure=failure, progressed=progressed)
        run.up()
    for _ in range(6):
        run.ends(R.CRASH, failure="a", progressed=True)
        run.up()
    assert (run.state, run.run.failures) == (RunState.WORKING, 1)


def test_three_legs_without_progress_end_the_run() -> None:
    run = led()
    for failure in "ab":
        run.ends(R.CRASH, failure=failure)
        run.up()
    run.ends(R.CRASH, failure="c")
    outcome = run.last(Finish).outcome
    assert (outcome.exit_code, outcome.reason) == (1, "no_progress")
    assert outcome.change == "idle_legs = 3 in [policy], or --set idle_legs=N"


def test_legs_that_ended_by_a_limit_do_not_count_as_idle() -> None:
    run = led()
    for reason in (R.RATE_LIMIT, R.OVERLOADED) * 3:
        run.ends(reason, failure="429")
        run.waits()
        run.up()
    assert (run.run.idle_legs, run.run.failures, run.state) == (0, 0, RunState.WORKING)


def test_handoffs_that_bring_nothing_are_idle_legs_and_checkpoint_legs_are_not() -> None:
    run = led(abilities=MUTE)
    for number in (1, 2):
        run.reads(0.95)
        run.ends(R.USER_EXIT)
        run.ends(R.COMPLETED)
        assert run.run.idle_legs == number
        run.tell(CheckpointComposed(number=number))
        run.up()
    run.reads(0.95)
    run.ends(R.USER_EXIT)
    assert run.last(Finish).outcome.reason == "no_progress"


def test_a_session_that_takes_no_words_is_resumed_with_what_its_compaction_left_out() -> None:
    run = led(abilities=MUTE)
    assert not run.run.abilities.talks
    run.tell(SessionReminded(leg=1, compaction=1, chars=900))
    assert (run.last(EndLeg).how, run.run.ending) == ("gentle", "recall")
    run.tell(SessionReminded(leg=1, compaction=1, chars=900))
    assert len(run.all(EndLeg)) == 1
    run.ends(R.CONTEXT_EXHAUSTED, ended_for="recall")
    started = run.last(StartLeg)
    assert (started.prompt, started.session_id) == ("resume", run.run.session_id)
    assert run.state is RunState.RESUMING


def test_one_that_grows_when_it_is_resumed_is_replaced_after_its_compaction_unasked() -> None:
    run = led(abilities=Abilities(resume_factor=2.0))
    run.tell(SessionReminded(leg=1, compaction=1, chars=900))
    assert (run.last(EndLeg).how, run.run.ending) == ("gentle", "handoff")
    assert run.all(AskCheckpoint) == []
    run.ends(R.USER_EXIT, ended_for="handoff")
    run.tell(CheckpointComposed(number=1))
    assert run.last(StartLeg).prompt == "continuation"


def test_one_that_grows_and_may_not_be_handed_over_is_resumed_with_it() -> None:
    run = led(Policy(soft_mark=2.0, hard_mark=2.0), abilities=Abilities(resume_factor=2.0))
    run.tell(SessionReminded(leg=1, compaction=1, chars=900))
    assert (run.last(EndLeg).how, run.run.ending) == ("gentle", "recall")


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_session_that_ends_its_turn_on_its_summary_alone_has_to_look_again(
    is_replaced: bool,
) -> None:
    """Also if segue was about to end it for that, and it was faster."""
    run = led(abilities=MUTE)
    if is_replaced:
        run.tell(SessionReminded(leg=1, compaction=1, chars=900))
    run.ends(R.COMPLETED, is_untold=True)
    assert run.legs()[1:] == [(2, "work", "recall", "s1")]
    run.ends(R.RATE_LIMIT, retry_at=AT + 60)
    run.waits()
    assert run.legs()[2:] == [(3, "work", "recall", "s1")], "nobody has read it yet"
    run.up()
    run.ends(R.COMPLETED)
    assert run.state is RunState.DONE


def test_it_need_not_look_again_if_a_check_does_or_no_more_legs_are_allowed() -> None:
    run = led(check="make")
    run.ends(R.COMPLETED, is_untold=True)
    run.last(RunCheck)
    run = led(Policy(max_legs=1))
    run.ends(R.COMPLETED, is_untold=True)
    assert run.state is RunState.DONE


def test_a_session_that_looks_again_and_again_in_vain_is_done() -> None:
    run = led()
    for _ in range(3):
        run.ends(R.COMPLETED, is_untold=True)
        run.up()
    assert run.state is RunState.DONE


def test_a_session_that_takes_words_is_not_ended_for_its_compaction() -> None:
    run = led(abilities=Abilities(talks=True))
    run.tell(SessionReminded(leg=1, compaction=1, chars=900))
    assert run.all(EndLeg) == []


def test_one_that_ends_by_itself_while_it_is_ended_for_its_compaction_is_believed() -> None:
    run = led(abilities=MUTE)
    run.tell(SessionReminded(leg=1, compaction=1, chars=900))
    run.ends(R.COMPLETED)
    assert run.state is RunState.DONE


def test_a_session_that_gets_nowhere_is_replaced_and_the_third_one_ends_the_run() -> None:
    run = led()
    run.tell(Looped(leg=1, calls=99, kind="replies"))
    assert run.all(EndLeg) == []
    for leg in (1, 2, 3):
        run.tell(Looped(leg=leg, calls=100, kind="replies", call="rm x", made=100, failed=100))
        assert (run.last(EndLeg).how, run.run.ending) == ("gentle", "loop")
        run.ends(R.TIMEOUT, progressed=leg == 1)
        if leg < 3:
            assert run.state is RunState.CHECKPOINTING
            run.tell(CheckpointComposed(number=leg))
            assert run.last(StartLeg).prompt == "continuation"
            assert run.run.circles is not None
            assert run.run.circles.call == "rm x"
            run.up()
            assert run.run.circles is None
    outcome = run.last(Finish).outcome
    assert (outcome.exit_code, outcome.reason) == (1, "no_progress")
    assert outcome.what.startswith("3 legs in a row made no progress; the last: no progress in 100")
    assert "idle_legs = 3" in outcome.change
    assert "max_idle_replies = 100" in outcome.change


def test_a_loop_in_the_log_of_an_older_version_leads_where_it_led() -> None:
    run = led()
    run.tell(Looped(leg=1, calls=200))
    assert (run.state, run.last(EndLeg).how) == (RunState.STOPPING, "gentle")
    run.ends(R.USER_EXIT)
    assert run.last(Finish).outcome.reason == "no_progress"


def test_a_session_that_ends_by_itself_while_it_is_ended_for_a_loop_is_believed() -> None:
    run = led()
    run.tell(Looped(leg=1, calls=100, kind="replies"))
    run.ends(R.COMPLETED)
    assert run.state is RunState.DONE
    run = led()
    run.tell(Looped(leg=1, calls=100, kind="replies"))
    run.ends(R.RATE_LIMIT)
    assert run.state is RunState.WAITING


def test_a_leg_that_segue_ended_is_not_a_failure_of_the_agents() -> None:
    run = led(Policy(idle_legs=100))
    for number in range(1, 5):
        run.reads(0.9)
        run.elapses("checkpoint")
        run.ends(R.TIMEOUT, failure="timeout: ended by segue")
        run.tell(CheckpointComposed(number=number))
        run.up()
    assert (run.state, run.run.failures) == (RunState.WORKING, 0)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"max_legs": 1}, "max_legs"),
        ({"max_tokens": 1_000}, "max_tokens"),
        ({"max_cost_usd": 0.5}, "max_cost_usd"),
        ({"max_active_s": 60}, "max_active_s"),
    ],
)
def test_caps_forbid_the_next_leg_and_name_the_setting(changes: Any, name: str) -> None:
    run = led(Policy(**changes))
    run.ends(R.CRASH, tokens=1_000, cost_usd=0.5, active_s=60, progressed=True)
    outcome = run.last(Finish).outcome
    assert (outcome.reason, outcome.exit_code) == ("cap", 124 if name == "max_active_s" else 1)
    assert outcome.change.startswith(f"{name} = ")
    assert f"segue resume run-1 --set {name}=N" in outcome.advice


def test_caps_that_are_not_reached_allow_the_next_leg() -> None:
    run = led(Policy(max_legs=2, max_tokens=1_000, max_cost_usd=0.5, max_active_s=60))
    run.ends(R.CRASH, tokens=999, cost_usd=0.4, active_s=59)
    assert run.state is RunState.RESUMING


@pytest.mark.parametrize(("timer", "name"), [("active", "max_active_s"), ("wall", "max_wall_s")])
def test_time_that_is_up_ends_the_leg_gently_and_then_the_run_with_124(
    timer: str, name: str
) -> None:
    run = led(Policy(max_active_s=600, max_wall_s=600))
    run.elapses(timer)
    assert (run.state, run.last(EndLeg).how) == (RunState.STOPPING, "gentle")
    run.ends(R.USER_EXIT, tokens=77)
    outcome = run.last(Finish).outcome
    assert (outcome.exit_code, outcome.reason, run.run.tokens) == (124, "cap", 77)
    assert outcome.change.startswith(f"{name} = 600 ")
    assert "10 min" in outcome.what


def test_a_task_that_was_completed_in_the_grace_is_done() -> None:
    """SIGTERM, three seconds, SIGKILL; what it says in between counts."""
    run = led(Policy(max_active_s=600))
    assert run.run.policy.grace_s == 3
    run.elapses("active")
    assert run.last(EndLeg).how == "gentle"
    run.ends(R.COMPLETED)
    assert exit_code(run) == 0


def test_a_timer_of_a_limit_that_is_not_set_changes_nothing() -> None:
    run = led()
    run.elapses("wall")
    run.elapses("active")
    assert (run.state, len(run.decisions)) == (RunState.WORKING, 1)


# Stalls


def test_a_stalled_leg_is_ended_gently_and_resumed_if_it_made_progress() -> None:
    run = led()
    run.elapses("stall")
    assert (run.state, run.last(EndLeg).how) == (RunState.WORKING, "gentle")
    run.elapses("stall")
    assert len(run.ended()) == 1
    run.ends(R.USER_EXIT, progressed=True, confidence=0.5)
    assert (run.state, run.run.why) == (RunState.RESUMING, R.TIMEOUT)


def test_a_stalled_leg_without_progress_is_124_and_names_both_settings() -> None:
    run = led()
    run.elapses("stall")
    run.ends(R.CRASH)
    outcome = run.last(Finish).outcome
    assert outcome.exit_code == 124
    assert "stall_s = 330 " in outcome.change
    assert "tool_stall_s = 1800 " in outcome.change


@pytest.mark.parametrize(
    ("reason", "state"),
    [(R.COMPLETED, RunState.DONE), (R.RATE_LIMIT, RunState.WAITING), (R.AUTH, RunState.FAILED)],
)
def test_a_stalled_leg_that_had_said_why_is_judged_by_that(reason: R, state: RunState) -> None:
    run = led()
    run.elapses("stall")
    run.ends(reason)
    assert run.state is state
    assert run.run.outcome is None or run.run.outcome.exit_code != 124


def test_nothing_is_asked_of_a_leg_that_is_being_ended() -> None:
    run = led()
    run.elapses("stall")
    run.reads(0.99)
    run.boundary()
    assert not run.all(AskCheckpoint)


# The check


def test_a_check_that_passes_is_needed_to_be_done() -> None:
    run = led(check="make test")
    run.ends(R.COMPLETED)
    assert run.state is RunState.CHECKING
    run.last(RunCheck)
    run.tell(Checked(ok=True))
    assert (run.state, exit_code(run)) == (RunState.DONE, 0)


def test_a_failed_check_is_told_to_the_same_session_three_times_then_it_fails() -> None:
    run = led(check="make test")
    for tries in (1, 2, 3):
        run.ends(R.COMPLETED)
        run.tell(Checked(ok=False, exit_code=2))
        assert (run.state, run.legs()[-1]) == (
            RunState.RESUMING,
            (tries + 1, "work", "check", "s1"),
        )
        run.up()
    run.ends(R.COMPLETED)
    run.tell(Checked(ok=False, exit_code=2))
    outcome = run.last(Finish).outcome
    assert (outcome.reason, outcome.exit_code) == ("check_failed", 1)
    assert "max_checks = 3" in outcome.change
    assert "make test" in outcome.advice


def test_what_the_check_said_is_told_again_if_a_limit_came_before_the_reply() -> None:
    run = led(check="make test")
    run.ends(R.COMPLETED)
    run.tell(Checked(ok=False, exit_code=2))
    run.ends(R.RATE_LIMIT)
    run.waits()
    assert run.legs()[-1] == (3, "work", "check", "s1")
