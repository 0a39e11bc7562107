"""What a session that took over in a terminal repeated, for views. Separate from `watch.owners`,
which every view imports: the digest takes time to import."""

import os

import msgspec

from segue.core.handoffs.digest import Repeats
from segue.core.sessions.types import Session
from segue.system.files import state
from segue.watch.log import ARRIVAL, LOG_NAME, Log


class TakenOver(Repeats, frozen=True, kw_only=True):
    """What a session that took over in a terminal repeated in its first actions."""

    id: str  # the handoff's
    from_session_id: str


def taken_over(session: Session) -> TakenOver | None:
    """The result for a session that a handoff in a terminal started, once it is known; None for
    any other. Raises StateError if the log cannot be read."""
    path = os.path.join(state.state_folder(), LOG_NAME)
    if not os.path.exists(path):
        return None
    log = Log(path)
    try:
        notes = log.of(session.agent, session.session_id, (ARRIVAL,), 1)
    finally:
        log.close()
    try:
        return msgspec.convert(notes[-1].data, TakenOver) if notes else None
    except msgspec.ValidationError:  # of another version
        return None
