"""What the user has allowed and ended, project by project."""

from segue.core.sessions.types import Session
from segue.watch.state import DaemonState


class UserAnswers:
    """Answers and exits that decisions have to respect. The caller holds the daemon's lock."""

    def __init__(self, state: DaemonState) -> None:
        self.state = state
        self._yes_until: dict[str, float] = {}
        self._left_at: dict[str, float] = {}

    def allow(self, session: Session, until: float) -> None:
        """The user allows what segue asked about sessions of this project."""
        self._yes_until[session.cwd] = until
        self.state.note("yes", session, {"until": until})

    def yes_until(self, project: str) -> float | None:
        """How long the user's answer for a project is valid."""
        return self._yes_until.get(project)

    def leave(self, project: str, at: float) -> None:
        """The user ended a session there."""
        self._left_at[project] = at

    def left_at(self, project: str) -> float | None:
        """When the user last ended a session there."""
        return self._left_at.get(project)

    def restore(self, since: float) -> None:
        """Loads what the log has, from `since` on."""
        now = self.state.clock.now()
        for note in self.state.log.since(0, ("yes",), 100_000):
            until = note.data.get("until")
            if isinstance(until, float | int) and until > now:
                self._yes_until[note.project] = float(until)
        for note in self.state.log.since(0, ("stop",), 1_000_000):
            if note.data.get("ended_by") == "user" and note.at >= since:
                self._left_at[note.project] = note.at
