"""What has become known about a stopped session since it stopped, and is looked up for each
decision on it."""

import msgspec

from segue.core.resumes.decisions import StoppedSession
from segue.core.sessions.types import Session
from segue.core.stops.reasons import StopReason
from segue.system.tmux.typist import TypingRefused
from segue.watch.resumes import relaying
from segue.watch.resumes.gate import AccountGate
from segue.watch.resumes.pending import Pending, has_replied
from segue.watch.resumes.prompt_stops import is_stop_at_prompt
from segue.watch.state import DaemonState, TrackedSession


def updated(
    state: DaemonState, gate: AccountGate, pending: Pending, tracked: TrackedSession
) -> StoppedSession:
    """The pending ending, with what is known now."""
    session, ending = tracked.session, pending.ending
    is_exited = ending.state == "exited"
    is_newer = (session.last_at or 0.0) > ending.at
    last_at = pending.last_resume_at
    terminal = tracked.terminal
    return msgspec.structs.replace(
        ending,
        successors=() if pending.relay_failed else _successors(state, gate, ending, session),
        in_run=ending.in_run or state.records.is_carried_on(session),
        limits=session.limits or ending.limits,
        is_open=is_exited and session.process is not None,
        has_file=state.records.has_file(session),
        went_on=is_newer and (is_exited or not is_stop_at_prompt(session)),
        replied=last_at is None or has_replied(session, last_at),
        native_continues_at=ending.native_continues_at or _continues_at(state, ending, tracked),
        can_cancel_native=bool(tracked.seat and terminal and terminal.cancel_continue),
    )


def _successors(
    state: DaemonState, gate: AccountGate, ending: StoppedSession, session: Session
) -> tuple[str, ...]:
    is_limit = ending.stop is not None and ending.stop.reason is StopReason.RATE_LIMIT
    if not is_limit or not state.policy(session).relay:
        return ()
    return tuple(each.agent for each in relaying.successors(state, gate, session))


def _continues_at(
    state: DaemonState, ending: StoppedSession, tracked: TrackedSession
) -> float | None:
    """When the agent continues by itself, if its screen says that it will."""
    if ending.state != "at_prompt" or ending.stop is None:
        return None
    pane = state.look(tracked)
    if isinstance(pane, TypingRefused) or not pane.continues_at:
        return None
    return max(ending.stop.retry_at or 0.0, state.clock.now())
