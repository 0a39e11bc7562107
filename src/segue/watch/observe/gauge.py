"""Tracks how full sessions are: logs readings, crossings, health checks and reminders, and
queues sessions that have reached the mark for their handoff."""

from typing import Any

import msgspec

from segue.core.sessions import zones
from segue.core.sessions.reading import Zone
from segue.core.sessions.types import Session, SessionState
from segue.errors import SegueError, StateError
from segue.watch.handoffs.pane_notices import PaneNotices, message
from segue.watch.handoffs.worker import HandoffWorker
from segue.watch.state import DaemonState, Name, TrackedSession, label

READING_STEP = 0.01
"""A reading is logged when the window has filled by this much more."""


class ZoneGauge:
    """Measures sessions. The caller holds the daemon's lock."""

    def __init__(self, state: DaemonState, handoffs: HandoffWorker) -> None:
        self.state, self.handoffs = state, handoffs
        self.panes = PaneNotices(handoffs.do)
        self.queued: list[Name] = []
        """Sessions that wait for their turn."""

    def measure(self, tracked: TrackedSession) -> None:
        """Takes in a session's reading, and the time that has passed."""
        session, state = tracked.session, self.state
        reading, zone = session.reading, session.zone
        if reading is None or zone is None:
            return
        if abs(reading.fraction - tracked.noted) >= READING_STEP:
            state.note("reading", session, msgspec.to_builtins(reading))
            tracked.noted = reading.fraction
        if tracked.memory.zone is None:
            tracked.memory = self._remembered(session)
        before = tracked.memory
        tracked.memory, notes = zones.observe(
            tracked.memory,
            reading,
            zone,
            state.policy(session),
            project=session.cwd,
            at=state.clock.now(),
            forecast=session.forecast,
        )
        is_due = self._is_due(tracked)
        if not is_due:
            tracked.is_declined = False
        wants = is_due and self._may_hand_over(tracked)
        try:
            for each in notes:
                self._note(tracked, each, wants=wants)
        except StateError:
            tracked.memory = before  # it is reported once there is room for it
            raise
        name = (session.agent, session.session_id)
        if wants and name not in self.queued and self.handoffs.of(session) is None:
            self.queued.append(name)
        self._count_turn(tracked)
        self.handoffs.measured(session)

    def remind(self) -> None:
        """Reminds sessions in zones where the passing of time alone is a reason to."""
        for tracked in self.state.tracked.values():
            if tracked.memory.reminded_at is not None and tracked.session.process is not None:
                self.measure(tracked)

    def hand_over_next(self) -> None:
        """Hands over sessions that reach the mark together a few at a time."""
        while self.queued:
            tracked = self.state.tracked.get(self.queued[0])
            if (
                tracked is None
                or not self._may_hand_over(tracked)
                or self.handoffs.of(tracked.session)
            ):
                self.queued.pop(0)
                continue
            most = self.state.policy(tracked.session).handoffs_at_once
            if self.handoffs.active >= most and not _is_near(tracked.session):
                return
            self.queued.pop(0)
            try:
                self.handoffs.begin(tracked)
            except SegueError as fault:
                self.state.say(f"{label(tracked.session)}: {fault}")

    def _note(self, tracked: TrackedSession, noted: zones.Noted, *, wants: bool) -> None:
        session, state = tracked.session, self.state
        match noted:
            case zones.Crossing():
                state.note("crossing", session, msgspec.to_builtins(noted))
                state.say(f"{label(session)}: {noted.zone.value} at {noted.fraction:.0%}")
                self._tell_pane(tracked, noted, wants=wants)
            case zones.Health():
                begins = wants and noted.check_type == "handoff"
                check = zones.triggered(noted) if begins else noted
                state.note("health", session, msgspec.to_builtins(check))
            case zones.Reminder():
                self._remind(tracked, noted)

    def _tell_pane(self, tracked: TrackedSession, crossing: zones.Crossing, *, wants: bool) -> None:
        """Tells the user about the zone that the session is in now, not about those it passed."""
        session = tracked.session
        if session.reading is None or crossing.zone is not tracked.memory.zone:
            return
        policy = self.state.policy(session)
        text = message(session.reading, crossing.zone, policy)
        if not text:
            self.panes.clear(tracked)
        elif not (wants and crossing.zone is Zone.HANDOFF):  # segue hands it over itself
            self.panes.tell(tracked, text)

    def _remind(self, tracked: TrackedSession, reminder: zones.Reminder) -> None:
        session = tracked.session
        if session.reading is None:
            return
        text = self.state.rules.messages(session.cwd).high_context(session.reading)
        data: dict[str, Any] = msgspec.to_builtins(reminder)
        self.state.note("reminder", session, data | {"text": text})
        if reminder.number > 1:
            self.panes.tell(
                tracked, message(session.reading, reminder.zone, self.state.policy(session))
            )
        tracked.reminds = reminder.number > 1  # the first one is reported when it enters the zone
        self.state.say(f"{label(session)}: {text.strip().splitlines()[0]}")
        key = f"{session.session_id}:{reminder.zone.value}:{reminder.number}"
        what = f"{label(session)}: context at {reminder.fraction:.0%}"
        is_last = reminder.zone is Zone.HANDOFF
        advice = "consider a handoff: segue handoff"
        self.state.notices.tell("needs_you" if is_last else "handoff", key, what, advice)

    def _remembered(self, session: Session) -> zones.ZoneMemory:
        """What a previous daemon logged: a crossing is not reported again because segue was
        restarted."""
        log, name = self.state.log, (session.agent, session.session_id)
        crossed = log.of(*name, ("crossing",), 1)
        if not crossed:
            return zones.ZoneMemory()
        try:
            last = msgspec.convert(crossed[-1].data, zones.Crossing)
        except msgspec.ValidationError:
            return zones.ZoneMemory()
        reminded = log.of(*name, ("reminder",), 1)
        is_same_stay = bool(reminded) and reminded[-1].seq > crossed[-1].seq
        return zones.ZoneMemory(
            zone=last.zone,
            since=last.at,
            reminded_at=reminded[-1].at if is_same_stay else None,
            peak=last.fraction,
            reminders=int(reminded[-1].data.get("number", 1)) if is_same_stay else 0,
        )

    def _count_turn(self, tracked: TrackedSession) -> None:
        """The cost of a task, from the user's prompt to the end of the turn."""
        session = tracked.session
        if session.reading is None:
            return
        used = session.reading.used_tokens
        if session.state is SessionState.WORKING:
            tracked.turn_used = used if tracked.turn_used is None else tracked.turn_used
        elif tracked.turn_used is not None:
            cost, tracked.turn_used = used - tracked.turn_used, None
            if cost > 0:
                self.state.learn_cost(session.cwd, cost)
                self.state.note("turn", session, {"tokens": cost})

    def _is_due(self, tracked: TrackedSession) -> bool:
        """Whether it is in its last zone, or about to pass the agent's own limit with its next
        reply."""
        return tracked.session.zone is Zone.HANDOFF or _is_near(tracked.session)

    def _is_declined(self, tracked: TrackedSession) -> bool:
        """Whether the user interrupted its last handoff, and it is still the same full session."""
        session = tracked.session
        if tracked.is_declined is None:
            notes = self.state.log.of(session.agent, session.session_id, ("handoff",), 1)
            cycle = notes[-1].data.get("cycle") if notes else None
            tracked.is_declined = isinstance(cycle, dict) and cycle.get("is_declined") is True
        return tracked.is_declined

    def _may_hand_over(self, tracked: TrackedSession) -> bool:
        """Only during a turn: at its prompt a session belongs to its user, or waits for a limit."""
        session = tracked.session
        return (
            self.state.policy(session).auto_handoff
            and session.state is SessionState.WORKING
            and not self._is_declined(tracked)
            and session.process is not None
            and tracked.seat is not None
            and tracked.terminal is not None
            and not tracked.in_run
            and not tracked.is_ours
            and not self.state.is_paused(session)
        )


def _is_near(session: Session) -> bool:
    """Whether its next reply may leave less room than a checkpoint needs."""
    return session.forecast is not None and session.forecast.next_passes
