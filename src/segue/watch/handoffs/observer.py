"""Observes the handoffs in progress: in files, records and terminals.

Nothing here types or writes. Only one thread uses it.

All in one file: one look combines what files, records and screens say at one moment.
"""

import os
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from segue.agents import terminals
from segue.agents.contracts.terminal import Terminal
from segue.core.handoffs import document as documents
from segue.core.handoffs.machine.types import (
    AgentGone,
    AnyFact,
    Blocked,
    Busy,
    Cancel,
    Cleared,
    FileSeen,
    HandoffStep,
    PromptSeen,
    ReadFile,
    Ready,
    TerminalHandoff,
    TurnInterrupted,
    Used,
    UserSpoke,
    WentOn,
    What,
)
from segue.core.handoffs.metrics import next_fits
from segue.core.policy import Policy
from segue.core.sessions.reading import Zone
from segue.core.sessions.types import Session, SessionState
from segue.core.terminals.screen import Screen
from segue.sessions import evidence
from segue.system.tmux.panes import AgentPane
from segue.system.tmux.typist import TypingRefused
from segue.watch.state import DaemonState, TrackedSession

STABLE_S = 1.0
"""A document that has not changed for this long is complete, if it reads as complete."""
LONG_S = 10.0
"""An agent that shows its prompt for this long has no turn in progress, whatever its records
say."""
CONTINUES_S = 20.0
"""How long a turn that looks ended may take to continue, if its agent may be about to."""
COMPACTED = 0.9
"""A session that is smaller than this part of its former size was compacted."""
_AT_PROMPT = (
    *(HandoffStep.WAITING, HandoffStep.RESTING, HandoffStep.WRITTEN),
    *(HandoffStep.CLEARED, HandoffStep.CLEARING, HandoffStep.NEEDS_USER),
)
_CLEARING = (
    *(HandoffStep.WAITING, HandoffStep.RESTING, HandoffStep.ASKED),
    *(HandoffStep.CLEARING, HandoffStep.WRITTEN, HandoffStep.NEEDS_USER),
)
_IN_TURN = (HandoffStep.WAITING, HandoffStep.ASKED, HandoffStep.WRITTEN, HandoffStep.CLEARED)
_AFTER = (HandoffStep.CLEARED, HandoffStep.RESUMING, HandoffStep.RESUMED, HandoffStep.NEEDS_USER)


def project_of(cycle: TerminalHandoff) -> str:
    """The folder in which a document must stay; "" if the user stores documents elsewhere."""
    return cycle.cwd if cycle.file.startswith(cycle.cwd.rstrip("/") + "/") else ""


class HandoffPlace(Struct, frozen=True):
    """Where a session runs and what it wrote, for a later daemon: once the context is cleared,
    no running process has that session any more."""

    seat: AgentPane | None = None
    path: str = ""  # of its records


class HandoffObserver:
    """Observes handoffs. For each one it remembers only since when something has been the case."""

    def __init__(self, state: DaemonState) -> None:
        self.state = state
        self.places: dict[str, HandoffPlace] = {}
        self._files: dict[str, tuple[int, int, float]] = {}  # size, time, since when
        self._drafts: dict[str, float] = {}  # since when a draft is in the way
        self._idle: dict[str, float] = {}  # since when a prompt is shown

    def forget(self, name: str) -> None:
        """The handoff has ended."""
        for table in (self.places, self._files, self._drafts, self._idle):
            table.pop(name, None)

    # Where

    def place(self, cycle: TerminalHandoff) -> HandoffPlace:
        """The newest known place."""
        tracked = self.state.tracked.get((cycle.agent, cycle.session_id))
        before = self.places.get(cycle.id, HandoffPlace())
        new = self.state.tracked.get((cycle.agent, cycle.new_session_id))
        seats = [found.seat for found in (new, tracked) if found is not None]
        found = HandoffPlace(
            seat=next(filter(None, (*seats, before.seat)), None),
            path=(tracked.session.path if tracked else "") or before.path,
        )
        self.places[cycle.id] = found
        return found

    def restore(self, name: str, data: Any) -> None:
        """Loads the place as a previous daemon logged it."""
        try:
            self.places[name] = msgspec.convert(data, HandoffPlace)
        except msgspec.ValidationError:
            self.places[name] = HandoffPlace()

    def terminal(self, cycle: TerminalHandoff) -> Terminal | None:
        """How to talk to its agent."""
        tracked = self.state.tracked.get((cycle.agent, cycle.session_id))
        return (tracked.terminal if tracked else None) or terminals.find(cycle.agent)

    def look(self, cycle: TerminalHandoff) -> Screen | TypingRefused:
        """What the session's terminal shows."""
        seat, terminal = self.place(cycle).seat, self.terminal(cycle)
        if seat is None or terminal is None:
            return TypingRefused("gone", "it is not in a terminal")
        return self.state.typist.look(seat, terminal)

    # The current facts

    def facts(self, cycle: TerminalHandoff) -> list[AnyFact]:
        """The new facts about a handoff, in order."""
        tracked = self.state.tracked.get((cycle.agent, cycle.session_id))
        facts: list[AnyFact] = []
        if used := self._used(cycle, tracked):
            facts.append(used)
            if isinstance(used, Cancel):
                return facts
        if cycle.step in (HandoffStep.ASKED, HandoffStep.WRITTEN, HandoffStep.WAITING):
            facts += self._of_file(cycle)
        latest = evidence.LatestTurn()
        if cycle.step in _IN_TURN:
            latest = self.latest(cycle)
            facts += self._of_turn(cycle, latest)
        if cycle.step in (HandoffStep.ASKED, HandoffStep.WRITTEN):
            facts += self._of_records(cycle)
        if cycle.step in _CLEARING and not cycle.is_cleared and (new := self.cleared_to(cycle)):
            facts.append(Cleared(new))
        if cycle.step in _AFTER and (cycle.is_cleared or cycle.step is not HandoffStep.NEEDS_USER):
            facts += self._of_new_session(cycle)
        if cycle.step is HandoffStep.RESTING and not _may_work(tracked):
            self._idle.pop(cycle.id, None)
        elif cycle.step in _AT_PROMPT:
            facts += self._of_screen(cycle, tracked, latest)
        else:
            self._idle.pop(cycle.id, None)
            pane = self.look(cycle)
            if isinstance(pane, TypingRefused) and pane.why == "gone":
                facts.append(AgentGone(pane.detail))
        return facts

    def _used(self, cycle: TerminalHandoff, tracked: TrackedSession | None) -> Used | Cancel | None:
        """How full the session is; the new one, once the context is cleared."""
        if cycle.is_cleared:
            tracked = self.state.tracked.get((cycle.agent, cycle.new_session_id))
        reading = tracked.session.reading if tracked else None
        if tracked is None or reading is None:
            return None
        zone = tracked.session.zone
        shrunk = reading.fraction < cycle.fraction * COMPACTED and zone is not Zone.HANDOFF
        waits = cycle.step in (HandoffStep.WAITING, HandoffStep.RESTING, HandoffStep.NEEDS_USER)
        waits = waits and not cycle.is_cleared
        # One that was interrupted does not continue by itself: it is handed over anyway.
        wanted = cycle.by_user or cycle.was_cut
        if shrunk and waits and not wanted:
            return Cancel("the agent compacted its context by itself")
        fits = next_fits(
            reading,
            tracked.session.enforced_tokens,
            self.state.costs.get(tracked.session.cwd, ()),
            self.policy(cycle).reserve_tokens,
        )
        ahead = tracked.session.forecast
        last = ahead.last_tokens if ahead else None
        return Used(
            reading.used_tokens,
            zone.value if zone else "",
            fits,
            is_near=ahead is not None and ahead.next_passes,
            is_past=last is not None
            and (reading.used_tokens >= last or (ahead is not None and ahead.result_passes)),
        )

    # The document

    def _of_file(self, cycle: TerminalHandoff) -> list[AnyFact]:
        """The document, once it has stopped changing."""
        found = self.state.documents.state(cycle.file)
        if found is None:
            self._files.pop(cycle.id, None)
            return [FileSeen(ok=False, why="no such file")] if cycle.has_document else []
        now = self.state.clock.awake()
        size, changed = found
        before = self._files.get(cycle.id)
        if before is None or before[:2] != (size, changed):
            self._files[cycle.id] = (size, changed, now)
            return []
        if now - before[2] < STABLE_S:
            return []
        text, why = self.state.documents.read(cycle.file, project=project_of(cycle))
        why = why or documents.check(text)
        return [
            FileSeen(
                ok=not why,
                why=why,
                bytes=size,
                changed_at=found.changed_at,
                by_segue=is_rule_made(text),
                nothing_left=not is_rule_made(text) and documents.says_nothing_left(text),
            )
        ]

    # The records

    def latest(self, cycle: TerminalHandoff) -> evidence.LatestTurn:
        """How far the last turn of the session that is handed over has come, by its records."""
        found = self.state.records.latest(cycle.agent, self.place(cycle).path, cycle.session_id)
        if found.may_continue and self.state.clock.now() - (found.ended_at or 0.0) < CONTINUES_S:
            return replace(found, turn="open", ended_at=None)
        return found

    def _of_turn(self, cycle: TerminalHandoff, latest: evidence.LatestTurn) -> list[AnyFact]:
        cut_at = cycle.cut_at if cycle.step is HandoffStep.WAITING else None
        if cut_at is not None and (latest.spoken_at or 0.0) > cut_at:
            return [UserSpoke()]
        return [TurnInterrupted(latest.ended_at)] if latest.turn == "interrupted" else []

    def has_arrived(self, cycle: TerminalHandoff, what: What) -> bool:
        """Whether the records show that the text arrived."""
        if what == "request":
            return self._message_evidence(cycle).prompt_at is not None
        return any(
            self._message_evidence(cycle, session).prompt_at is not None
            for session in self._new_sessions(cycle)
        )

    def _message_evidence(
        self, cycle: TerminalHandoff, session: Session | None = None
    ) -> evidence.MessageEvidence:
        path = session.path if session else self.place(cycle).path
        name = session.session_id if session else cycle.session_id
        marker = os.path.basename(cycle.file)
        # Only this handoff names its document, at whatever time: if the clock was set back
        # meanwhile, the record is older than the handoff.
        since = 0.0 if session else cycle.stale_before
        return self.state.records.look(cycle.agent, path, name, marker, since)

    def _of_records(self, cycle: TerminalHandoff) -> list[AnyFact]:
        facts: list[AnyFact] = []
        received = self._message_evidence(cycle)
        if received.prompt_at is not None and not cycle.is_received:
            facts.append(PromptSeen("request"))
        # If its hook asked it, the session has no such prompt.
        asked_at = received.prompt_at or (cycle.asked_at if cycle.is_received else None)
        if asked_at is not None and (received.spoken_at or 0.0) > asked_at:
            facts.append(UserSpoke())
        return facts

    def _new_sessions(self, cycle: TerminalHandoff) -> list[Session]:
        """Sessions that may have followed the one that is handed over: in the same process, or
        started in the same folder since."""
        seat = self.place(cycle).seat
        pid = seat.pid if seat else 0
        with self.state.lock:
            everyone = [tracked.session for tracked in self.state.tracked.values()]
        return [
            session
            for session in everyone
            if session.agent == cycle.agent
            and session.session_id != cycle.session_id
            and (
                _is_behind(session, pid)
                or (session.cwd == cycle.cwd and (session.started_at or 0) >= cycle.began_at)
            )
        ]

    def cleared_to(self, cycle: TerminalHandoff) -> str:
        """The session that the same process has switched to; "" if it has not."""
        seat = self.place(cycle).seat
        for session in self._new_sessions(cycle):
            # With some agents, the session of a process is a guess: a new session never belongs to
            # another.
            is_new = (session.started_at or 0) >= cycle.began_at
            is_sure = session.process is not None and session.process.certain
            if seat and _is_behind(session, seat.pid) and (is_new or is_sure):
                return session.session_id
        return ""

    def _of_new_session(self, cycle: TerminalHandoff) -> list[AnyFact]:
        seat = self.place(cycle).seat
        for session in self._new_sessions(cycle):
            received = self._message_evidence(cycle, session)
            if received.prompt_at is not None:
                facts: list[AnyFact] = [Cleared(session.session_id), PromptSeen("resume")]
                if session.reading is not None:
                    facts.append(Used(session.reading.used_tokens))
                facts += [ReadFile()] if received.read_at is not None else []
                facts += [WentOn()] if received.went_on else []
                new = self.state.records.latest(session.agent, session.path, session.session_id)
                if new.turn == "interrupted" and not cycle.went_on:
                    facts.append(TurnInterrupted(new.ended_at))
                return facts
            is_its = seat is not None and _is_behind(session, seat.pid)
            if is_its and (received.spoken_at or 0.0) > (cycle.cleared_at or float("inf")):
                return [UserSpoke()]
        return []

    # The terminal

    def _of_screen(
        self, cycle: TerminalHandoff, tracked: TrackedSession | None, latest: evidence.LatestTurn
    ) -> list[AnyFact]:
        pane = self.look(cycle)
        if isinstance(pane, TypingRefused):
            self._idle.pop(cycle.id, None)
            if pane.why == "gone":
                return [AgentGone(pane.detail)]
            return [Blocked(pane.detail or _REFUSED.get(pane.why, pane.why))]
        if cycle.step is HandoffStep.CLEARING:
            return [Cleared("")] if cycle.is_typed and pane.is_fresh else []
        is_sent = False
        if pane.state in ("idle", "busy") and not pane.draft:
            is_sent = self._drafts.pop(cycle.id, None) is not None
        if pane.state != "idle":
            self._idle.pop(cycle.id, None)
            if pane.state == "busy":
                between = latest.turn == "open" and not latest.tool_runs
                hooked = tracked is not None and tracked.hooked_at > 0
                return [Busy(is_new=is_sent, at_boundary=between, is_hooked=hooked)]
            why = _SHOWN.get(pane.state, "segue does not recognise its screen")
            if pane.is_harmless and _is_users(cycle) and latest.turn == "over":
                return [Ready(is_over=True)]  # a menu that the user has opened
            return [] if pane.is_harmless else [Blocked(why)]
        # Between two tools, some agents briefly show a prompt.
        now = self.state.clock.awake()
        terminal = self.terminal(cycle)
        idle_s = now - self._idle.setdefault(cycle.id, now)
        if idle_s < (terminal.steady_s if terminal else 0.0):
            return []
        is_draft_old = self.is_draft_old(cycle) if pane.draft else True
        is_over = latest.turn == "over" or (not latest.turn and not _may_work(tracked))
        ready = Ready(is_over=is_over, is_long=idle_s >= LONG_S)
        return [ready] if is_draft_old or _is_users(cycle) else []

    def is_harmless(self, cycle: TerminalHandoff) -> bool:
        """Whether an open dialog may be closed."""
        if cycle.step not in (
            HandoffStep.WAITING,
            HandoffStep.WRITTEN,
            HandoffStep.CLEARED,
        ) or _is_users(cycle):
            return False
        pane = self.look(cycle)
        return not isinstance(pane, TypingRefused) and pane.state == "dialog" and pane.is_harmless

    def is_fresh(self, cycle: TerminalHandoff) -> bool:
        """Whether its terminal shows an empty session."""
        pane = self.look(cycle)
        return not isinstance(pane, TypingRefused) and pane.state == "idle" and pane.is_fresh

    def is_draft_old(self, cycle: TerminalHandoff) -> bool:
        """Whether the user's draft has been in the way for so long that segue sets it aside and
        restores it later."""
        now = self.state.clock.now()
        return now - self._drafts.setdefault(cycle.id, now) >= self.policy(cycle).draft_wait_s

    def is_idle(self, cycle: TerminalHandoff) -> bool:
        """Whether it was at its prompt at the last look, so that no turn can take too long.
        segue then waits for the user, which has its own timeout."""
        waits = cycle.step in (HandoffStep.WAITING, HandoffStep.WRITTEN, HandoffStep.CLEARED)
        return waits and cycle.id in self._idle

    def keeps_draft(self, cycle: TerminalHandoff) -> bool:
        """Whether a draft is still in the way after segue has waited for it."""
        return cycle.id in self._drafts and self.is_draft_old(cycle)

    def forget_draft(self, cycle: TerminalHandoff) -> None:
        """Nothing is in the way any more."""
        self._drafts.pop(cycle.id, None)

    def policy(self, cycle: TerminalHandoff) -> Policy:
        """The rules for its session."""
        tracked = self.state.tracked.get((cycle.agent, cycle.session_id))
        model = tracked.session.model if tracked else ""
        return self.state.rules.policy(cycle.agent, model, cycle.cwd)


_REFUSED = {
    "copy_mode": "its pane is scrolled back (copy mode)",
    "not_in_front": "it is stopped, or another program is in the foreground",
}
_SHOWN = {
    "dialog": "the agent is asking a question that only you can answer",
    "starting": "it shows no prompt",
}


def is_rule_made(text: str) -> bool:
    """Whether segue wrote the whole of a document."""
    front, end, _ = text.partition("\n---\n")
    return bool(end) and 'made_by: "segue"' in front.splitlines()


def _is_users(cycle: TerminalHandoff) -> bool:
    """Whether the user opened the prompt that is displayed, and segue has nothing to do there."""
    return cycle.step is HandoffStep.WAITING and not cycle.owes and not cycle.by_user


def _may_work(tracked: TrackedSession | None) -> bool:
    """Whether a look at the terminal may show that the agent works, or is gone."""
    session = tracked.session if tracked else None
    return session is None or session.process is None or session.state is SessionState.WORKING


def _is_behind(session: Session, pid: int) -> bool:
    return session.process is not None and session.process.pid == pid
