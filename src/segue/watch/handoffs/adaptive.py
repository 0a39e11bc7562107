"""How far ahead segue looks for sessions in terminals. On a busy machine it sees replies late, and
looks further ahead. With `adaptive`, that also depends on how the last handoffs went, as in runs
(`core/sessions/forecasts/adapting`). What it learned is in the log, by agent."""

from msgspec.structs import replace

from segue.core.handoffs.machine.types import HandoffStep, TerminalHandoff
from segue.core.handoffs.metrics import metrics
from segue.core.sessions.forecasts.adapting import adapted
from segue.core.sessions.forecasts.forecast import REACTION_S, forecast
from segue.core.sessions.forecasts.growth import at_share
from segue.core.sessions.reading import Reading
from segue.core.sessions.types import Session
from segue.watch.observe.pace import MAX_S
from segue.watch.state import DaemonState

_MOST_LATE_S = 15.0
_LEAST_LATE_S = 0.05
_FADES = 0.9
NOTE = "adaptive"
"""The kind of notes on what was learned."""


class AdaptiveMarks:
    """The look-ahead of each agent. The caller holds the daemon's lock, or is the thread that
    touches terminals."""

    def __init__(self, state: DaemonState) -> None:
        self.state = state
        self._shares: dict[str, float | None] = {}  # by agent
        self._late_s = 0.0
        self._seen_at: dict[tuple[str, str], float] = {}  # the newest reply that was seen

    def share(self, agent: str) -> float | None:
        """The share of turns that the forecast covers; None: the default."""
        if agent not in self._shares:
            note = self.state.log.latest(NOTE, agent=agent)
            found = note.data.get("share") if note is not None else None
            self._shares[agent] = float(found) if isinstance(found, float | int) else None
        return self._shares[agent]

    def applied(self, session: Session) -> Session:
        """The session with the forecast that applies to it."""
        if session.reading is None or session.growth is None:
            return session
        self._note_delay(session, session.reading)
        policy = self.state.policy(session)
        share = self.share(session.agent) if policy.adaptive else None
        if share is None and not self._late_s:
            return session
        ahead = forecast(
            session.reading,
            session.growth if share is None else at_share(session.growth, share),
            policy,
            reserve_tokens=policy.reserve_tokens,
            enforced_at_tokens=session.enforced_tokens,
            reaction_s=REACTION_S + 2 * self._late_s,  # what it does about it is late, too
        )
        return replace(session, forecast=ahead)

    def _note_delay(self, session: Session, reading: Reading) -> None:
        """Notes how long after a reply was written segue sees it, beyond the usual pause between
        two looks. A new delay counts at once, and is forgotten slowly. What was written before
        segue watched, or while the machine slept, was not seen late."""
        name = (session.agent, session.session_id)
        if session.process is None:
            self._seen_at.pop(name, None)
            return
        at, before = reading.at, self._seen_at.get(name)
        if at is None or at == before:
            return
        self._seen_at[name] = at
        late_s = self.state.clock.now() - at - MAX_S
        if before is not None and late_s < _MOST_LATE_S:
            faded = self._late_s * _FADES
            self._late_s = max(late_s, faded if faded >= _LEAST_LATE_S else 0.0, 0.0)

    def learn(self, cycle: TerminalHandoff) -> None:
        """A handoff is over: learns at which share of the window its request was read. Handoffs
        that the user asked for or stopped teach nothing."""
        tracked = self.state.tracked.get((cycle.agent, cycle.session_id))
        if tracked is None or not self.state.policy(tracked.session).adaptive:
            return
        read_at = _read_at(cycle)
        if read_at is None:
            return
        before = self.share(cycle.agent)
        after = self._shares[cycle.agent] = adapted(before, read_at)
        if after == before:
            return
        data = {"share": after, "before": before, "read_at": round(read_at, 4), "id": cycle.id}
        self.state.note(NOTE, tracked.session, data)
        was = f"{before:.1%}" if before is not None else "the usual 90%"
        self.state.say(f"adaptive: now looking ahead for {after:.1%} of turns ({was} before)")


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
