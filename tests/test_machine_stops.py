"""The machine of a run: what follows a stop, a wait, a guard, a stall and a check."""

from typing import Any

import pytest
from runs import AT, MUTE, Led, exit_code, led

from segue.core.policy import Policy
from segue.core.run import (
    Abilities,
    Ask,
    Checked,
    Compose,
    Composed,
    Created,
    EndLeg,
    Finish,
    Looped,
    Resumed,
    RunCheck,
    Started,
    State,
    WaitUntil,
)
from segue.core.stop import FailureInfo, StopReason

R = StopReason


# After the stop (seeds 000, 001, 003)


def test_auto_resume_rate_limit_waits_then_goes_on_in_the_same_session() -> None:
    run = led()
    run.ends(R.RATE_LIMIT, retry_at=AT + 3_600)
    wait = run.last(WaitUntil)
    assert run.state is State.WAITING
    assert AT + 3_605 <= wait.wait.until <= AT + 3_660
    assert "2026-11-16T" in wait.reason
    assert wait.reason.startswith("rate limited until")
    run.waits()
    assert (run.state, run.legs()[1:]) == (State.RESUMING, [(2, "work", "resume", "s1")])
    run.up()
    assert run.run.state is State.WORKING


def test_auto_resume_overloaded_waits_and_gives_up_after_its_tries_with_75() -> None:
    run = led(Policy(overload_tries=2))
    for tries in (1, 2):
        run.ends(R.OVERLOADED)
        assert run.run.overload_tries == tries
        run.waits()
        run.up()
    run.ends(R.OVERLOADED)
    assert (run.state, exit_code(run)) == (State.FAILED, 75)
    assert run.run.outcome
    assert run.run.outcome.change == "overload_tries = 2 in [policy], or --set overload_tries=N"


def test_auto_resume_context_exhausted_starts_a_new_session_with_a_checkpoint() -> None:
    run = led()
    run.ends(R.CONTEXT_EXHAUSTED, progressed=True)
    run.last(Compose)
    run.tell(Composed(number=1))
    assert run.legs()[1:] == [(2, "work", "continuation", "")]


def test_auto_resume_crash_goes_on_in_the_same_session() -> None:
    run = led()
    run.ends(R.CRASH)
    assert run.legs()[1:] == [(2, "work", "resume", "s1")]
    assert run.run.why is R.CRASH


def test_auto_resume_completed_does_nothing_more() -> None:
    run = led()
    run.ends(R.COMPLETED, confidence=0.3)
    assert (run.state, exit_code(run)) == (State.DONE, 0)


def test_auto_resume_user_exit_is_never_resumed_and_says_so() -> None:
    run = led()
    run.ends(R.USER_EXIT, confidence=0.5)
    assert (run.state, exit_code(run)) == (State.CANCELLED, 130)
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
    assert (run.state, exit_code(run)) == (State.FAILED, 1)
    outcome = run.last(Finish).outcome
    assert outcome.reason == reason
    assert outcome.advice.startswith("Do this first.\n")
    assert "segue resume run-1\n" in outcome.advice
    assert outcome.advice.endswith("segue resume run-1 --fresh")


def test_needs_user_keeps_the_run_and_exits_3() -> None:
    run = led()
    run.ends(R.NEEDS_USER)
    assert (run.state, exit_code(run)) == (State.NEEDS_YOU, 3)
    run.tell(Resumed())
    assert run.legs()[1:] == [(2, "work", "resume", "s1")]


@pytest.mark.parametrize("reason", [R.RATE_LIMIT, R.OVERLOADED, R.CRASH, R.CONTEXT_EXHAUSTED])
def test_a_verdict_that_is_not_sure_is_not_acted_on(reason: R) -> None:
    run = led()
    run.ends(reason, confidence=0.79)
    assert run.state is State.FAILED
    assert run.run.outcome
    assert "79 % sure" in run.run.outcome.what.replace("%", " %")
    assert "least_confidence = 0.8" in run.run.outcome.change


def test_timeout_with_progress_goes_on() -> None:
    run = led()
    run.ends(R.TIMEOUT, progressed=True)
    assert run.state is State.RESUMING


def test_timeout_without_progress_gives_up_with_124_and_keeps_what_there_is() -> None:
    run = led()
    run.ends(R.TIMEOUT, progressed=False, tokens=500)
    assert (run.state, exit_code(run), run.run.tokens) == (State.FAILED, 124, 500)


def test_a_session_that_never_replied_is_begun_anew_with_what_it_was_told() -> None:
    run = Led()
    run.tell(Created(), Started(leg=1, session_id="s1"))
    run.ends(R.RATE_LIMIT)
    run.waits()
    assert (run.state, run.legs()[1:]) == (State.STARTING, [(2, "work", "task", "")])


@pytest.mark.parametrize("reason", [R.CRASH, R.ERROR, R.UNKNOWN, R.CONTEXT_EXHAUSTED])
def test_a_session_that_does_not_load_again_is_handed_over(reason: R) -> None:
    run = led()
    run.ends(R.RATE_LIMIT)
    run.waits()
    run.ends(reason, confidence=0.4)
    assert run.state is State.CHECKPOINTING
    assert "does not load" in run.last(Compose).reason
    run.tell(Composed(number=1))
    assert run.legs()[-1][2:] == ("continuation", "")


def test_a_resumed_session_that_says_something_about_the_account_is_no_broken_session() -> None:
    run = led()
    run.ends(R.RATE_LIMIT)
    run.waits()
    run.ends(R.AUTH)
    assert run.state is State.FAILED


def test_an_agent_that_cannot_resume_goes_on_in_a_new_session() -> None:
    run = led(abilities=Abilities(resumes=False))
    run.ends(R.CRASH)
    run.last(Compose)


# Waits


def test_waiting_in_a_row_is_bounded_and_ends_with_75() -> None:
    run = led(Policy(most_limited_s=400))
    while run.state is not State.FAILED:
        run.ends(R.RATE_LIMIT)
        if run.state is State.WAITING:
            run.waits()
            run.up()
    assert [round(w.wait.until - w.wait.since) for w in run.all(WaitUntil)] == [30, 60, 120]
    assert exit_code(run) == 75
    assert run.run.outcome
    assert "most_limited_s = 400" in run.run.outcome.change


def test_a_limit_is_tried_more_often_than_an_overload() -> None:
    run = led(Policy(overload_tries=1))
    for _ in range(5):
        run.ends(R.RATE_LIMIT)
        run.waits()
        run.up()
    assert (run.state, run.run.limit_tries) == (State.WORKING, 5)


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
    assert (run.state, exit_code(run)) == (State.FAILED, 75)
    assert run.run.outcome
    assert "until 2026-11-25T" in run.run.outcome.what


def test_a_weekly_limit_is_waited_for() -> None:
    run = led()
    run.ends(R.RATE_LIMIT, retry_at=AT + 7 * 86_400)
    assert run.state is State.WAITING


def test_a_wait_ends_at_the_reset_and_not_before() -> None:
    run = led()
    run.ends(R.RATE_LIMIT, retry_at=AT + 3_600)
    run.elapses("wait", after_s=3_000)
    assert run.state is State.WAITING
    run.waits()
    assert run.run.state is State.RESUMING


def test_wall_time_that_ends_before_the_reset_gives_up_at_once_with_75() -> None:
    run = led(Policy(most_wall_s=1_000))
    run.ends(R.RATE_LIMIT, retry_at=AT + 3_600)
    assert (run.state, exit_code(run)) == (State.FAILED, 75)
    assert run.run.outcome
    assert "most_wall_s = 1000" in run.run.outcome.change


def test_wall_time_that_is_over_while_waiting_is_75() -> None:
    run = led(Policy(most_wall_s=1_000))
    run.ends(R.RATE_LIMIT)
    run.elapses("wall")
    assert (run.state, exit_code(run)) == (State.FAILED, 75)


# Guards and caps


def test_three_identical_failures_without_progress_open_the_breaker() -> None:
    run = led(Policy(idle_legs=100))
    for _ in range(2):
        run.ends(R.CRASH, failure="panic <n>", replied=True)
        run.up()
    run.ends(R.CRASH, failure="panic <n>", details=FailureInfo(message="panic 7"))
    assert (run.state, exit_code(run)) == (State.FAILED, 1)
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
    assert (run.state, run.run.failures) == (State.WORKING, 1)


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
    assert (run.run.idle_legs, run.run.failures, run.state) == (0, 0, State.WORKING)


def test_handoffs_that_bring_nothing_are_idle_legs_and_checkpoint_legs_are_not() -> None:
    run = led(abilities=MUTE)
    for number in (1, 2):
        run.reads(0.95)
        run.ends(R.USER_EXIT)
        run.ends(R.COMPLETED)
        assert run.run.idle_legs == number
        run.tell(Composed(number=number))
        run.up()
    run.reads(0.95)
    run.ends(R.USER_EXIT)
    assert run.last(Finish).outcome.reason == "no_progress"


def test_a_session_that_repeats_its_calls_is_ended() -> None:
    run = led()
    run.tell(Looped(leg=1, calls=199))
    assert run.state is State.WORKING
    run.tell(Looped(leg=1, calls=200))
    assert (run.state, run.last(EndLeg).how) == (State.STOPPING, "gentle")
    run.ends(R.USER_EXIT)
    outcome = run.last(Finish).outcome
    assert (outcome.exit_code, outcome.reason) == (1, "no_progress")
    assert "same_calls = 200" in outcome.change


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"most_legs": 1}, "most_legs"),
        ({"most_tokens": 1_000}, "most_tokens"),
        ({"most_cost_usd": 0.5}, "most_cost_usd"),
        ({"most_active_s": 60}, "most_active_s"),
    ],
)
def test_caps_forbid_the_next_leg_and_name_the_setting(changes: Any, name: str) -> None:
    run = led(Policy(**changes))
    run.ends(R.CRASH, tokens=1_000, cost_usd=0.5, active_s=60, progressed=True)
    outcome = run.last(Finish).outcome
    assert (outcome.reason, outcome.exit_code) == ("cap", 124 if name == "most_active_s" else 1)
    assert outcome.change.startswith(f"{name} = ")
    assert f"segue resume run-1 --set {name}=N" in outcome.advice


def test_caps_that_are_not_reached_allow_the_next_leg() -> None:
    run = led(Policy(most_legs=2, most_tokens=1_000, most_cost_usd=0.5, most_active_s=60))
    run.ends(R.CRASH, tokens=999, cost_usd=0.4, active_s=59)
    assert run.state is State.RESUMING


@pytest.mark.parametrize(("timer", "name"), [("active", "most_active_s"), ("wall", "most_wall_s")])
def test_time_that_is_up_ends_the_leg_gently_and_then_the_run_with_124(
    timer: str, name: str
) -> None:
    run = led(Policy(most_active_s=600, most_wall_s=600))
    run.elapses(timer)
    assert (run.state, run.last(EndLeg).how) == (State.STOPPING, "gentle")
    run.ends(R.USER_EXIT, tokens=77)
    outcome = run.last(Finish).outcome
    assert (outcome.exit_code, outcome.reason, run.run.tokens) == (124, "cap", 77)
    assert outcome.change.startswith(f"{name} = 600 ")
    assert "10 min" in outcome.what


def test_a_task_that_was_completed_in_the_grace_is_done() -> None:
    """Seed 003: SIGTERM, three seconds, SIGKILL; what it says in between counts."""
    run = led(Policy(most_active_s=600))
    assert run.run.policy.grace_s == 3
    run.elapses("active")
    assert run.last(EndLeg).how == "gentle"
    run.ends(R.COMPLETED)
    assert exit_code(run) == 0


def test_a_timer_of_a_limit_that_is_not_set_changes_nothing() -> None:
    run = led()
    run.elapses("wall")
    run.elapses("active")
    assert (run.state, len(run.decisions)) == (State.WORKING, 1)


# Stalls


def test_a_stalled_leg_is_ended_gently_and_resumed_if_it_made_progress() -> None:
    run = led()
    run.elapses("stall")
    assert (run.state, run.last(EndLeg).how) == (State.WORKING, "gentle")
    run.elapses("stall")
    assert len(run.ended()) == 1
    run.ends(R.USER_EXIT, progressed=True, confidence=0.5)
    assert (run.state, run.run.why) == (State.RESUMING, R.TIMEOUT)


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
    [(R.COMPLETED, State.DONE), (R.RATE_LIMIT, State.WAITING), (R.AUTH, State.FAILED)],
)
def test_a_stalled_leg_that_had_said_why_is_judged_by_that(reason: R, state: State) -> None:
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
    assert not run.all(Ask)


# The check


def test_a_check_that_passes_is_needed_to_be_done() -> None:
    run = led(check="make test")
    run.ends(R.COMPLETED)
    assert run.state is State.CHECKING
    run.last(RunCheck)
    run.tell(Checked(ok=True))
    assert (run.state, exit_code(run)) == (State.DONE, 0)


def test_a_failed_check_is_told_to_the_same_session_three_times_then_it_fails() -> None:
    run = led(check="make test")
    for tries in (1, 2, 3):
        run.ends(R.COMPLETED)
        run.tell(Checked(ok=False, exit_code=2))
        assert (run.state, run.legs()[-1]) == (State.RESUMING, (tries + 1, "work", "check", "s1"))
        run.up()
    run.ends(R.COMPLETED)
    run.tell(Checked(ok=False, exit_code=2))
    outcome = run.last(Finish).outcome
    assert (outcome.reason, outcome.exit_code) == ("check_failed", 1)
    assert "most_checks = 3" in outcome.change
    assert "make test" in outcome.advice


def test_what_the_check_said_is_told_again_if_a_limit_came_before_the_reply() -> None:
    run = led(check="make test")
    run.ends(R.COMPLETED)
    run.tell(Checked(ok=False, exit_code=2))
    run.ends(R.RATE_LIMIT)
    run.waits()
    assert run.legs()[-1] == (3, "work", "check", "s1")
