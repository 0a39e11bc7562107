"""Whether a session that stopped at its prompt is still there, and what follows if it is not."""

import msgspec

from segue.core.resumes import decisions
from segue.watch.resumes.pending import Pending
from segue.watch.state import DaemonState, TrackedSession

FOUND_S = 20.0
"""By this time after its start, a daemon has seen which agents are still running."""


def missed(
    state: DaemonState, pending: Pending, tracked: TrackedSession, restored_at: float
) -> decisions.Verdict | None:
    """What to do about a session that is not at its prompt any more although nobody saw it leave.
    None: decide as usual, because it is as it was left, or its machine has restarted since."""
    now = state.clock.now()
    if pending.ending.state != "at_prompt" or tracked.session.process is not None:
        pending.missing_since = None
        return None
    if _has_moved_on(state, tracked):
        return decisions.Leave("its agent switched to another session")
    missing_since = pending.missing_since = pending.missing_since or now
    if now < (restored_at if pending.was_restored else missing_since) + FOUND_S:
        return decisions.WaitForReset(now + 1, "looking for its agent")
    if not pending.was_restored:  # its end was missed: the process may have had another session
        return decisions.AskUser("its agent ended, and segue did not see how")
    booted_at = now - state.clock.elapsed()
    if not pending.allowed and booted_at <= pending.ending.at:
        return decisions.AskUser("its agent ended while no daemon was running")
    tracked.seat = None
    pending.ending = msgspec.structs.replace(
        pending.ending, state="exited", ended_by="system", mid_turn=False, has_pane=False
    )
    return None


def _has_moved_on(state: DaemonState, tracked: TrackedSession) -> bool:
    """Whether its process has switched to another session: after `/clear`, or because its user
    chose another one. In that case, no process end will ever be seen."""
    pid = tracked.seen_pid or (tracked.seat.pid if tracked.seat is not None else 0)
    everyone = (each.session for each in state.tracked.values() if each is not tracked)
    return any(s.process is not None and s.process.pid == pid for s in everyone)
