"""Decides whether the daemon resumes a run that no process drives.

After a reboot, a power cut, an out-of-memory kill or a closed terminal, a run is unfinished and
no process is left to drive it. Unlike a session, a run knows how to continue; the only question
here is whether it may do so without its user.
"""

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.resumes.decisions import LOOK_AGAIN_S, AskUser, Leave, WaitForReset
from segue.core.resumes.quiet_hours import Local, ends_at
from segue.core.resumes.quiet_hours import parse as parse_quiet_hours
from segue.core.runs.types import Run, RunState
from segue.core.runs.waits import backoff_s

OLD_S = 7 * 86_400.0
"""A run that was left alone for this long is not resumed any more: its user no longer needs it."""
SETTLE_S = 3.0
"""How long a run may be without a segue process before the daemon cares, because it may be about to
be resumed or detached."""


class AbandonedRun(Struct, frozen=True, kw_only=True):
    """What is known about a run that no process drives."""

    run: Run
    last_at: float  # the time of the last entry in its log
    gone_since: float  # since when the daemon has seen it without a segue process
    cancel_asked: bool = False  # the user asked to end it, and no process was there to receive that
    is_elsewhere: bool = False  # on another machine, whose processes cannot be seen from here
    has_folder: bool = True
    tries: int = 0  # how often it was resumed before
    tried_at: float | None = None
    paused: bool = False
    user_left_project_at: float | None = None
    last_takeup_at: float | None = None  # of any run


class TakeUp(Struct, frozen=True, tag="take_up"):
    """Resume the run now, in a separate process."""

    why: str


Verdict = Leave | AskUser | WaitForReset | TakeUp


def decide(left: AbandonedRun, policy: Policy, *, now: float, local: Local, draw: float) -> Verdict:
    """Decides what to do about the run. Never returns a `TakeUp` of a run that the user ended, in
    quiet hours, without `auto_resume`, or more than `max_resumes` times. `draw`, from 0 to 1,
    spreads repeated tries."""
    held = _left_alone(left, policy, now)
    if held is not None:
        return held
    if left.tries >= policy.max_resumes:
        return AskUser(f"it was resumed {left.tries} times already (max_resumes)")
    if left.paused:
        return WaitForReset(now + LOOK_AGAIN_S, "paused")
    until = left.gone_since + SETTLE_S
    why = "it may be about to resume by itself"
    if left.tries and left.tried_at is not None:
        until, why = left.tried_at + backoff_s(policy, left.tries, draw), "it was resumed before"
    left_at, last_at = left.user_left_project_at, left.last_takeup_at
    if now >= until and left_at is not None and left_at <= now:
        until = left_at + policy.user_exit_grace_s
        why = "you have just ended a session in this project (user_exit_grace_s)"
    if now >= until and (quiet := ends_at(parse_quiet_hours(policy.quiet_hours), now, local)):
        until, why = quiet, "quiet hours"
    if now >= until and last_at is not None and last_at <= now:
        until, why = last_at + policy.resume_gap_s, "runs resume one after the other (resume_gap_s)"
    if now < until:
        return WaitForReset(until, why)
    run = left.run
    return TakeUp(
        f"interrupted by {run.interrupted}" if run.interrupted else "its segue process is gone"
    )


def _left_alone(left: AbandonedRun, policy: Policy, now: float) -> Leave | None:
    run = left.run
    if run.state.is_final:
        return Leave("it has ended")
    if left.cancel_asked or (run.state is RunState.STOPPING and run.outcome_due is not None):
        return Leave("it was being ended")
    if left.is_elsewhere:
        return Leave("it belongs to another machine")
    if not policy.auto_resume:
        return Leave("auto_resume is off for this project")
    if not left.has_folder:
        return Leave("its folder is gone")
    due_at = run.wait.until if run.wait is not None else 0.0
    if now - max(left.last_at, due_at) > OLD_S:
        return Leave("it was left alone for more than a week")
    return None
