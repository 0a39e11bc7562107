"""Decides why a process ended that segue did not start, from its session file, what the system
knows about its exit, and what happened to its terminal.

An error that ended the last turn stays the reason, whoever closed the agent afterwards; if its
terminal was closed, its user did.
Otherwise the question is who ended it: after a finished turn an agent is at its prompt, where
only its user ends it; a turn that was cut short means a crash, unless the terminal was closed
with it.
"""

from typing import Literal

from msgspec import Struct

from segue.core.sessions.types import Process, Session, StopSeen
from segue.core.stops.exits import exit_type, signal_of
from segue.core.stops.reasons import StopReason
from segue.core.stops.remedies import remedy
from segue.core.stops.types import (
    ContextExhaustionInfo,
    Details,
    EndedBy,
    Evidence,
    FailureInfo,
    RateLimitInfo,
    Stop,
    Tokens,
    UserExitInfo,
    UserExitType,
)

Terminal = Literal["there", "gone", "own", "none", "unknown"]
"""What happened to the terminal: its shell still exists; the shell is gone too; there was no shell,
so the terminal closes with the agent, however that ends; the agent had no terminal."""

SURE = 0.6
"""Less certain knowledge is reported as such."""
BY_USER = {
    "prompt_input_exit": UserExitType.EXIT_COMMAND,
    "logout": UserExitType.EXIT_COMMAND,
}
"""Reasons in a hook at a session's end that only the user can cause."""

_KILL = 9
_OPEN = (StopReason.COMPLETED, StopReason.NEEDS_USER, StopReason.USER_EXIT, StopReason.UNKNOWN)
"""After these, an agent waits at its prompt or works on; every other state says why it cannot."""


class After(Struct, frozen=True, kw_only=True):
    """What is known after a process ended. `exit_code` is negative for a signal, None if
    unknown; not `is_final`: it may become known, once its parent asks for it."""

    terminal: Terminal = "unknown"
    exit_code: int | None = None
    is_final: bool = True


def is_mid_turn(session: Session, ended: Process | None) -> bool:
    """Whether the agent was working, according to its file or, if that does not say, to its own
    report."""
    if session.stop is None:
        # nothing was ever asked, or only just now
        return ended is not None and ended.status == "busy"
    if session.stop.reason is not StopReason.UNKNOWN:
        return False
    return ended is None or ended.status not in ("idle", "waiting")


def ending_of(
    session: Session,
    ended: Process | None,
    after: After,
    *,
    hook: str = "",
    other_boot: bool = False,
) -> Stop:
    """The verdict. `session`: the session as it was found after the end; `hook`: the reason that
    the agent's own hook gave for the session's end, if any; `other_boot`: the machine was
    restarted since."""
    stop = session.stop
    by_hand = BY_USER.get(hook)
    number = signal_of(after.exit_code)
    kind = by_hand or exit_type(after.exit_code)
    ended_by: EndedBy = "user" if by_hand or number in (2, 3) else "unknown"
    if stop is not None and stop.reason not in _OPEN:
        is_unknown = after.terminal == "gone" and after.exit_code is None
        if is_unknown or kind is UserExitType.TERMINAL_CLOSED:
            ended_by = "user"
        return _stop_on_file(session, stop, "system" if other_boot and not by_hand else ended_by)
    mid_turn = is_mid_turn(session, ended)
    if by_hand:  # even if the machine went down afterwards
        return _user(0.95, by_hand, "hook", f"the agent's hook says {hook}", after)
    if other_boot:
        if mid_turn:
            return _crash(0.8, "boot", "the machine was restarted", after, "system")
        return _over(stop, 0.7, "boot", "the machine was restarted", "system")
    if stop is not None and stop.reason is StopReason.USER_EXIT:
        quote = stop.why or "the session's last records"
        closed = after.terminal == "gone"  # some agents write that they were interrupted then
        usual = UserExitType.TERMINAL_CLOSED if closed else UserExitType.CTRL_C
        return _user(stop.confidence, kind or usual, "records", quote, after)
    if kind is UserExitType.CTRL_C:
        return _user(0.9, kind, "exit", f"signal {number}", after)
    if kind is UserExitType.TERMINAL_CLOSED or (kind and after.terminal == "gone"):
        return _user(0.7, UserExitType.TERMINAL_CLOSED, "exit", "its terminal was closed", after)
    if kind is UserExitType.TERMINATED:
        return _user(0.5, kind, "exit", "it was asked to end (SIGTERM)", after)
    # a logout ends in this way what does not end by itself
    if number == _KILL and after.terminal == "gone":
        return _user(0.4, UserExitType.TERMINAL_CLOSED, "terminal", "terminal closed", after)
    if number is not None:
        return _crash(0.9, "exit", f"signal {number}", after, "unknown")
    return _cut(after) if mid_turn else _at_prompt(stop, after)


def _at_prompt(stop: StopSeen | None, after: After) -> Stop:
    if after.terminal == "gone":
        return _user(0.8, UserExitType.TERMINAL_CLOSED, "terminal", "its terminal is gone", after)
    if after.terminal == "none":
        return _over(stop, 0.85, "turn", "its last turn had ended", "unknown")
    return _user(
        0.8, UserExitType.CLEAN_EXIT, "turn", "it was left after its turn had ended", after
    )


def _cut(after: After) -> Stop:
    """The process ended in the middle of a turn, and no signal explains why."""
    if after.terminal == "gone":
        return _user(0.4, UserExitType.TERMINAL_CLOSED, "terminal", "terminal closed", after)
    if after.exit_code == 0 and after.terminal != "none":
        # A crash does not exit with 0, so it was asked to stop working.
        return _user(0.8, UserExitType.EXIT_COMMAND, "exit", "left in the middle of a turn", after)
    if after.exit_code == 0:
        return Stop(
            reason=StopReason.UNKNOWN,
            confidence=0.3,
            evidence=(Evidence("ending.exit", "exit code 0 in the middle of a turn", "exit"),),
            remediation=remedy(StopReason.UNKNOWN),
        )
    if after.exit_code is not None:
        return _crash(0.8, "exit", f"exit code {after.exit_code} mid-turn", after, "unknown")
    if after.terminal == "own":
        return _user(0.35, UserExitType.TERMINAL_CLOSED, "terminal", "terminal closed", after)
    return _crash(0.7, "turn", "it ended in the middle of a turn", after, "unknown")


def _stop_on_file(session: Session, stop: StopSeen, ended_by: EndedBy) -> Stop:
    """What the session's file says."""
    reading = session.reading
    tokens = Tokens(reading.used_tokens, reading.window_tokens) if reading else None
    details: Details = FailureInfo(message=stop.why)
    scope = None
    if stop.reason is StopReason.RATE_LIMIT:
        scope = _scope(session, stop)
        details = RateLimitInfo(scope=scope, retry_source=stop.retry_source, message=stop.why)
    elif stop.reason is StopReason.CONTEXT_EXHAUSTED:
        details = ContextExhaustionInfo(
            used_tokens=reading.used_tokens if reading else None,
            window_tokens=reading.window_tokens if reading else None,
            percent=reading.fraction * 100 if reading else None,
            message=stop.why,
        )
    return Stop(
        reason=stop.reason,
        confidence=stop.confidence,
        evidence=(Evidence("ending.records", stop.why, "transcript"),),
        resume=stop.reason.resume,
        retry_at=stop.retry_at,
        tokens=tokens,
        details=details,
        remediation=remedy(stop.reason, resume=stop.reason.resume, scope=scope),
        ended_by=ended_by,
    )


def _scope(session: Session, stop: StopSeen) -> str | None:
    """Which of the plan's limits it was: the one that rejects, and resets then."""
    fitting = [scope for scope, limit in session.limits.items() if limit.rejected] or [
        scope for scope, limit in session.limits.items() if limit.resets_at == stop.retry_at
    ]
    exact = [scope for scope in fitting if session.limits[scope].resets_at == stop.retry_at]
    return next(iter(exact or fitting), None)


def _over(stop: StopSeen | None, confidence: float, rule: str, why: str, by: EndedBy) -> Stop:
    reason = StopReason.COMPLETED
    if stop is not None and stop.reason is StopReason.NEEDS_USER:
        reason = StopReason.NEEDS_USER
    return Stop(
        reason=reason,
        confidence=confidence,
        evidence=(Evidence(f"ending.{rule}", why, "process"),),
        remediation=remedy(reason),
        ended_by=by,
    )


def _user(confidence: float, kind: UserExitType, rule: str, why: str, after: After) -> Stop:
    reason = StopReason.USER_EXIT
    return Stop(
        reason=reason,
        confidence=confidence,
        evidence=(Evidence(f"ending.{rule}", why, "process"),),
        details=UserExitInfo(exit_type=kind, exit_code=after.exit_code, message=why),
        remediation=remedy(reason, sure=confidence >= SURE),
        ended_by="user",
    )


def _crash(confidence: float, rule: str, why: str, after: After, by: EndedBy) -> Stop:
    reason = StopReason.CRASH
    number = signal_of(after.exit_code)
    return Stop(
        reason=reason,
        confidence=confidence,
        evidence=(Evidence(f"ending.{rule}", why, "process"),),
        resume=reason.resume,
        details=FailureInfo(message=why, exit_code=after.exit_code, signal=number),
        remediation=remedy(reason, resume=reason.resume),
        ended_by=by,
    )
