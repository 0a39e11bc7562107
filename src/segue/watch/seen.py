"""What can be seen of handoffs that are under way: in the files, the records and the terminals.

Nothing here types or writes. It is looked at from one thread.
"""

import os
from typing import Any

import msgspec
from msgspec import Struct

from segue.agents import terminals
from segue.agents.terminal import Terminal
from segue.core import handoff as documents
from segue.core.cycling import BY_USER
from segue.core.handing import (
    AnyFact,
    Blocked,
    Busy,
    Cancel,
    Cleared,
    Cycle,
    FileSeen,
    Gone,
    Heard,
    ReadFile,
    Ready,
    Step,
    Used,
    UserSpoke,
    WentOn,
    What,
)
from segue.core.policy import Policy
from segue.core.reading import Zone
from segue.core.screen import Screen
from segue.core.session import Session
from segue.io.seats import Seat
from segue.io.typist import Refused
from segue.transcripts import evidence
from segue.transcripts.handoffs import read_document
from segue.watch.world import Kept, World

STABLE_S = 1.0
"""A document that has not changed for so long is whole, if it reads so."""
COMPACTED = 0.9
"""A session that holds less than this part of what it held was compacted."""
_AT_PROMPT = (Step.WAITING, Step.WRITTEN, Step.CLEARED, Step.CLEARING, Step.NEEDS_USER)
_CLEARING = (Step.CLEARING, Step.WRITTEN, Step.NEEDS_USER)
_AFTER = (Step.CLEARED, Step.RESUMING, Step.RESUMED, Step.NEEDS_USER)


def project_of(cycle: Cycle) -> str:
    """The folder that a document must not lead out of; "" if the user keeps them elsewhere."""
    return cycle.cwd if cycle.file.startswith(cycle.cwd.rstrip("/") + "/") else ""


class Place(Struct, frozen=True):
    """Where a session sits and what it wrote, as a later daemon needs it: once the context is
    cleared, nothing that runs has that session any more."""

    seat: Seat | None = None
    path: str = ""  # of its records


class Seen:
    """Looks at handoffs. What it remembers of each is only since when something is so."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.places: dict[str, Place] = {}
        self._files: dict[str, tuple[int, int, float]] = {}  # size, time, since when
        self._drafts: dict[str, float] = {}  # since when a draft is in the way
        self._idle: dict[str, float] = {}  # since when a prompt is shown

    def forget(self, name: str) -> None:
        """It is over."""
        for kept in (self.places, self._files, self._drafts, self._idle):
            kept.pop(name, None)

    # Where

    def place(self, cycle: Cycle) -> Place:
        """The newest that is known of it."""
        kept = self.world.kept.get((cycle.agent, cycle.session_id))
        before = self.places.get(cycle.id, Place())
        new = self.world.kept.get((cycle.agent, cycle.new_session_id))
        seats = [found.seat for found in (new, kept) if found is not None]
        found = Place(
            seat=next(filter(None, (*seats, before.seat)), None),
            path=(kept.session.path if kept else "") or before.path,
        )
        self.places[cycle.id] = found
        return found

    def restore(self, name: str, data: Any) -> None:
        """As a former daemon wrote it down."""
        try:
            self.places[name] = msgspec.convert(data, Place)
        except msgspec.ValidationError:
            self.places[name] = Place()

    def terminal(self, cycle: Cycle) -> Terminal | None:
        """How its agent is talked to."""
        kept = self.world.kept.get((cycle.agent, cycle.session_id))
        return (kept.terminal if kept else None) or terminals.find(cycle.agent)

    def look(self, cycle: Cycle) -> Screen | Refused:
        """What its terminal shows."""
        seat, terminal = self.place(cycle).seat, self.terminal(cycle)
        if seat is None or terminal is None:
            return Refused("gone", "it sits in no terminal")
        return self.world.typist.look(seat, terminal)

    # All that is so now

    def facts(self, cycle: Cycle) -> list[AnyFact]:
        """What is to be told to a handoff, in order."""
        kept = self.world.kept.get((cycle.agent, cycle.session_id))
        facts: list[AnyFact] = []
        if used := self._used(cycle, kept):
            facts.append(used)
            if isinstance(used, Cancel):
                return facts
        if cycle.step in (Step.ASKED, Step.WRITTEN, Step.WAITING):
            facts += self._of_file(cycle)
        if cycle.step in (Step.ASKED, Step.WRITTEN):
            facts += self._of_records(cycle)
        if cycle.step in _CLEARING and not cycle.is_cleared and (new := self.cleared_to(cycle)):
            facts.append(Cleared(new))
        if cycle.step in _AFTER and (cycle.is_cleared or cycle.step is not Step.NEEDS_USER):
            facts += self._of_new_session(cycle)
        if cycle.step in _AT_PROMPT:
            facts += self._of_screen(cycle)
        else:
            self._idle.pop(cycle.id, None)
            seen = self.look(cycle)
            if isinstance(seen, Refused) and seen.why == "gone":
                facts.append(Gone(seen.detail))
        return facts

    def _used(self, cycle: Cycle, kept: Kept | None) -> Used | Cancel | None:
        """How full the session is: the new one, once the context is cleared."""
        if cycle.is_cleared:
            kept = self.world.kept.get((cycle.agent, cycle.new_session_id))
        reading = kept.session.reading if kept else None
        if kept is None or reading is None:
            return None
        zone = kept.session.zone
        shrunk = reading.fraction < cycle.fraction * COMPACTED and zone is not Zone.HANDOFF
        waits = cycle.step in (Step.WAITING, Step.NEEDS_USER) and not cycle.is_cleared
        # One that was interrupted does not go on by itself: it is handed over all the same.
        wanted = cycle.tries.get(BY_USER) or cycle.was_cut
        if shrunk and waits and not wanted:
            return Cancel("the agent compacted its context by itself")
        return Used(reading.used_tokens, zone.value if zone else "")

    # The document

    def _of_file(self, cycle: Cycle) -> list[AnyFact]:
        """The document, once it has stopped changing."""
        try:
            found = os.lstat(cycle.file)
        except OSError:
            self._files.pop(cycle.id, None)
            return [FileSeen(ok=False, why="there is no such file")] if cycle.has_document else []
        now = self.world.clock.awake()
        size, changed = found.st_size, found.st_mtime_ns
        before = self._files.get(cycle.id)
        if before is None or before[:2] != (size, changed):
            self._files[cycle.id] = (size, changed, now)
            return []
        if now - before[2] < STABLE_S:
            return []
        text, why = read_document(cycle.file, project=project_of(cycle))
        why = why or documents.check(text)
        return [
            FileSeen(
                ok=not why,
                why=why,
                bytes=size,
                changed_at=found.st_mtime,
                by_segue=is_rule_made(text),
            )
        ]

    # The records

    def was_heard(self, cycle: Cycle, what: What) -> bool:
        """Whether the records show that it was said."""
        if what == "request":
            return self._heard(cycle).prompt_at is not None
        return any(
            self._heard(cycle, session).prompt_at is not None
            for session in self._new_sessions(cycle)
        )

    def _heard(self, cycle: Cycle, session: Session | None = None) -> evidence.Heard:
        path = session.path if session else self.place(cycle).path
        name = session.session_id if session else cycle.session_id
        marker = os.path.basename(cycle.file)
        since = max(cycle.began_at, cycle.stale_before)
        return evidence.look(cycle.agent, path, name, marker, since)

    def _of_records(self, cycle: Cycle) -> list[AnyFact]:
        facts: list[AnyFact] = []
        heard = self._heard(cycle)
        if heard.prompt_at is not None and not cycle.is_heard:
            facts.append(Heard("request"))
        # Asked by its hook, the session has no such prompt.
        asked_at = heard.prompt_at or (cycle.asked_at if cycle.is_heard else None)
        if asked_at is not None and (heard.spoken_at or 0.0) > asked_at:
            facts.append(UserSpoke())
        return facts

    def _new_sessions(self, cycle: Cycle) -> list[Session]:
        """Those that may have come after the one that is handed over: in the same process, or begun
        in the same folder since."""
        seat = self.place(cycle).seat
        pid = seat.pid if seat else 0
        with self.world.lock:
            everyone = [kept.session for kept in self.world.kept.values()]
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

    def cleared_to(self, cycle: Cycle) -> str:
        """The session that the same process has gone over to; "" if it has not."""
        seat = self.place(cycle).seat
        for session in self._new_sessions(cycle):
            # Which session is whose is a guess with some agents: a new one is another's never.
            is_new = (session.started_at or 0) >= cycle.began_at
            is_sure = session.process is not None and session.process.certain
            if seat and _is_behind(session, seat.pid) and (is_new or is_sure):
                return session.session_id
        return ""

    def _of_new_session(self, cycle: Cycle) -> list[AnyFact]:
        seat = self.place(cycle).seat
        for session in self._new_sessions(cycle):
            heard = self._heard(cycle, session)
            if heard.prompt_at is not None:
                facts: list[AnyFact] = [Cleared(session.session_id), Heard("resume")]
                if session.reading is not None:
                    facts.append(Used(session.reading.used_tokens))
                facts += [ReadFile()] if heard.read_at is not None else []
                return facts + ([WentOn()] if heard.went_on else [])
            is_its = seat is not None and _is_behind(session, seat.pid)
            if is_its and (heard.spoken_at or 0.0) > (cycle.cleared_at or float("inf")):
                return [UserSpoke()]
        return []

    # The terminal

    def _of_screen(self, cycle: Cycle) -> list[AnyFact]:
        seen = self.look(cycle)
        if isinstance(seen, Refused):
            self._idle.pop(cycle.id, None)
            if seen.why == "gone":
                return [Gone(seen.detail)]
            return [Blocked(seen.detail or _REFUSED.get(seen.why, seen.why))]
        if cycle.step is Step.CLEARING:
            return [Cleared("")] if cycle.is_typed and seen.is_fresh else []
        is_sent = False
        if seen.state in ("idle", "busy") and not seen.draft:
            is_sent = self._drafts.pop(cycle.id, None) is not None
        if seen.state != "idle":
            self._idle.pop(cycle.id, None)
            if seen.state == "busy":
                return [Busy(is_new=is_sent)]
            why = _SHOWN.get(seen.state, "what it shows is not understood")
            return [] if seen.is_harmless else [Blocked(why)]
        # Between two tools some show a prompt for a moment.
        now = self.world.clock.awake()
        terminal = self.terminal(cycle)
        if now - self._idle.setdefault(cycle.id, now) < (terminal.steady_s if terminal else 0.0):
            return []
        if seen.draft and not self.is_draft_old(cycle):
            return []
        return [Ready()]

    def is_harmless(self, cycle: Cycle) -> bool:
        """Whether a dialog is shown that may be closed."""
        if cycle.step not in (Step.WAITING, Step.WRITTEN, Step.CLEARED):
            return False
        seen = self.look(cycle)
        return not isinstance(seen, Refused) and seen.state == "dialog" and seen.is_harmless

    def is_fresh(self, cycle: Cycle) -> bool:
        """Whether its terminal shows an empty session."""
        seen = self.look(cycle)
        return not isinstance(seen, Refused) and seen.state == "idle" and seen.is_fresh

    def is_draft_old(self, cycle: Cycle) -> bool:
        """Whether the user's draft has been in the way for so long that it is kept and restored."""
        now = self.world.clock.now()
        return now - self._drafts.setdefault(cycle.id, now) >= self.policy(cycle).draft_wait_s

    def is_idle(self, cycle: Cycle) -> bool:
        """Whether it stood at its prompt when it was last looked at: there is no turn that takes
        too long. What is waited for then is the user, and that has its own end."""
        waits = cycle.step in (Step.WAITING, Step.WRITTEN, Step.CLEARED)
        return waits and cycle.id in self._idle

    def keeps_draft(self, cycle: Cycle) -> bool:
        """Whether a draft is in the way that has been waited for."""
        return cycle.id in self._drafts and self.is_draft_old(cycle)

    def typed(self, cycle: Cycle) -> None:
        """What was in the way is not any more."""
        self._drafts.pop(cycle.id, None)

    def policy(self, cycle: Cycle) -> Policy:
        """The rules for its session."""
        kept = self.world.kept.get((cycle.agent, cycle.session_id))
        model = kept.session.model if kept else ""
        return self.world.rules.policy(cycle.agent, model, cycle.cwd)


_REFUSED = {
    "copy_mode": "its pane is scrolled back (copy mode)",
    "not_in_front": "it is stopped, or another program is before it",
}
_SHOWN = {
    "dialog": "a question of the agent's is open, and yours to answer",
    "starting": "it shows no prompt",
}


def is_rule_made(text: str) -> bool:
    """Whether segue wrote the whole of a document."""
    front, end, _ = text.partition("\n---\n")
    return bool(end) and 'made_by: "segue"' in front.splitlines()


def _is_behind(session: Session, pid: int) -> bool:
    return session.process is not None and session.process.pid == pid
