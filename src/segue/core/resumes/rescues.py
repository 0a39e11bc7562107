"""Decides whether a session that died without segue has work left, and how it can continue."""

from typing import Literal

from segue.core.sessions.types import Look
from segue.core.stops.reasons import StopReason

Way = Literal["same_session", "new_session", "other_agent"]
"""How the work continues: in the session itself; in a new one of its agent, with a checkpoint;
in one of another agent."""

_OVER = frozenset({StopReason.COMPLETED, StopReason.USER_EXIT})


def died_of(look: Look) -> StopReason | None:
    """Why a session stopped that no process has open; None if it never got a prompt. Records
    that end in the middle of a turn come from a process that was killed."""
    if look.stop is None:
        return None
    if look.stop.reason is StopReason.UNKNOWN and not look.awaits_user:
        return StopReason.CRASH
    return look.stop.reason


def has_work_left(reason: StopReason | None) -> bool:
    """Whether a session that stopped for this reason neither finished nor was ended by its
    user."""
    return reason is not None and reason not in _OVER


def ways(
    reason: StopReason, *, is_driven: bool, resumes: bool, is_cut: bool = False
) -> tuple[Way, ...]:
    """All ways to continue, the best first. `is_driven`: segue can start its agent; `resumes`:
    the agent can continue an old session; `is_cut`: its file ends in the middle of a record,
    to which the next one would be glued."""
    found: list[Way] = []
    is_full = reason is StopReason.CONTEXT_EXHAUSTED
    if is_driven and resumes and not is_full and not is_cut:
        found.append("same_session")
    if is_driven:
        found.append("new_session")
    return (*found, "other_agent")
