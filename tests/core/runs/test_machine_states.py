"""The state machine of a run: what is the same in many states."""

from collections.abc import Callable

import pytest
from support.runs.stepping import Led, led, new_run

from segue.core.policy import Policy
from segue.core.runs.types import (
    CancelAsked,
    CheckpointComposed,
    CheckpointReceived,
    ContextMeasured,
    Created,
    EndLeg,
    InterruptRequested,
    LegNotStarted,
    LegStarted,
    Looped,
    Replied,
    Resumed,
    RunState,
    SessionNamed,
)
from segue.core.sessions.reading import Reading
from segue.core.stops.reasons import StopReason

R = StopReason
TIMED = Policy(max_wall_s=90_000, max_active_s=9_000)


def starting() -> Led:
    run = Led(new_run(TIMED))
    run.tell(Created())
    return run


def working() -> Led:
    return led(TIMED)


def checkpointing() -> Led:
    run = led(TIMED)
    run.reads(0.9)
    return run


def handing_over() -> Led:
    run = checkpointing()
    run.tell(CheckpointReceived(leg=1, number=1))
    run.ends(R.COMPLETED, progressed=True)
    run.tell(CheckpointComposed(number=1))
    return run


def resuming() -> Led:
    run = led(TIMED)
    run.ends(R.CRASH)
    return run


def stopping() -> Led:
    run = led(TIMED)
    run.tell(InterruptRequested())
    return run


def waiting() -> Led:
    run = led(TIMED)
    run.ends(R.RATE_LIMIT)
    return run


def checking() -> Led:
    run = led(TIMED, check="make")
    run.ends(R.COMPLETED)
    return run


def composing() -> Led:
    run = led(TIMED)
    run.ends(R.CONTEXT_EXHAUSTED)
    return run


def ended(reason: StopReason) -> Callable[[], Led]:
    def build() -> Led:
        run = led(TIMED)
        run.ends(reason)
        return run

    return build


Build = Callable[[], Led]
BUSY = [starting, working, handing_over, resuming]
LIVE = [*BUSY, checkpointing, stopping]
RESTING = [waiting, checking, composing]
FINAL = [ended(reason) for reason in (R.COMPLETED, R.ERROR, R.USER_EXIT, R.NEEDS_USER)]


def test_these_are_all_states() -> None:
    found = {build().state for build in [*LIVE, *RESTING, *FINAL]}
    assert found == set(RunState)
    assert all(build().run.is_live for build in LIVE)


@pytest.mark.parametrize("build", LIVE)
def test_a_live_leg_may_tell_its_session_at_any_time(build: Build) -> None:
    run, state = build(), build().state
    run.tell(LegStarted(leg=run.run.leg, session_id="one"))
    assert run.run.session_id == "one"
    run.tell(SessionNamed(leg=run.run.leg, session_id="two"))
    assert (run.run.session_id, run.state) == ("two", state)


@pytest.mark.parametrize("build", LIVE)
def test_a_live_legs_size_and_reply_are_always_noted(build: Build) -> None:
    run, size = build(), Reading(input_tokens=5)
    run.tell(ContextMeasured(leg=run.run.leg, reading=size), Replied(leg=run.run.leg))
    assert (run.run.reading, run.run.leg_replied, run.run.has_replied) == (size, True, True)


@pytest.mark.parametrize("build", [*BUSY, checkpointing])
def test_a_reply_ends_a_beginning_and_nothing_else(build: Build) -> None:
    run, state = build(), build().state
    run.tell(Replied(leg=run.run.leg, acted=True))
    assert run.state is (
        RunState.CHECKPOINTING if state is RunState.CHECKPOINTING else RunState.WORKING
    )


@pytest.mark.parametrize("build", LIVE)
def test_a_leg_that_is_not_there_is_never_waited_for(build: Build) -> None:
    run, state = build(), build().state
    run.tell(LegNotStarted(leg=run.run.leg, what="gone"))
    expected = {
        RunState.STOPPING: RunState.CANCELLED,
        RunState.CHECKPOINTING: RunState.CHECKPOINTING,
    }
    assert (run.state, run.run.is_live) == (expected.get(state, RunState.FAILED), False)
    assert run.steps[-1].decisions


@pytest.mark.parametrize("build", BUSY)
def test_what_hangs_or_turns_in_circles_is_ended(build: Build) -> None:
    run = build()
    run.elapses("stall")
    assert (run.last(EndLeg).how, run.run.ending) == ("gentle", "stall")
    run = build()
    run.tell(Looped(leg=run.run.leg, calls=500, made=500))
    assert (run.last(EndLeg).how, run.run.ending) == ("gentle", "loop")


@pytest.mark.parametrize("build", [*BUSY, checkpointing])
@pytest.mark.parametrize("timer", ["active", "wall"])
def test_time_that_is_up_ends_any_leg(build: Build, timer: str) -> None:
    run = build()
    run.elapses(timer)
    assert (run.last(EndLeg).how, run.state) == ("gentle", RunState.STOPPING)


@pytest.mark.parametrize(("build", "exit_code"), [(waiting, 75), (checking, 124), (composing, 124)])
def test_time_that_is_up_without_a_leg_ends_the_run(build: Build, exit_code: int) -> None:
    run = build()
    run.elapses("wall")
    assert run.run.outcome
    assert (run.state, run.run.outcome.exit_code) == (RunState.FAILED, exit_code)


@pytest.mark.parametrize("build", LIVE)
def test_two_presses_or_a_cancel_end_any_leg(build: Build) -> None:
    run = build()
    run.tell(InterruptRequested())
    assert run.state is RunState.STOPPING
    run.tell(InterruptRequested())
    assert run.last(EndLeg).how in ("gentle", "kill")
    run.ends(R.USER_EXIT)
    assert run.run.state is RunState.CANCELLED
    run = build()
    run.tell(CancelAsked())
    assert (run.last(EndLeg).how, run.run.state) == ("gentle", RunState.STOPPING)
    run.ends(R.USER_EXIT)
    assert run.run.outcome
    assert "segue cancel" in run.run.outcome.what


@pytest.mark.parametrize("build", RESTING)
@pytest.mark.parametrize("fact", [InterruptRequested(), CancelAsked()])
def test_a_run_without_a_leg_is_cancelled_at_once(
    build: Build, fact: InterruptRequested | CancelAsked
) -> None:
    run = build()
    run.tell(fact)
    assert run.state is RunState.CANCELLED


@pytest.mark.parametrize("build", [*LIVE, *RESTING, *FINAL])
def test_a_changed_policy_counts_from_the_resume_on(build: Build) -> None:
    run = build()
    run.tell(Resumed(policy=Policy(name="other")))
    assert run.run.policy.name == "other"


@pytest.mark.parametrize("build", FINAL)
def test_every_ended_run_can_be_resumed(build: Build) -> None:
    run = build()
    run.tell(Resumed())
    assert (run.state, run.legs()[-1]) == (RunState.RESUMING, (2, "work", "resume", "s1"))
