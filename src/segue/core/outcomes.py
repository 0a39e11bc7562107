"""How runs end, in words: what happened, what to do next, and which setting was at work."""

from datetime import UTC, datetime

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.remedy import remedy
from segue.core.run import Outcome, Run, Wait
from segue.core.stop import Stop, StopReason

DONE, FAILED, NEEDS_USER, LIMITED, TIMED_OUT, USER_ENDED = 0, 1, 3, 75, 124, 130

_EXIT_CODES = {
    StopReason.COMPLETED: DONE,
    StopReason.NEEDS_USER: NEEDS_USER,
    StopReason.RATE_LIMIT: LIMITED,
    StopReason.OVERLOADED: LIMITED,
    StopReason.TIMEOUT: TIMED_OUT,
    StopReason.USER_EXIT: USER_ENDED,
}
_NOT_RESUMED = "Session ended by user, not auto-resuming"


def when(at: float) -> str:
    """A time as ISO 8601 in UTC, to the second."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def span(seconds: float) -> str:
    """A length of time, with as much of it as people want to know."""
    left = round(max(0.0, min(seconds, 1e11)))
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:2]) or "0 s"


def setting(policy: Policy, name: str, to: str = "N") -> str:
    """Which setting this is, and how to change it."""
    value = getattr(policy, name)
    shown = str(value).lower() if isinstance(value, bool) else f"{value:.12g}"
    return f"{name} = {shown} in [policy], or --set {name}={to}"


def go_on(run: Run, *, fresh: bool = False, options: str = "") -> str:
    """The command that goes on with a run."""
    return f"segue resume {run.id}{' --fresh' if fresh else ''}{' ' + options if options else ''}"


def done(run: Run) -> Outcome:
    """The task is carried to its end."""
    legs = "1 leg" if run.leg == 1 else f"{run.leg} legs"
    checked = ", and the check passed" if run.check else ""
    return Outcome(
        exit_code=DONE,
        reason=StopReason.COMPLETED,
        what=f"completed in {legs}{checked}",
        advice=f"To see what was done: segue show {run.id}",
    )


def user_ended(run: Run, how: str) -> Outcome:
    """By Ctrl+C, by `segue cancel`, or in the agent itself."""
    own = how == "in the agent"
    return Outcome(
        exit_code=USER_ENDED,
        reason=StopReason.USER_EXIT,
        what=f"{_NOT_RESUMED} ({how})",
        advice=f"To go on: {go_on(run)}",
        change=setting(run.policy, "resume_user_exits", "true") if own else "",
    )


def stopped(run: Run, stop: Stop, what: str = "", change: str = "") -> Outcome:
    """By a stop after which nothing is done by itself; or by one that `what` explains."""
    said = _said(stop)
    advice = stop.remediation or remedy(stop.reason)
    return Outcome(
        exit_code=_EXIT_CODES.get(stop.reason, FAILED),
        reason=stop.reason,
        what=what or f"{stop.reason.description}{said}",
        advice=f"{advice}\nThen: {go_on(run)}\nOr in a new session: {go_on(run, fresh=True)}",
        change=change,
    )


def unsure(run: Run, stop: Stop) -> Outcome:
    """It may have been a stop after which work goes on, but that is too uncertain."""
    least = run.policy.least_confidence
    what = (
        f"probably {stop.reason.description}{_said(stop)}, but only {stop.confidence:.0%} sure; "
        f"segue acts alone from {least:.0%} on"
    )
    return stopped(run, stop, what, setting(run.policy, "least_confidence"))


def timed_out(run: Run, stop: Stop, *, stalled: bool) -> Outcome:
    """A leg that hung and had changed nothing."""
    what = "no output for too long" if stalled else f"timed out{_said(stop)}"
    change = ""
    if stalled:
        change = (
            f"{setting(run.policy, 'stall_s')}; while a tool runs: "
            f"{setting(run.policy, 'tool_stall_s')}"
        )
    return Outcome(
        exit_code=TIMED_OUT,
        reason=StopReason.TIMEOUT,
        what=f"{what}, and nothing was changed in this leg; what it printed is kept",
        advice=f"{remedy(StopReason.TIMEOUT)}\nThen: {go_on(run)}\n"
        f"Or in a new session: {go_on(run, fresh=True)}",
        change=change,
    )


def limited(run: Run, wait: Wait, setting_name: str, why: str) -> Outcome:
    """Gave up while limited or overloaded."""
    until = f" until {when(wait.reset_at)}" if wait.reset_at is not None else ""
    return Outcome(
        exit_code=LIMITED,
        reason=wait.why,
        what=f"{wait.why.description}{until}; {why}",
        advice=f"Later: {go_on(run)}",
        change=setting(run.policy, setting_name),
    )


class Cap(Struct, frozen=True):
    """A limit of the user's on the whole run that is reached."""

    name: str
    what: str
    exit_code: int = FAILED


def capped(run: Run, cap: Cap) -> Outcome:
    """By a limit that the user set."""
    return Outcome(
        exit_code=cap.exit_code,
        reason="cap",
        what=cap.what,
        advice=f"To go on with more: {go_on(run, options=f'--set {cap.name}=N')}",
        change=setting(run.policy, cap.name),
    )


def no_progress(run: Run, what: str, name: str) -> Outcome:
    """By a guard against work that leads nowhere."""
    return Outcome(
        exit_code=FAILED,
        reason="no_progress",
        what=what,
        advice=f"Look at what it tried: segue logs {run.id}\n"
        f"Then, in a new session: {go_on(run, fresh=True)}",
        change=setting(run.policy, name),
    )


def breaker(run: Run) -> Outcome:
    """By the same failure, again and again."""
    said = _said(run.stop) if run.stop else ""
    return Outcome(
        exit_code=FAILED,
        reason="breaker",
        what=f"failed {run.failures} times in the same way without progress{said}",
        advice=f"Look at what failed: segue logs {run.id}\n"
        f"Then: {go_on(run)}\nOr in a new session: {go_on(run, fresh=True)}",
        change=setting(run.policy, "same_failures"),
    )


def check_failed(run: Run, exit_code: int) -> Outcome:
    """The user's check fails, however often the agent was told so."""
    times = "once" if run.check_tries == 1 else f"{run.check_tries} times"
    told = f"after the agent was told so {times}" if run.check_tries else "and is not repeated"
    return Outcome(
        exit_code=FAILED,
        reason="check_failed",
        what=f"the check still exits {exit_code} {told}",
        advice=f"Run it yourself: {run.check}\nThen: {go_on(run)}",
        change=setting(run.policy, "most_checks"),
    )


def unstartable(run: Run, what: str) -> Outcome:
    """The agent could not even be started."""
    return Outcome(
        exit_code=FAILED,
        reason=StopReason.ERROR,
        what=f"leg {run.leg} could not be started: {what}",
        advice=f"Put that right, then: {go_on(run)}",
    )


def no_session(run: Run, why: str) -> Outcome:
    """The user wants the same session or none, and there is none."""
    return Outcome(
        exit_code=FAILED,
        reason=StopReason.ERROR,
        what=f"the session cannot be gone on with: {why}",
        advice=f"In a new session, with what is known of the work: {go_on(run, fresh=True)}",
        change="--strict allows no other session; leave it out to let segue start one",
    )


def not_taken_over(run: Run, stop: Stop) -> Outcome:
    """No form of the continuation was taken up by a new session."""
    base = stopped(run, stop)
    return Outcome(
        exit_code=FAILED,
        reason=stop.reason,
        what=f"no new session took the work over, not even with the task alone: {base.what}",
        advice=f"{stop.remediation or remedy(stop.reason)}\nThen: {go_on(run, fresh=True)}",
    )


def _said(stop: Stop) -> str:
    """The agent's own words, if there are any."""
    words = stop.details.message if stop.details else ""
    if not words and stop.evidence:
        words = stop.evidence[0].quote
    words = " ".join(words.split())
    return f": {words[:200]}{'…' if len(words) > 200 else ''}" if words else ""
