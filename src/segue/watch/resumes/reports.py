"""What the log, the daemon's output and the user's notices say about stops and resumes."""

from typing import Any, Literal

import msgspec

from segue.core.resumes import decisions
from segue.core.sessions.types import Session
from segue.core.stops.types import Stop
from segue.watch.resumes.pending import Pending, data_of, tag_of
from segue.watch.state import DaemonState, label


class StopReports:
    """Reports to the log first: nothing is announced that could not be logged."""

    def __init__(self, state: DaemonState) -> None:
        self.state = state

    def stop(self, session: Session, stop: Stop, state: Literal["exited", "at_prompt"]) -> None:
        """The session has stopped."""
        data = {"state": state, **msgspec.to_builtins(stop), "last_at": session.last_at or 0.0}
        self.state.note("stop", session, data)
        self.state.say(f"{label(session)}: {stop.reason.value} ({stop.confidence:.2f}), {state}")
        if stop.reason.facts.is_noticed:
            key = f"{session.session_id}:{stop.reason.value}"
            what = f"{label(session)} stopped: {stop.reason.description}"
            self.state.notices.tell("stop", key, what, stop.remediation)

    def decision(self, pending: Pending, session: Session) -> None:
        """Something new was decided about it."""
        verdict = pending.verdict
        data = {"verdict": tag_of(verdict), **data_of(verdict)}
        if isinstance(verdict, decisions.AskUser | decisions.WaitForReset | decisions.StandBy):
            until = getattr(verdict, "until", None) or self.state.clock.now()
            data["price"] = msgspec.to_builtins(decisions.price_of(pending.ending, until))
        self.note(pending, session, data)
        self.announce(pending, session)

    def failed(self, pending: Pending, session: Session) -> None:
        """A resume failed; the pending decision says what happens instead."""
        self.note(pending, session, {"verdict": "failed", **data_of(pending.verdict)})

    def note(self, pending: Pending, session: Session, data: dict[str, Any]) -> None:
        """Logs what became of a pending stop."""
        self.state.note("wake", session, pending.noted() | data)

    def announce(self, pending: Pending, session: Session) -> None:
        """Tells the user what was decided."""
        verdict = pending.verdict
        why = verdict.why
        if isinstance(verdict, decisions.AskUser) and pending.ending.used_tokens:
            price = decisions.price_of(pending.ending, self.state.clock.now())
            why = f"{why}; resuming now: {price.in_words}"
        self.state.say(f"{label(session)}: {tag_of(verdict)}: {why}")
        match verdict:
            case decisions.AskUser():
                self.state.notices.tell("needs_you", pending.id, f"{label(session)} needs you", why)
            case decisions.WaitForReset() | decisions.StandBy():
                self.state.notices.tell("wait", pending.id, f"{label(session)} waits", why)
            case _:
                pass
