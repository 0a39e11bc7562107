"""Sessions that segue has resumed: whether they replied, and how long they may go on without their
user."""

from dataclasses import dataclass

from segue.core.resumes import decisions
from segue.core.sessions.types import Session
from segue.core.stops.reasons import StopReason
from segue.watch.resumes.pending import has_replied, own_words, resumed
from segue.watch.state import DaemonState, Name, label

REPLY_S = 300.0
"""A resumed session that has not replied by then no longer keeps others waiting."""


@dataclass(kw_only=True)
class ResumeAttempt:
    """A session that segue has resumed."""

    id: str
    at: float
    has_replied: bool = False
    is_resting: bool = False  # it has used as much as the user allows unattended


class ResumeAttempts:
    """All resumed sessions whose user has not taken over again. The caller holds the daemon's
    lock."""

    def __init__(self, state: DaemonState) -> None:
        self.state = state
        self.last_at: float | None = None
        """When segue last resumed any session."""
        self.is_proven = False
        """A resumed session has replied since the last limit or outage."""
        self._attempts: dict[Name, ResumeAttempt] = {}

    def add(self, session: Session, id: str, at: float, *, has_replied: bool) -> None:
        """Segue resumed the session. `has_replied`: whoever resumed it saw to that already."""
        key = (session.agent, session.session_id)
        self._attempts[key] = ResumeAttempt(id=id, at=at, has_replied=has_replied)

    def forget(self, session: Session) -> None:
        """The user has taken it over, or it has stopped again."""
        self._attempts.pop((session.agent, session.session_id), None)

    def unanswered(self, now: float) -> int:
        """How many resumed sessions others should wait for, because they have yet to reply."""
        return sum(
            not each.has_replied and now < each.at + REPLY_S for each in self._attempts.values()
        )

    def stopped(self, session: Session, reason: StopReason) -> None:
        """The session has stopped."""
        self.forget(session)
        if reason in (StopReason.RATE_LIMIT, StopReason.OVERLOADED):
            self.is_proven = False

    def works(self, session: Session, yes_until: float | None) -> None:
        """A session is working. If segue resumed it: notes its reply, and tells the user once it
        has used as much as it may without them. `yes_until`: how long they allow more."""
        attempt = self._attempts.get((session.agent, session.session_id))
        if attempt is None:
            return
        if not attempt.has_replied and has_replied(session, attempt.at):
            attempt.has_replied = self.is_proven = True
        now = self.state.clock.now()
        history = decisions.ResumeHistory(yes_until=yes_until)
        why = decisions.unattended(session.limits, history, self.state.policy(session), now=now)
        if why and not attempt.is_resting:
            attempt.is_resting = True
            self.state.note("wake", session, {"verdict": "rest", "why": why})
            self.state.say(f"{label(session)}: {why}; segue no longer resumes it without you")
            what = f"{label(session)} is working without you"
            self.state.notices.tell("needs_you", f"{attempt.id}:rest", what, why)

    def count(self, session: Session) -> tuple[int, float | None]:
        """How often it was resumed since the user's last prompt, and when last."""
        notes = self.state.log.of(session.agent, session.session_id, ("wake", "hook"))
        count, first_at, last_at = resumed(notes)
        if count and first_at is not None:
            words = own_words(self.state.rules.messages(session.cwd))
            records = self.state.records
            count, _, _ = resumed(notes, session=session, words=words, records=records)
        return count, last_at
