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

    def __init__(self, world: DaemonState, hands: HandoffWorker) -> None:
        self.world, self.hands = world, hands
        self.panes = PaneNotices(hands.do)
        self.queued: list[Name] = []
        """Sessions that wait for their turn."""

    def measure(self, kept: TrackedSession) -> None:
        """Takes in a session's reading, and the time that has passed."""
        session, world = kept.session, self.world
        reading, zone = session.reading, session.zone
        if reading is None or zone is None:
            return
        if abs(reading.fraction - kept.noted) >= READING_STEP:
            world.note("reading", session, msgspec.to_builtins(reading))
            kept.noted = reading.fraction
        if kept.memory.zone is None:
            kept.memory = self._remembered(session)
        before = kept.memory
        kept.memory, told = zones.observe(
            kept.memory,
            reading,
            zone,
            world.policy(session),
            project=session.cwd,
            at=world.clock.now(),
            forecast=session.forecast,
        )
        is_due = self._is_due(kept)
        if not is_due:
            kept.is_declined = False
        wants = is_due and self._may_hand_over(kept)
        try:
            for each in told:
                self._note(kept, each, wants=wants)
        except StateError:
            kept.memory = before  # it is reported once there is room for it
            raise
        name = (session.agent, session.session_id)
        if wants and name not in self.queued and self.hands.of(session) is None:
            self.queued.append(name)
        self._count_turn(kept)
        self.hands.measured(session)

    def remind(self) -> None:
        """Reminds sessions in zones where the passing of time alone is a reason to."""
        for kept in self.world.kept.values():
            if kept.memory.reminded_at is not None and kept.session.process is not None:
                self.measure(kept)

    def hand_over_next(self) -> None:
        """Hands over sessions that reach the mark together a few at a time."""
        while self.queued:
            kept = self.world.kept.get(self.queued[0])
            if kept is None or not self._may_hand_over(kept) or self.hands.of(kept.session):
                self.queued.pop(0)
                continue
            most = self.world.policy(kept.session).handoffs_at_once
            if self.hands.active >= most and not _is_near(kept.session):
                return
            self.queued.pop(0)
            try:
                self.hands.begin(kept)
            except SegueError as fault:
                self.world.say(f"{label(kept.session)}: {fault}")

    def _note(self, kept: TrackedSession, told: zones.Noted, *, wants: bool) -> None:
        session, world = kept.session, self.world
        match told:
            case zones.Crossing():
                world.note("crossing", session, msgspec.to_builtins(told))
                world.say(f"{label(session)}: {told.zone.value} at {told.fraction:.0%}")
                self._tell_pane(kept, told, wants=wants)
            case zones.Health():
                begins = wants and told.check_type == "handoff"
                check = zones.triggered(told) if begins else told
                world.note("health", session, msgspec.to_builtins(check))
            case zones.Reminder():
                self._remind(kept, told)

    def _tell_pane(self, kept: TrackedSession, crossing: zones.Crossing, *, wants: bool) -> None:
        """Tells the user about the zone that the session is in now, not about those it passed."""
        session = kept.session
        if session.reading is None or crossing.zone is not kept.memory.zone:
            return
        policy = self.world.policy(session)
        text = message(session.reading, crossing.zone, policy)
        if not text:
            self.panes.clear(kept)
        elif not (wants and crossing.zone is Zone.HANDOFF):  # segue hands it over itself
            self.panes.tell(kept, text)

    def _remind(self, kept: TrackedSession, reminder: zones.Reminder) -> None:
        session = kept.session
        if session.reading is None:
            return
        text = self.world.rules.messages(session.cwd).high_context(session.reading)
        data: dict[str, Any] = msgspec.to_builtins(reminder)
        self.world.note("reminder", session, data | {"text": text})
        if reminder.number > 1:
            self.panes.tell(
                kept, message(session.reading, reminder.zone, self.world.policy(session))
            )
        kept.reminds = reminder.number > 1  # the first one is reported when it enters the zone
        self.world.say(f"{label(session)}: {text.strip().splitlines()[0]}")
        key = f"{session.session_id}:{reminder.zone.value}:{reminder.number}"
        what = f"{label(session)}: context at {reminder.fraction:.0%}"
        is_last = reminder.zone is Zone.HANDOFF
        advice = "consider a handoff: segue handoff"
        self.world.notices.tell("needs_you" if is_last else "handoff", key, what, advice)

    def _remembered(self, session: Session) -> zones.ZoneMemory:
        """What a previous daemon logged: a crossing is not reported again because segue was
        restarted."""
        log, name = self.world.log, (session.agent, session.session_id)
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

    def _count_turn(self, kept: TrackedSession) -> None:
        """The cost of a task, from the user's prompt to the end of the turn."""
        session = kept.session
        if session.reading is None:
            return
        used = session.reading.used_tokens
        if session.state is SessionState.WORKING:
            kept.turn_used = used if kept.turn_used is None else kept.turn_used
        elif kept.turn_used is not None:
            cost, kept.turn_used = used - kept.turn_used, None
            if cost > 0:
                self.world.learn_cost(session.cwd, cost)
                self.world.note("turn", session, {"tokens": cost})

    def _is_due(self, kept: TrackedSession) -> bool:
        """Whether it is in its last zone, or about to pass the agent's own limit with its next
        reply."""
        return kept.session.zone is Zone.HANDOFF or _is_near(kept.session)

    def _is_declined(self, kept: TrackedSession) -> bool:
        """Whether the user interrupted its last handoff, and it is still the same full session."""
        session = kept.session
        if kept.is_declined is None:
            notes = self.world.log.of(session.agent, session.session_id, ("handoff",), 1)
            cycle = notes[-1].data.get("cycle") if notes else None
            kept.is_declined = isinstance(cycle, dict) and cycle.get("is_declined") is True
        return kept.is_declined

    def _may_hand_over(self, kept: TrackedSession) -> bool:
        """Only during a turn: at its prompt a session belongs to its user, or waits for a limit."""
        session = kept.session
        return (
            self.world.policy(session).auto_handoff
            and session.state is SessionState.WORKING
            and not self._is_declined(kept)
            and session.process is not None
            and kept.seat is not None
            and kept.terminal is not None
            and not kept.in_run
            and not kept.is_ours
            and not self.world.is_paused(session)
        )


def _is_near(session: Session) -> bool:
    """Whether its next reply may leave less room than a checkpoint needs."""
    return session.forecast is not None and session.forecast.next_passes
