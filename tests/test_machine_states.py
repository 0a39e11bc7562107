"""The machine of a run: what is the same in many states."""

from collections.abc import Callable

import pytest
from runs import Led, led, new_run

from segue.core.policy import Policy
from segue.core.reading import Reading
from segue.core.run import (
    CancelAsked,
    Composed,
    Created,
    EndLeg,
    Looped,
    Named,
    Pressed,
    Read,
    Replied,
    Resumed,
    Started,
    State,
    Told,
    Unstartable,
)
from segue.core.stop import StopReason

R = StopReason
TIMED = Policy(most_wall_s=90_000, most_active_s=9_000)


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
    run.tell(Told(leg=1, number=1))
    run.ends(R.COMPLETED, progressed=True)
    run.tell(Composed(number=1))
    return run


def resuming() -> Led:
    run = led(TIMED)
    run.ends(R.CRASH)
    return run


def stopping() -> Led:
    run = led(TIMED)
    run.tell(Pressed())
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
    assert found == set(State)
    assert all(build().run.is_live for build in LIVE)


@pytest.mark.parametrize("build", LIVE)
def test_a_live_leg_may_tell_its_session_at_any_time(build: Build) -> None:
    run, state = build(), build().state
    run.tell(Started(leg=run.run.leg, session_id="one"))
    assert run.run.session_id == "one"
    run.tell(Named(leg=run.run.leg, session_id="two"))
    assert (run.run.session_id, run.state) == ("two", state)


@pytest.mark.parametrize("build", LIVE)
def test_a_live_legs_size_and_reply_are_always_noted(build: Build) -> None:
    run, size = build(), Reading(input_tokens=5)
    run.tell(Read(leg=run.run.leg, reading=size), Replied(leg=run.run.leg))
    assert (run.run.reading, run.run.leg_replied, run.run.has_replied) == (size, True, True)


@pytest.mark.parametrize("build", [*BUSY, checkpointing])
def test_a_reply_ends_a_beginning_and_nothing_else(build: Build) -> None:
    run, state = build(), build().state
    run.tell(Replied(leg=run.run.leg, acted=True))
    assert run.state is (State.CHECKPOINTING if state is State.CHECKPOINTING else State.WORKING)


@pytest.mark.parametrize("build", LIVE)
def test_a_leg_that_is_not_there_is_never_waited_for(build: Build) -> None:
    run, state = build(), build().state
    run.tell(Unstartable(leg=run.run.leg, what="gone"))
    expected = {State.STOPPING: State.CANCELLED, State.CHECKPOINTING: State.CHECKPOINTING}
    assert (run.state, run.run.is_live) == (expected.get(state, State.FAILED), False)
    assert run.steps[-1].decisions


@pytest.mark.parametrize("build", BUSY)
def test_what_hangs_or_turns_in_circles_is_ended(build: Build) -> None:
    run = build()
    run.elapses("stall")
    assert (run.last(EndLeg).how, run.run.ending) == ("gentle", "stall")
    run = build()
    run.tell(Looped(leg=run.run.leg, calls=500))
    assert (run.last(EndLeg).how, run.state) == ("gentle", State.STOPPING)


@pytest.mark.parametrize("build", [*BUSY, checkpointing])
@pytest.mark.parametrize("timer", ["active", "wall"])
def test_time_that_is_up_ends_any_leg(build: Build, timer: str) -> None:
    run = build()
    run.elapses(timer)
    assert (run.last(EndLeg).how, run.state) == ("gentle", State.STOPPING)


@pytest.mark.parametrize(("build", "exit_code"), [(waiting, 75), (checking, 124), (composing, 124)])
def test_time_that_is_up_without_a_leg_ends_the_run(build: Build, exit_code: int) -> None:
    run = build()
    run.elapses("wall")
    assert run.run.outcome
    assert (run.state, run.run.outcome.exit_code) == (State.FAILED, exit_code)


@pytest.mark.parametrize("build", LIVE)
def test_two_presses_or_a_cancel_end_any_leg(build: Build) -> None:
    run = build()
    run.tell(Pressed())
    assert run.state is State.STOPPING
    run.tell(Pressed())
    assert run.last(EndLeg).how in ("gentle", "kill")
    run.ends(R.USER_EXIT)
    assert run.run.state is State.CANCELLED
    run = build()
    run.tell(CancelAsked())
    assert (run.last(EndLeg).how, run.run.state) == ("gentle", State.STOPPING)
    run.ends(R.USER_EXIT)
    assert run.run.outcome
    assert "segue cancel" in run.run.outcome.what


@pytest.mark.parametrize("build", RESTING)
@pytest.mark.parametrize("fact", [Pressed(), CancelAsked()])
def test_a_run_without_a_leg_is_cancelled_at_once(
    build: Build, fact: Pressed | CancelAsked
) -> None:
    run = build()
    run.tell(fact)
    assert run.state is State.CANCELLED


@pytest.mark.parametrize("build", [*LIVE, *RESTING, *FINAL])
def test_a_changed_policy_counts_from_the_resume_on(build: Build) -> None:
    run = build()
    run.tell(Resumed(policy=Policy(name="other")))
    assert run.run.policy.name == "other"


@pytest.mark.parametrize("build", FINAL)
def test_every_ended_run_can_be_resumed(build: Build) -> None:
    run = build()
    run.tell(Resumed())
    assert (run.state, run.legs()[-1]) == (State.RESUMING, (2, "work", "resume", "s1"))
