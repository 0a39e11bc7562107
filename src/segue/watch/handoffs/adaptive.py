"""With `adaptive`: how far ahead segue looks for sessions in terminals depends on how the last
handoffs went, as in runs (`core/sessions/forecasts/adapting`). What it learned is in the log, by
agent."""

from msgspec.structs import replace

from segue.core.handoffs.machine.types import HandoffStep, TerminalHandoff
from segue.core.handoffs.metrics import metrics
from segue.core.sessions.forecasts.adapting import adapted
from segue.core.sessions.forecasts.forecast import forecast
from segue.core.sessions.forecasts.growth import at_share
from segue.core.sessions.types import Session
from segue.watch.state import DaemonState

NOTE = "adaptive"
"""The kind of notes on what was learned."""


class AdaptiveMarks:
    """The caller holds the daemon's lock, or is the thread that touches terminals."""

    def __init__(self, world: DaemonState) -> None:
        self.world = world
        self._shares: dict[str, float | None] = {}  # by agent

    def share(self, agent: str) -> float | None:
        """The share of turns that the forecast covers; None: the default."""
        if agent not in self._shares:
            note = self.world.log.latest(NOTE, agent=agent)
            found = note.data.get("share") if note is not None else None
            self._shares[agent] = float(found) if isinstance(found, float | int) else None
        return self._shares[agent]

    def applied(self, session: Session) -> Session:
        """The session with the forecast that applies to it."""
        if session.reading is None or session.growth is None:
            return session
        policy = self.world.policy(session)
        share = self.share(session.agent) if policy.adaptive else None
        if share is None:
            return session
        ahead = forecast(
            session.reading,
            at_share(session.growth, share),
            policy,
            reserve_tokens=policy.reserve_tokens,
            enforced_at_tokens=session.enforced_tokens,
        )
        return replace(session, forecast=ahead)

    def learn(self, cycle: TerminalHandoff) -> None:
        """A handoff is over: learns at which share of the window its request was read. Handoffs
        that the user asked for or stopped teach nothing."""
        kept = self.world.kept.get((cycle.agent, cycle.session_id))
        if kept is None or not self.world.policy(kept.session).adaptive:
            return
        read_at = _read_at(cycle)
        if read_at is None:
            return
        before = self.share(cycle.agent)
        after = self._shares[cycle.agent] = adapted(before, read_at)
        if after == before:
            return
        data = {"share": after, "before": before, "read_at": round(read_at, 4), "id": cycle.id}
        self.world.note(NOTE, kept.session, data)
        was = f"{before:.1%}" if before is not None else "the usual 90%"
        self.world.say(f"adaptive: now looking ahead for {after:.1%} of turns ({was} before)")


def _read_at(cycle: TerminalHandoff) -> float | None:
    """None if that says nothing about the forecast; 1 for a window that was full before."""
    if cycle.by_user or cycle.cannot_be_asked or cycle.is_declined or cycle.window_tokens <= 0:
        return None
    if cycle.step is HandoffStep.CANCELLED and cycle.asked_at is None:
        return 1.0 if "compacted" in cycle.why else None
    if cycle.asked_at is None or not cycle.last_used_tokens:
        return None
    # The last size includes the answer.
    written = metrics(cycle, cycle.step_at).document_tokens if cycle.source == "agent" else 0
    return max(0, cycle.last_used_tokens - written) / cycle.window_tokens
