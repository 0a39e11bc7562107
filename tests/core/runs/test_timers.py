"""When a run's timer fires if nothing else happens first."""

from typing import Any

from msgspec.structs import replace
from support.runs.stepping import AT, MUTE, TALKS, Led, new_run

from segue.core.policy import Policy
from segue.core.runs.timers import Activity, deadlines
from segue.core.runs.types import CheckpointReceived, Created, InterruptRequested, Run, Timer
from segue.core.stops.reasons import StopReason


def timers(run: Run, last_output_at: float = AT, **more: Any) -> dict[Timer, float]:
    found = deadlines(run, Activity(last_output_at=last_output_at, **more))
    assert [d.at for d in found] == sorted(d.at for d in found)
    return {deadline.timer: deadline.at - AT for deadline in found}


def working(policy: Policy | None = None, **more: Any) -> Led:
    return Led(new_run(policy, **{"abilities": TALKS, **more})).begin()


def test_silence_is_a_stall_after_330_seconds() -> None:
    assert timers(working().run, AT + 100) == {"stall": 430}


def test_silence_is_counted_from_the_start_of_the_leg_if_nothing_was_heard_yet() -> None:
    assert timers(working().run, AT - 5_000) == {"stall": 331}


def test_a_running_tool_suspends_silence_and_has_a_bound_of_its_own() -> None:
    assert timers(working().run, AT + 100, tool_since=AT + 90) == {"stall": 1_900}
    assert timers(working().run, AT + 1_880, tool_since=AT + 90) == {"stall": 3_680}


def test_active_time_is_that_of_all_legs_and_waiting_does_not_count() -> None:
    run = working(Policy(max_active_s=1_000))
    assert timers(run.run)["active"] == 1_001  # the leg began after a second
    run.ends(StopReason.RATE_LIMIT, active_s=400)
    assert "active" not in timers(run.run)
    run.tell(Created(), after_s=5_000)
    run.waits()
    assert run.run.leg_since == run.at
    assert timers(run.run)["active"] == run.at - AT + 600


def test_wall_time_counts_from_the_creation_and_also_while_waiting() -> None:
    run = working(Policy(max_wall_s=9_000))
    assert timers(run.run)["wall"] == 9_000
    run.ends(StopReason.RATE_LIMIT)
    assert timers(run.run)["wall"] == 9_000


def test_a_wait_is_the_only_timer_of_a_waiting_run() -> None:
    run = working()
    run.ends(StopReason.RATE_LIMIT, retry_at=AT + 100)
    assert run.run.wait
    assert timers(run.run) == {"wait": run.run.wait.until - AT}


def test_a_checkpoint_has_120_seconds_from_when_it_was_asked_for() -> None:
    run = working()
    run.reads(0.9)
    assert timers(run.run)["checkpoint"] == run.at - AT + 120
    assert timers(run.run, asked_at=AT + 50)["checkpoint"] == 170


def test_a_leg_that_only_asks_has_120_seconds() -> None:
    run = working(abilities=MUTE)
    run.reads(0.9)
    assert timers(run.run) == {}  # it is being ended: the keeper's grace is the bound
    run.ends(StopReason.USER_EXIT)
    assert timers(run.run)["checkpoint"] == run.at - AT + 120


def test_a_closed_session_that_lingers_still_has_the_bound_of_its_checkpoint() -> None:
    run = working()
    run.reads(0.9)
    asked_at = run.at
    run.tell(CheckpointReceived(leg=1, number=1))
    assert timers(run.run) == {"checkpoint": asked_at - AT + 120}


def test_after_ctrl_c_the_running_tool_has_as_long_to_finish() -> None:
    run = working(abilities=MUTE)
    run.tell(InterruptRequested())
    assert timers(run.run)["finish"] == run.at - AT + 120
    assert timers(run.run, pressed_at=AT + 7)["finish"] == 127
    run.tell(InterruptRequested())
    assert timers(run.run) == {}


def test_final_runs_have_no_timers() -> None:
    run = working(Policy(max_wall_s=9, max_active_s=9))
    run.ends(StopReason.COMPLETED)
    assert timers(run.run) == {}
    assert timers(replace(run.run, is_live=True)) == {}


def test_a_timer_that_had_its_effect_is_gone() -> None:
    run = working(Policy(max_active_s=9))
    run.elapses("active")
    assert timers(run.run) == {}
