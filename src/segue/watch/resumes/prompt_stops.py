"""Sessions that a limit or a failure has stopped at their prompt. Each such stop is found once, and
only when it is certain that the agent is not already in its next turn."""

from typing import NamedTuple

from segue.core.sessions.types import Session, SessionState
from segue.core.stops.reasons import StopReason
from segue.system.tmux.typist import TypingRefused
from segue.watch.state import DaemonState, Name, TrackedSession

AGAIN_S = 0.5
"""When to check again what looks like the same stop: agents write some records before the text that
begins the next turn."""

_PROMPT_STOPS = frozenset(reason for reason in StopReason if reason.facts.at_prompt)
"""Reasons that leave an agent at its prompt with its work unfinished."""


class PromptStop(NamedTuple):
    """What distinguishes one stop of a session from its next one; the log has the same three."""

    reason: str
    retry_at: float | None
    last_at: float


def _cause(stop: PromptStop) -> tuple[str, float | None]:
    return stop.reason, stop.retry_at


def is_stop_at_prompt(session: Session) -> bool:
    """Whether a live session is stopped, and not just waiting for its user."""
    stop = session.stop
    if stop is None or session.process is None:
        return False
    return session.state is SessionState.WAITING_FOR_LIMIT or (
        session.state is SessionState.WAITING_FOR_USER and stop.reason in _PROMPT_STOPS
    )


class PromptStops:
    """Which stops were handled, and which sessions must be checked again. The caller holds the
    daemon's lock."""

    def __init__(self, state: DaemonState) -> None:
        self.state = state
        self.check_at: dict[Name, float] = {}
        """When to check again whether a session is stopped."""
        self._handled: dict[Name, PromptStop] = {}
        self._stopped: set[Name] = set()  # whether or not their stop could be logged

    def find(self, tracked: TrackedSession) -> PromptStop | None:
        """The stop of a session that `is_stop_at_prompt`; None if it was handled already, or if a
        later check has to show that the agent really is idle."""
        session, now = tracked.session, self.state.clock.now()
        name = (session.agent, session.session_id)
        assert session.stop is not None
        stop = PromptStop(session.stop.reason.value, session.stop.retry_at, session.last_at or 0.0)
        before = self._handled.get(name)
        if before == stop:
            self.check_at.pop(name, None)
            return None
        pane = self.state.look(tracked)
        is_busy = not isinstance(pane, TypingRefused) and pane.state == "busy"
        if is_busy or (before is not None and _cause(before) == _cause(stop)):
            # It is still working, or just beginning its next turn: that will show soon.
            due = self.check_at.setdefault(name, now + AGAIN_S)
            if now < due:
                return None
            if is_busy:
                self.check_at[name] = now + AGAIN_S
                return None
        self._stopped.add(name)
        return stop

    def is_logged(self, session: Session, stop: PromptStop) -> bool:
        """Whether a previous daemon logged this very stop."""
        if (session.agent, session.session_id) in self._handled:
            return False  # this daemon has handled an earlier stop of the session
        last = self.state.log.latest("stop", agent=session.agent, session_id=session.session_id)
        return last is not None and stop == tuple(
            last.data.get(name) for name in PromptStop._fields
        )

    def handled(self, session: Session, stop: PromptStop) -> None:
        """The stop was logged and decided on: `find` does not return it again."""
        name = (session.agent, session.session_id)
        self._handled[name] = stop
        self.check_at.pop(name, None)

    def is_stopped(self, name: Name) -> bool:
        """Whether the session was stopped at its prompt when it was last seen."""
        return name in self._stopped

    def left(self, name: Name) -> None:
        """The session works again, or its agent has exited."""
        self._stopped.discard(name)
        self._handled.pop(name, None)
        self.check_at.pop(name, None)
