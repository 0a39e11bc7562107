"""Computes when a run's next timer fires, unless something else happens first."""

from operator import attrgetter

from msgspec import Struct

from segue.core.runs.types import Run, RunState, Timer


class Activity(Struct, frozen=True, kw_only=True):
    """When the live leg last did something. Unix times, corrected for changes of the clock and for
    sleep."""

    last_output_at: float
    began_at: float | None = None  # of the leg; None: as the run says
    tool_since: float | None = None  # since when a tool has been running
    asked_at: float | None = None  # of the request for a checkpoint; None: as the run says
    pressed_at: float | None = None  # of the first Ctrl+C; None: as the run says


class Deadline(Struct, frozen=True):
    """A timer and its time. For a relative wait, `waits.remaining_s` is more precise."""

    timer: Timer
    at: float


_at = attrgetter("at")


def deadlines(run: Run, activity: Activity) -> list[Deadline]:
    """All running timers, soonest first; none once a run is final. A timer that has fired is
    gone: a leg that is being ended by force needs no other limit, because its keeper has a
    grace period."""
    if run.state.is_final:
        return []
    found = _of_the_leg(run, activity) if run.is_live else _between_legs(run)
    return sorted(found, key=_at) if len(found) > 1 else found


def _between_legs(run: Run) -> list[Deadline]:
    found = _wall(run)
    if run.state is RunState.WAITING and run.wait is not None:
        found.append(Deadline("wait", run.wait.until))
    return found


def _of_the_leg(run: Run, activity: Activity) -> list[Deadline]:
    if run.ended_how in ("gentle", "kill"):
        return []
    policy, found = run.policy, _wall(run)
    began = _first(activity.began_at, run.leg_since, activity.last_output_at)
    if run.ended_how == "":
        # Tools may be silent, so segue waits longer while one is running.
        patience_s = policy.stall_s if activity.tool_since is None else policy.tool_stall_s
        heard_at = max(began, activity.last_output_at, activity.tool_since or began)
        found.append(Deadline("stall", heard_at + patience_s))
    if policy.max_active_s is not None:
        found.append(Deadline("active", began + policy.max_active_s - run.active_s))
    if run.asked and not run.is_in_tool:
        asked_at = _first(activity.asked_at, run.asked_at, began)
        found.append(Deadline("checkpoint", asked_at + policy.checkpoint_s))
    if run.state is RunState.STOPPING:
        pressed_at = _first(activity.pressed_at, run.pressed_at, began)
        found.append(Deadline("finish", pressed_at + policy.checkpoint_s))
    return found


def _wall(run: Run) -> list[Deadline]:
    if run.policy.max_wall_s is None:
        return []
    return [Deadline("wall", run.created_at + run.policy.max_wall_s)]


def _first(*times: float | None) -> float:
    for time in times:
        if time is not None:
            return time
    raise ValueError("no time is known")
