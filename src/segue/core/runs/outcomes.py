"""Describes how a run ended: what happened, what to do next, and which setting caused it."""

import shlex
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from segue.core.policy import Policy
from segue.core.runs.types import IdleKind, Looped, Outcome, Run, Wait
from segue.core.stops.reasons import StopReason
from segue.core.stops.remedies import remedy
from segue.core.stops.types import Grant, Stop

DONE, FAILED, NEEDS_USER, LIMITED, TIMED_OUT, USER_ENDED = 0, 1, 3, 75, 124, 130

_NOT_RESUMED = "Session ended by user, not auto-resuming"


def when(at: float) -> str:
    """A time as ISO 8601 in UTC, to the second."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def span(seconds: float) -> str:
    """A length of time, as precise as people need it."""
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
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    shown = f"{value:.12g}" if is_number else str(value).lower()
    return f"{name} = {shown} in [policy], or --set {name}={to}"


def go_on(run: Run, *, fresh: bool = False, options: str = "") -> str:
    """The command that resumes a run."""
    return f"segue resume {run.id}{' --fresh' if fresh else ''}{' ' + options if options else ''}"


def completed(run: Run) -> Outcome:
    """The task is done."""
    legs = "1 leg" if run.leg == 1 else f"{run.leg} legs"
    checked = ", and the check passed" if run.check else ""
    return Outcome(
        exit_code=DONE,
        reason=StopReason.COMPLETED,
        what=f"completed in {legs}{checked}",
        advice=f"To see what was done: segue show {run.id}",
    )


def user_ended(run: Run, how: str = "", stop: Stop | None = None) -> Outcome:
    """Ended by Ctrl+C or `segue cancel`; or in the agent itself, as far as its stop shows."""
    own = stop is not None
    if stop is not None:
        sure = run.policy.is_sure(stop)
        how = (
            "in the agent"
            if sure
            else f"probably{_agent_message(stop)}; {stop.confidence:.0%} sure"
        )
    return Outcome(
        exit_code=USER_ENDED,
        reason=StopReason.USER_EXIT,
        what=f"{_NOT_RESUMED} ({how})",
        advice=f"To resume: {go_on(run)}",
        change=setting(run.policy, "resume_user_exits", "true") if own else "",
    )


def interrupted(run: Run) -> Outcome:
    """segue had to end and the run has not: not an outcome of the run, but a description of its
    state."""
    return Outcome(
        exit_code=FAILED,
        reason="interrupted",
        what=f"interrupted by {run.interrupted}; its agent was ended, but the run has not",
        advice=f"To resume: {go_on(run)}",
    )


def stopped(run: Run, stop: Stop, what: str = "", change: str = "") -> Outcome:
    """Ended by a stop after which nothing happens automatically, or by one that `what` explains."""
    quote = _agent_message(stop)
    advice = stop.remediation or remedy(stop.reason)
    return Outcome(
        exit_code=stop.reason.facts.exit_code,
        reason=stop.reason,
        what=what or f"{stop.reason.description}{quote}",
        advice=f"{advice}\nThen: {go_on(run)}\nOr in a new session: {go_on(run, fresh=True)}",
        change=change,
    )


def needs_user(run: Run, stop: Stop) -> Outcome:
    """Ended because nobody was there to grant a permission or answer a question."""
    outcome = stopped(run, stop)
    if not stop.grants:
        return outcome
    ways = [f"{_command(run, grant)} # {grant.what}" for grant in stop.grants]
    how = "Nobody was there to allow it. To resume with permission, the narrowest way first:"
    return replace(outcome, advice="\n".join([how, *ways]))


def _command(run: Run, grant: Grant) -> str:
    env = "".join(f"{name}={shlex.quote(value)} " for name, value in grant.env)
    flags = f" -- {shlex.join(grant.flags)}" if grant.flags else ""
    return f"{env}{go_on(run)}{flags}"


def unsure(run: Run, stop: Stop) -> Outcome:
    """Perhaps a stop after which segue would continue, but the verdict is too uncertain."""
    least = run.policy.min_confidence
    what = (
        f"probably {stop.reason.description}{_agent_message(stop)}, "
        f"but only {stop.confidence:.0%} sure; "
        f"segue acts on its own only from {least:.0%} on"
    )
    return stopped(run, stop, what, setting(run.policy, "min_confidence"))


def timed_out(run: Run, stop: Stop, *, stalled: bool) -> Outcome:
    """A leg hung and had changed nothing."""
    what = "no output for too long" if stalled else f"timed out{_agent_message(stop)}"
    change = ""
    if stalled:
        change = (
            f"{setting(run.policy, 'stall_s')}; while a tool runs: "
            f"{setting(run.policy, 'tool_stall_s')}"
        )
    return Outcome(
        exit_code=TIMED_OUT,
        reason=StopReason.TIMEOUT,
        what=f"{what}, and this leg changed nothing; its output is kept",
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
        what=f"{outage(wait) or wait.why.description + until}; {why}",
        advice=f"Later: {go_on(run)}",
        change=setting(run.policy, setting_name),
    )


def outage(wait: Wait) -> str:
    """Describes an outage; "" if there is none."""
    since = wait.outage_since
    return "" if since is None else f"network unreachable since {when(since)}"


class Cap(Struct, frozen=True):
    """One of the user's limits on the whole run, which is reached."""

    name: str
    what: str
    exit_code: int = FAILED


def capped(run: Run, cap: Cap) -> Outcome:
    """Ended by a limit that the user set."""
    return Outcome(
        exit_code=cap.exit_code,
        reason="cap",
        what=cap.what,
        advice=f"To continue with more: {go_on(run, options=f'--set {cap.name}=N')}",
        change=setting(run.policy, cap.name),
    )


def no_progress(run: Run, what: str, name: str) -> Outcome:
    """Ended by a guard against work that leads nowhere."""
    return Outcome(
        exit_code=FAILED,
        reason="no_progress",
        what=what,
        advice=f"To see what it tried: segue logs {run.id}\n"
        f"Then, in a new session: {go_on(run, fresh=True)}",
        change=setting(run.policy, name),
    )


IDLE_SETTINGS: dict[IdleKind, str] = {
    "calls": "same_calls",
    "replies": "max_idle_replies",
    "tokens": "max_idle_tokens",
    "compactions": "max_idle_compactions",
}
_IDLE = {
    "calls": "the same calls with the same results, {} in a row",
    "replies": "{} replies",
    "tokens": "{} tokens",
    "compactions": "{} compactions of its own",
}


def circles(fact: Looped) -> str:
    """What a session spent without making progress."""
    spent = _IDLE[fact.kind].format(f"{fact.calls:,}")
    if fact.kind == "calls":
        what = f"no progress: {spent}"
    else:
        what = f"no progress in {spent}: no file changed, no new call succeeded, no todo was closed"
    if not fact.call:
        return what
    if fact.made == 1:  # each call was different
        return f"{what}; for example: {fact.call}" + (" (failed)" if fact.failed else "")
    failed = "failed each time" if fact.failed == fact.made else f"failed {fact.failed:,} times"
    times = f"made {fact.made:,} times" + (f", {failed}" if fact.failed else "")
    return f"{what}; most often: {fact.call} ({times})"


def went_in_circles(run: Run) -> Outcome:
    """Each of the last sessions went round in circles."""
    found = run.circles
    what = circles(found) if found else "no progress"
    if run.idle_legs > 1:
        what = f"{run.idle_legs} legs in a row made no progress; the last: {what}"
    outcome = no_progress(run, what, "idle_legs")
    if found is None:
        return outcome
    at_work = setting(run.policy, IDLE_SETTINGS[found.kind])
    return replace(outcome, change=f"{outcome.change}; in a leg: {at_work}")


def breaker(run: Run) -> Outcome:
    """Ended by the same failure again and again."""
    quote = _agent_message(run.stop) if run.stop else ""
    return Outcome(
        exit_code=FAILED,
        reason="breaker",
        what=f"failed {run.failures} times in the same way without progress{quote}",
        advice=f"To see what failed: segue logs {run.id}\n"
        f"Then: {go_on(run)}\nOr in a new session: {go_on(run, fresh=True)}",
        change=setting(run.policy, "same_failures"),
    )


def check_failed(run: Run, exit_code: int) -> Outcome:
    """The user's check still fails, although the agent was told so several times."""
    times = "once" if run.check_tries == 1 else f"{run.check_tries} times"
    repeats = f"after the agent was told so {times}" if run.check_tries else "and is not repeated"
    return Outcome(
        exit_code=FAILED,
        reason="check_failed",
        what=f"the check still exits with {exit_code} {repeats}",
        advice=f"Run it yourself: {run.check}\nThen: {go_on(run)}",
        change=setting(run.policy, "max_checks"),
    )


def check_not_run(run: Run, fault: str) -> Outcome:
    """The check could not be run, so nobody knows whether the work is good."""
    return Outcome(
        exit_code=FAILED,
        reason="check_failed",
        what=f"the agent says that it is done, but the check could not be run: {fault}",
        advice=f"Run it yourself: {run.check}\nThen: {go_on(run)}",
    )


def unstartable(run: Run, what: str) -> Outcome:
    """The agent could not be started."""
    return Outcome(
        exit_code=FAILED,
        reason=StopReason.ERROR,
        what=f"leg {run.leg} could not be started: {what}",
        advice=f"Fix that, then: {go_on(run)}",
    )


def no_session(run: Run, why: str) -> Outcome:
    """The user wants the same session or none, and it cannot be resumed."""
    return Outcome(
        exit_code=FAILED,
        reason=StopReason.ERROR,
        what=f"the session cannot be resumed: {why}",
        advice=f"In a new session, with what is known of the work: {go_on(run, fresh=True)}",
        change="--strict allows no other session; leave it out to let segue start one",
    )


def not_taken_over(run: Run, stop: Stop) -> Outcome:
    """No new session took the work over, in any form of the continuation."""
    ended = f"{how_it_ended(stop)}{_agent_message(stop)}"
    return Outcome(
        exit_code=FAILED,
        reason=stop.reason,
        what=f"no new session took the work over, not even with the task alone: {ended}",
        advice=f"{stop.remediation or remedy(stop.reason)}\nThen: {go_on(run, fresh=True)}",
    )


def how_it_ended(stop: Stop) -> str:
    """Describes the end of a session that did nothing: whatever its end looks like, it completed
    nothing."""
    is_done = stop.reason is StopReason.COMPLETED
    return "it ended without doing anything" if is_done else stop.reason.description


def _agent_message(stop: Stop) -> str:
    """The agent's own message, if there is one."""
    words = stop.details.message if stop.details else ""
    if not words and stop.evidence:
        words = stop.evidence[0].quote
    words = " ".join(words.split())
    return f": {words[:200]}{'…' if len(words) > 200 else ''}" if words else ""
