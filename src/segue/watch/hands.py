"""The one thread that touches terminals: it carries handoffs through their steps.

Each fact and what it led to is in the log before anything is done about it. A daemon that is killed
leaves the next one to look what was done: what the transcript shows is not typed again.
"""

import os
import queue
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from segue.core import cycle as machine
from segue.core import handoff as documents
from segue.core.handing import (
    AnyAct,
    AnyFact,
    AskUser,
    Busy,
    Cancel,
    Cleared,
    Cycle,
    Done,
    FileSeen,
    Gone,
    Heard,
    Interrupt,
    NotTyped,
    NotWritten,
    OwnWritten,
    Planned,
    ReadFile,
    Ready,
    Record,
    Retry,
    Step,
    TimeUp,
    Type,
    Typed,
    Used,
    UserSpoke,
    WentOn,
    What,
    WriteOwn,
)
from segue.core.policy import Policy
from segue.core.reading import Zone
from segue.core.session import Session
from segue.errors import SegueError
from segue.io import handoffs
from segue.io.typist import Refused
from segue.transcripts import evidence
from segue.transcripts.handoffs import own_document, read_document
from segue.watch.world import Kept, World, label

LOOK_S = 0.5
"""How often a handoff that is under way is looked at."""
STABLE_S = 1.0
"""A document that has not changed for so long is whole, if it reads so."""
COMPACTED = 0.9
"""A session that holds less than this part of what it held was compacted."""
BY_USER = "by_user"
"""Among a cycle's tries: the user asked for it, whatever the zone."""
_LASTING = ("gone", "unknown")


class Hands:
    """All handoffs. `begin`, `tell`, `do` and `cycles` are for any thread; the work is done in one
    of its own."""

    def __init__(self, world: World, *, look_s: float = LOOK_S) -> None:
        self.world = world
        self.cycles: dict[str, Cycle] = {}
        self._look_s = look_s
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._bell = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="hands", daemon=True)
        self._files: dict[str, tuple[int, int, float]] = {}  # size, time, since when
        self._drafts: dict[str, float] = {}  # since when a draft is in the way
        self._idle: dict[str, float] = {}  # since when a prompt is shown
        self._by_hook: set[str] = set()  # those whose session was asked by its own hook

    # For any thread

    def start(self) -> None:
        """Goes on with what a former daemon left, too."""
        self._restore()
        self._thread.start()

    def stop(self) -> None:
        """Ends after what is being typed just now."""
        self._stopped = True
        self._bell.set()
        if self._thread.is_alive():
            self._thread.join(timeout=20)

    def do(self, job: Callable[[], None]) -> None:
        """Does something that needs a terminal, in its turn."""
        self._jobs.put(job)
        self._bell.set()

    def of(self, session: Session) -> Cycle | None:
        """The handoff of a session that is not over."""
        return next(
            (
                cycle
                for cycle in list(self.cycles.values())
                if cycle.agent == session.agent
                and session.session_id in (cycle.session_id, cycle.new_session_id)
                and not cycle.step.is_final
            ),
            None,
        )

    @property
    def active(self) -> int:
        """How many are under way."""
        return sum(cycle.step.is_active for cycle in list(self.cycles.values()))

    def begin(self, kept: Kept, *, by_user: bool = False, own: bool = False) -> Cycle:
        """Plans a handoff. `own`: the session cannot be asked any more; segue writes the document.
        Raises SegueError if there is no place for it."""
        world, session = self.world, kept.session
        policy = world.policy(session)
        now = world.clock.now()
        name = f"h-{secrets.token_hex(4)}"
        folder = handoffs.folder_of(session.cwd, policy.handoff_folder)
        reading, ahead = session.reading, session.forecast
        cycle = Cycle(
            id=name,
            agent=session.agent,
            session_id=session.session_id,
            project=session.cwd,
            cwd=session.cwd,
            file=str(folder / documents.name(now, name)),
            began_at=now,
            step_at=now,
            used_tokens=reading.used_tokens if reading else 0,
            window_tokens=reading.window_tokens if reading else 0,
            limit_tokens=ahead.zones[Zone.HANDOFF].at_tokens if ahead else None,
            forced=True,
            zone_path=self._zones_of(session),
            tries={
                **({"request": machine.MOST_REQUESTS} if own else {}),
                **({BY_USER: 1} if by_user else {}),
            },
        )
        self._keep(cycle, Planned(forced=True))
        world.say(f"{label(session)}: handoff {cycle.id} begins at {cycle.fraction:.0%}")
        world.notices.tell("handoff", cycle.id, f"{label(session)}: handoff begins", cycle.file)
        self._bell.set()
        return cycle

    def tell(self, name: str, fact: AnyFact) -> None:
        """Something happened to a handoff; what follows is done by the thread."""
        self.do(lambda: self._tell(name, fact))

    # The thread

    def _work(self) -> None:
        while not self._stopped:
            self._bell.wait(self._look_s if self.active else 60.0)
            self._bell.clear()
            while not self._stopped:
                try:
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    break
                self._safely(job)
            for name in list(self.cycles):
                if not self._stopped and name in self.cycles:
                    self._safely(lambda name=name: self._attend(name))  # type: ignore[misc]

    def _safely(self, job: Callable[[], None]) -> None:
        """No fault of one terminal may end the watch over all others."""
        try:
            job()
        except SegueError as fault:
            self.world.say(str(fault))
        except Exception as fault:
            self.world.note("daemon", None, {"fault": f"{type(fault).__name__}: {fault}"})
            self.world.say(f"a fault of segue's own: {type(fault).__name__}: {fault}")

    def _tell(self, name: str, fact: AnyFact) -> None:
        cycle = self.cycles.get(name)
        if cycle is None:
            return
        policy = self._policy(cycle)
        after, acts = machine.step(cycle, fact, policy, self.world.clock.now())
        if after == cycle and not acts:
            return
        self._keep(after, fact)
        if after.step is not cycle.step:
            why = f": {after.why}" if after.why else ""
            self.world.say(f"handoff {name}: {after.step.value}{why}")
        for act in acts:
            self._carry(after, act)
        if after.step.is_final:
            self.cycles.pop(name, None)

    def _forget(self, name: str) -> None:
        for kept in (self._files, self._drafts, self._idle):
            kept.pop(name, None)
        self._by_hook.discard(name)

    def _keep(self, cycle: Cycle, fact: AnyFact) -> None:
        data = {
            "id": cycle.id,
            "fact": msgspec.to_builtins(fact),
            "cycle": msgspec.to_builtins(cycle),
        }
        kept = self.world.kept.get((cycle.agent, cycle.session_id))
        self.world.note("handoff", kept.session if kept else None, data)
        self.cycles[cycle.id] = cycle

    # Looking

    def _attend(self, name: str) -> None:
        """Tells all that can be seen of a handoff just now."""
        cycle = self.cycles[name]
        if not cycle.step.is_active:
            return
        kept = self.world.kept.get((cycle.agent, cycle.session_id))
        if kept is None or kept.seat is None or kept.terminal is None:
            self._tell(name, Gone("it sits in no terminal"))
            return
        for fact in self._facts(cycle, kept):
            self._tell(name, fact)
            if self.cycles.get(name) is None:
                return
        self._tell(name, TimeUp())

    def _facts(self, cycle: Cycle, kept: Kept) -> list[AnyFact]:
        facts: list[AnyFact] = []
        if reading := kept.session.reading:
            zone = kept.session.zone
            facts.append(Used(reading.used_tokens, zone.value if zone else ""))
            shrunk = reading.fraction < cycle.fraction * COMPACTED and zone is not Zone.HANDOFF
            if cycle.step is Step.WAITING and shrunk and not cycle.tries.get(BY_USER):
                return [Cancel("the agent compacted its context by itself")]
        if cycle.step in (Step.ASKED, Step.WRITTEN, Step.WAITING):
            facts += self._of_file(cycle)
        if cycle.step in (Step.ASKED, Step.WRITTEN):
            heard = self._heard(cycle, kept.session)
            if heard.prompt_at is not None and not cycle.is_heard:
                facts.append(Heard("request"))
            if (heard.spoken_at or 0.0) > (heard.prompt_at or self.world.clock.now()):
                facts.append(UserSpoke())
        if cycle.step in (Step.CLEARING, Step.WRITTEN) and (new := self._cleared_to(cycle, kept)):
            facts.append(Cleared(new))
        if cycle.step in (Step.RESUMING, Step.RESUMED):
            facts += self._of_new_session(cycle, kept)
        if cycle.step in (Step.WAITING, Step.WRITTEN, Step.CLEARED, Step.CLEARING):
            facts += self._of_screen(cycle, kept)
        elif cycle.step in (Step.ASKED, Step.RESUMED):
            facts += self._of_seat(kept)
        return facts

    def _of_screen(self, cycle: Cycle, kept: Kept) -> list[AnyFact]:
        seen = self.world.look(kept)
        if isinstance(seen, Refused):
            return [Gone(seen.detail)] if seen.why == "gone" else []
        if cycle.step is Step.CLEARING:
            return [Cleared("")] if cycle.is_typed and seen.is_fresh else []
        if seen.state != "idle":
            self._idle.pop(cycle.id, None)
            if seen.is_harmless and kept.seat and kept.terminal:
                self.world.typist.press(kept.seat, kept.terminal, kept.terminal.dismiss)
            return [Busy()] if seen.state == "busy" else []
        # Between two tools some show a prompt for a moment.
        since = self._idle.setdefault(cycle.id, self.world.clock.awake())
        if kept.terminal and self.world.clock.awake() - since < kept.terminal.steady_s:
            return []
        if seen.draft and not self._draft_waited(cycle):
            return []
        return [Ready()]

    def _of_seat(self, kept: Kept) -> list[AnyFact]:
        seen = self.world.look(kept)
        return [Gone(seen.detail)] if isinstance(seen, Refused) and seen.why == "gone" else []

    def _draft_waited(self, cycle: Cycle) -> bool:
        """Whether the user's draft has been in the way for so long that it is kept and restored."""
        since = self._drafts.setdefault(cycle.id, self.world.clock.now())
        return self.world.clock.now() - since >= self._policy(cycle).draft_wait_s

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
        text, why = read_document(cycle.file, project=cycle.cwd)
        why = why or documents.check(text)
        return [FileSeen(ok=not why, why=why, bytes=size, changed_at=found.st_mtime)]

    def _was_heard(self, cycle: Cycle, what: What) -> bool:
        if what == "request":
            kept = self.world.kept.get((cycle.agent, cycle.session_id))
            return kept is not None and self._heard(cycle, kept.session).prompt_at is not None
        return any(
            self._heard(cycle, session).prompt_at is not None
            for session in self._new_sessions(cycle)
        )

    def _heard(self, cycle: Cycle, session: Session) -> evidence.Heard:
        marker = os.path.basename(cycle.file)
        since = max(cycle.began_at, cycle.stale_before)
        return evidence.look(session.agent, session.path, session.session_id, marker, since)

    def _new_sessions(self, cycle: Cycle) -> list[Session]:
        """Those that may have come after the one that is handed over: in the same process, or begun
        in the same folder since."""
        old = self.world.kept.get((cycle.agent, cycle.session_id))
        pid = old.seat.pid if old and old.seat else 0
        with self.world.lock:
            everyone = [kept.session for kept in self.world.kept.values()]
        return [
            session
            for session in everyone
            if session.agent == cycle.agent
            and session.session_id != cycle.session_id
            and (
                (session.process is not None and session.process.pid == pid)
                or (session.cwd == cycle.cwd and (session.started_at or 0) >= cycle.began_at)
            )
        ]

    def _cleared_to(self, cycle: Cycle, kept: Kept) -> str:
        """The session that the same process has gone over to; "" if it has not."""
        pid = kept.seat.pid if kept.seat else 0
        for session in self._new_sessions(cycle):
            if session.process is not None and session.process.pid == pid:
                return session.session_id
        return ""

    def _of_new_session(self, cycle: Cycle, kept: Kept) -> list[AnyFact]:
        facts: list[AnyFact] = []
        for session in self._new_sessions(cycle):
            heard = self._heard(cycle, session)
            if heard.prompt_at is None:
                continue
            facts += [Cleared(session.session_id), Heard("resume")]
            facts += [ReadFile()] if heard.read_at is not None else []
            facts += [WentOn()] if heard.went_on else []
            break
        return facts

    # Doing

    def _carry(self, cycle: Cycle, act: AnyAct) -> None:
        match act:
            case Type():
                self._tell(cycle.id, self._type(cycle, act.what))
            case Interrupt():
                kept = self.world.kept.get((cycle.agent, cycle.session_id))
                if kept and kept.seat and kept.terminal:
                    self.world.typist.press(kept.seat, kept.terminal, kept.terminal.interrupt)
            case WriteOwn():
                self._tell(cycle.id, self._write_own(cycle))
            case AskUser():
                self.world.say(f"handoff {cycle.id} needs you: {act.why}")
                self.world.notices.tell(
                    "needs_you", cycle.id, f"handoff {cycle.id} needs you", act.why
                )
            case Record():
                self._record(cycle, act)
            case Done():
                self._forget(cycle.id)

    def _type(self, cycle: Cycle, what: What) -> AnyFact:
        """Types it, unless it is seen to have been typed."""
        kept = self.world.kept.get((cycle.agent, cycle.session_id))
        if kept is None or kept.seat is None or kept.terminal is None:
            return NotTyped(what, "it sits in no terminal", retry=False)
        seat, terminal = kept.seat, kept.terminal
        if what == "clear":
            if self._cleared_to(cycle, kept):
                return Typed(what)
            if why := self._finish_document(cycle):
                return FileSeen(ok=False, why=why)
        elif (what == "request" and cycle.id in self._by_hook) or self._was_heard(cycle, what):
            return Heard(what)
        text = terminal.clear if what == "clear" else self._text(cycle, kept, what)
        refused = self.world.typist.type(
            seat,
            terminal,
            text,
            landed=lambda: self._landed(cycle, kept, what),
            keep_draft=self._draft_waited(cycle) if cycle.id in self._drafts else False,
        )
        if refused is None:
            self._drafts.pop(cycle.id, None)
            return Typed(what)
        return NotTyped(what, refused.detail or refused.why, retry=refused.why not in _LASTING)

    def _landed(self, cycle: Cycle, kept: Kept, what: What) -> bool:
        if what != "clear":
            return self._was_heard(cycle, what)
        if self._cleared_to(cycle, kept):
            return True
        seen = self.world.look(kept)
        return not isinstance(seen, Refused) and seen.is_fresh

    def _text(self, cycle: Cycle, kept: Kept, what: What) -> str:
        messages = self.world.rules.messages(cycle.cwd)
        if what == "request":
            reading = kept.session.reading
            percent = reading.percent if reading else cycle.fraction * 100
            return messages.handoff_request(percent=percent, file=cycle.file)
        cut = any(key.startswith("interrupt") for key in cycle.tries)
        return messages.handoff_resume(file=cycle.file, call_in_doubt="" if cut else None)

    def _finish_document(self, cycle: Cycle) -> str:
        """Adds what segue knows to the session's document, and reads it once more: why it is not
        valid, or "". The context is cleared in the same breath, or not at all."""
        text, why = read_document(cycle.file, project=cycle.cwd)
        if why or (why := documents.check(text)):
            return why
        kept = self.world.kept[cycle.agent, cycle.session_id]
        whole = documents.complete(text, own_document(**self._known(cycle, kept)))
        if whole != text:
            path = Path(cycle.file)
            handoffs.write(path.parent, path.name, whole)
            text, why = read_document(cycle.file, project=cycle.cwd)
            return why or documents.check(text)
        return ""

    def _write_own(self, cycle: Cycle) -> AnyFact:
        text, why = read_document(cycle.file, project=cycle.cwd)
        if not why and not documents.check(text):
            return FileSeen(ok=True, bytes=len(text.encode()), stable=True)
        kept = self.world.kept.get((cycle.agent, cycle.session_id))
        if kept is None:
            return NotWritten("the session is not known any more")
        try:
            text = own_document(**self._known(cycle, kept))
            path = Path(cycle.file)
            handoffs.write(path.parent, path.name, text)
        except (SegueError, OSError) as fault:
            return NotWritten(str(fault))
        return OwnWritten(len(text.encode()))

    def _known(self, cycle: Cycle, kept: Kept) -> dict[str, Any]:
        return {
            "agent": cycle.agent,
            "path": kept.session.path,
            "session_id": cycle.session_id,
            "cwd": cycle.cwd,
            "id": cycle.id,
            "at": self.world.clock.now(),
            "percent": cycle.fraction * 100,
            "env": self.world.env,
        }

    def _record(self, cycle: Cycle, act: Record) -> None:
        kept = self.world.kept.get((cycle.agent, cycle.session_id))
        session = kept.session if kept else None
        self.world.note("metrics", session, {"id": cycle.id, **msgspec.to_builtins(act.metrics)})
        what = f"handoff {cycle.id}: {cycle.step.value} in {act.metrics.duration_s:.0f} s"
        self.world.notices.tell("handoff", f"{cycle.id}:end", what, cycle.why)

    # Kept

    def _restore(self) -> None:
        latest: dict[str, dict[str, Any]] = {}
        seq = 0
        while notes := self.world.log.since(seq, ("handoff",)):
            for note in notes:
                seq = note.seq
                if isinstance(note.data.get("cycle"), dict):
                    latest[str(note.data.get("id"))] = note.data["cycle"]
        for data in latest.values():
            with suppress(msgspec.ValidationError):
                cycle = msgspec.convert(data, Cycle)
                if not cycle.step.is_final:
                    self.cycles[cycle.id] = cycle
                    self.do(lambda cycle=cycle: self._again(cycle))  # type: ignore[misc]

    def _again(self, cycle: Cycle) -> None:
        for act in machine.acts_again(cycle):
            self._carry(cycle, act)

    def _policy(self, cycle: Cycle) -> Policy:
        kept = self.world.kept.get((cycle.agent, cycle.session_id))
        model = kept.session.model if kept else ""
        return self.world.rules.policy(cycle.agent, model, cycle.cwd)

    def _zones_of(self, session: Session) -> tuple[str, ...]:
        notes = self.world.log.of(session.agent, session.session_id, ("crossing",))
        return tuple(str(note.data.get("zone", "")) for note in notes)[-16:]

    # What the user says

    def retry(self, cycle: Cycle) -> None:
        """Goes on with one that waits for the user."""
        self.tell(cycle.id, Retry())

    def cancel(self, cycle: Cycle) -> None:
        """Ends it; what is typed already stays."""
        self.tell(cycle.id, Cancel())

    def asked_by_hook(self, cycle: Cycle) -> None:
        """The session was asked for its document by its own hook, in the middle of its turn: there
        is nothing to be typed."""

        def asked() -> None:
            self._tell(cycle.id, Ready())
            self._tell(cycle.id, Heard("request"))

        self._by_hook.add(cycle.id)
        self.do(asked)
