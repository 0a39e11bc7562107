"""The one thread that touches terminals: it takes handoffs through their steps.

Each fact and its decisions are in the log before anything is done about them. After a daemon was
killed, the next one checks what was done: what the transcript shows is not typed again.

All in one file: all code that may type or write is next to the log that it writes to first.
"""

import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from segue.core.handoffs import document as documents
from segue.core.handoffs import machine
from segue.core.handoffs.machine.types import (
    AnyAct,
    AnyFact,
    AskUser,
    Busy,
    Cancel,
    Done,
    FileSeen,
    HandoffStep,
    Interrupt,
    KeyPressed,
    NotInterrupted,
    NotTyped,
    NotWritten,
    OwnWritten,
    Planned,
    PromptSeen,
    Ready,
    RecordFigures,
    RetryRequested,
    TerminalHandoff,
    TimeUp,
    TurnInterrupted,
    Typed,
    TypeText,
    What,
    WriteOwn,
)
from segue.core.secrets.redact import redact
from segue.core.sessions.types import Session
from segue.errors import SegueError, in_words
from segue.system.files.changes import Notifier
from segue.system.tmux.typist import TypingRefused
from segue.watch.handoffs.observer import HandoffObserver, is_rule_made, project_of
from segue.watch.observe.wakeup import Wakeup
from segue.watch.state import DaemonState, TrackedSession, label

LOOK_S = 0.5
"""How often a handoff in progress is checked."""
SLOW_S = 2.0
"""The same for those that wait for the user."""
_LASTING = ("gone", "unknown")


class HandoffWorker:
    """All handoffs. Any thread may call `begin`, `tell`, `do` and `cycles`; the work is done in one
    separate thread."""

    def __init__(self, state: DaemonState, *, look_s: float = LOOK_S) -> None:
        self.state = state
        self.observer = HandoffObserver(state)
        self.cycles: dict[str, TerminalHandoff] = {}
        self._look_s = look_s
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._bell: Wakeup | None = None
        self._events: Notifier | None = None  # files of the awaited documents, and of the records
        self.nudge: Callable[[str, str, str], None] = lambda agent, session_id, path: None
        self.on_end: Callable[[TerminalHandoff], None] = lambda cycle: None
        """Called when a waiting session has written something: it must be measured at once."""
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="hands", daemon=True)
        self._by_hook: set[str] = set()  # those whose session was asked by its own hook

    # For any thread

    def start(self) -> None:
        """Starts, and continues what a previous daemon left."""
        self._bell, self._events = Wakeup(), Notifier()
        self.restore()
        self._thread.start()

    def stop(self) -> None:
        """Ends after the current typing."""
        self._stopped = True
        self._ring()
        if self._thread.is_alive():
            self._thread.join(timeout=20)
        for each in (self._bell, self._events):
            if each is not None and not self._thread.is_alive():
                each.close()

    def do(self, job: Callable[[], None]) -> None:
        """Queues work that needs a terminal."""
        self._jobs.put(job)
        self._ring()

    def of(self, session: Session) -> TerminalHandoff | None:
        """The unfinished handoff of a session."""
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
        """How many are in progress."""
        return sum(cycle.step.is_active for cycle in list(self.cycles.values()))

    def begin(
        self, tracked: TrackedSession, *, by_user: bool = False, own: bool = False
    ) -> TerminalHandoff:
        """Plans a handoff. `own`: the session can no longer be asked, so segue writes the
        document. Raises SegueError if no agent has the session open, or there is no place for
        the document."""
        state, session = self.state, tracked.session
        if session.process is None:  # its pane may belong to another session by now
            raise SegueError(f"{label(session)} cannot be handed over: no agent has it open")
        policy = state.policy(session)
        now = state.clock.now()
        name = state.new_id("h")
        folder = state.documents.folder(session.cwd, policy.handoff_folder)
        reading = session.reading
        cycle = TerminalHandoff(
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
            limit_tokens=session.enforced_tokens,
            by_user=by_user,
            cannot_be_asked=own,
            zone_path=self._zones_of(session),
            owes=own,
        )
        self._keep(cycle, Planned())
        with suppress(OSError):  # otherwise it is reported when the document cannot be written
            state.documents.prepare(folder)
        self._await(cycle)
        state.say(f"{label(session)}: handoff {cycle.id} begins at {cycle.fraction:.0%}")
        state.notices.tell("handoff", cycle.id, f"{label(session)}: handoff begins", cycle.file)
        self._ring()
        return cycle

    def _await(self, cycle: TerminalHandoff) -> None:
        """File events report its document, and the end of a tool, at once; without events they
        are polled."""
        for path in (cycle.file, *_records(self.observer.place(cycle).path)):
            if self._events is not None and os.path.isdir(os.path.dirname(path)):
                self._events.watch(path)

    def measured(self, session: Session) -> None:
        """The size of the session was measured again."""
        cycle = self.of(session)
        if cycle is not None and cycle.step is HandoffStep.WAITING:
            self._ring()

    def tell(self, name: str, fact: AnyFact) -> None:
        """Something happened to a handoff; the thread does what follows."""
        self.do(lambda: self._tell(name, fact))

    # The thread

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.ring()

    def _work(self) -> None:
        bell, events = self._bell, self._events
        if bell is None or events is None:
            return
        while not self._stopped:
            self.look_round()
            wait_s = self._look_s if self.active else SLOW_S if self.cycles else 60.0
            readable = [bell.fileno(), events.fileno()]
            self.state.clock.wait([file for file in readable if file is not None], wait_s)
            bell.hush()
            self._tell_of(events.drain())

    def _tell_of(self, paths: set[str]) -> None:
        """What a turn adds to a waiting session is known before the next turn begins."""
        for cycle in list(self.cycles.values()):
            path = self.observer.place(cycle).path
            if cycle.step is HandoffStep.WAITING and not paths.isdisjoint(_records(path)):
                self.nudge(cycle.agent, cycle.session_id, path)

    def look_round(self) -> None:
        """Does pending work, and looks at each handoff once. Only for the worker's thread."""
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
        """Contains errors: a problem with one terminal must not end the watch over all others."""
        try:
            job()
        except SegueError as fault:
            self.state.say(str(fault))
        except Exception as fault:
            self.state.note("daemon", None, {"fault": f"{type(fault).__name__}: {fault}"})
            self.state.say(f"internal error: {type(fault).__name__}: {fault}")

    def _tell(self, name: str, fact: AnyFact) -> None:
        cycle = self.cycles.get(name)
        if cycle is None:
            return
        policy = self.observer.policy(cycle)
        after, acts = machine.step(cycle, fact, policy, self.state.clock.now())
        if after == cycle and not acts:
            return
        self._keep(after, fact)
        if after.step is not cycle.step:
            why = f": {after.why}" if after.why else ""
            self.state.say(f"handoff {name}: {after.step.value}{why}")
        # whatever happens to its figures: the next daemon stores those, too
        if after.step.is_final:
            self.cycles.pop(name, None)
        for act in acts:
            self._carry(after, act)
        if after.step.is_final:
            tracked = self.state.tracked.get((after.agent, after.session_id))
            if tracked is not None and after.is_declined:
                tracked.is_declined = True

    def _forget(self, name: str) -> None:
        self.observer.forget(name)
        self._by_hook.discard(name)

    def _keep(self, cycle: TerminalHandoff, fact: AnyFact) -> None:
        data = {
            "id": cycle.id,
            "fact": msgspec.to_builtins(fact),
            "cycle": msgspec.to_builtins(cycle),
            "place": msgspec.to_builtins(self.observer.place(cycle)),
        }
        tracked = self.state.tracked.get((cycle.agent, cycle.session_id))
        self.state.note("handoff", tracked.session if tracked else None, data)
        self.cycles[cycle.id] = cycle

    # Looking

    def _attend(self, name: str) -> None:
        """Reports everything that can currently be seen of a handoff."""
        cycle = self.cycles[name]
        for fact in self.observer.facts(cycle):
            self._tell(name, fact)
            if self.cycles.get(name) is None:
                return
        if self.observer.is_harmless(cycle := self.cycles[name]):
            self._press(cycle, "dismiss")
        if not self.observer.is_idle(cycle):
            self._tell(name, TimeUp())

    # Doing

    def _carry(self, cycle: TerminalHandoff, act: AnyAct) -> None:
        match act:
            case TypeText():
                self._tell(cycle.id, self._type(cycle, act.what))
            case Interrupt():
                refused = self._press(cycle, "interrupt")
                why = (refused.detail or refused.why) if refused else ""
                self._tell(cycle.id, NotInterrupted(why) if refused else KeyPressed())
            case WriteOwn():
                self._tell(cycle.id, self._write_own(cycle))
            case AskUser():
                self.state.say(f"handoff {cycle.id} needs you: {act.why}")
                self.state.notices.tell(
                    "needs_you", cycle.id, f"handoff {cycle.id} needs you", act.why
                )
            case RecordFigures():
                self._record(cycle, act)
            case Done():
                self._forget(cycle.id)

    def _press(
        self, cycle: TerminalHandoff, what: Literal["interrupt", "dismiss"]
    ) -> TypingRefused | None:
        """Interrupts a running turn only: where a question is open, an interrupt would answer
        No."""
        seat, terminal = self.observer.place(cycle).seat, self.observer.terminal(cycle)
        if seat is None or terminal is None:
            return TypingRefused("gone", "it is not in a terminal")
        if what == "interrupt":
            return self.state.typist.press(seat, terminal, terminal.interrupt, states=("busy",))
        return self.state.typist.press(seat, terminal, terminal.dismiss, states=("dialog",))

    def _type(self, cycle: TerminalHandoff, what: What) -> AnyFact:
        """Types the text, unless it is already there."""
        seat, terminal = self.observer.place(cycle).seat, self.observer.terminal(cycle)
        if seat is None or terminal is None:
            return NotTyped(what, "it is not in a terminal", retry=False)
        if what != "request" and (stopped := self._interrupted(cycle)):
            return stopped
        if what == "clear":
            if self._landed(cycle, what):
                return Typed(what)
            if why := self._finish_document(cycle):
                self._tell(cycle.id, FileSeen(ok=False, why=why))
                return NotTyped(what, why)
        elif (what == "request" and cycle.id in self._by_hook) or self._landed(cycle, what):
            return PromptSeen(what)
        refused = self.state.typist.type(
            seat,
            terminal,
            terminal.clear if what == "clear" else self._text(cycle, what),
            landed=lambda: self._landed(cycle, what),
            keep_draft=self.observer.keeps_draft(cycle),
        )
        if refused is None:
            self.observer.forget_draft(cycle)
            return Typed(what)
        return NotTyped(what, refused.detail or refused.why, retry=refused.why not in _LASTING)

    def _interrupted(self, cycle: TerminalHandoff) -> TurnInterrupted | None:
        """Whether the user has stopped it since the last look: then nothing more is typed."""
        found = self.observer.latest(cycle)
        if found.turn != "interrupted":
            return None
        fact = TurnInterrupted(found.ended_at)
        policy, now = self.observer.policy(cycle), self.state.clock.now()
        after, _ = machine.step(cycle, fact, policy, now)
        return fact if after.step.is_final else None

    def _landed(self, cycle: TerminalHandoff, what: What) -> bool:
        if what != "clear":
            return self.observer.has_arrived(cycle, what)
        return bool(self.observer.cleared_to(cycle)) or self.observer.is_fresh(cycle)

    def _text(self, cycle: TerminalHandoff, what: What) -> str:
        """The text to type; always the same for the same step, so that segue recognises it in an
        input line."""
        messages = self.state.rules.messages(cycle.cwd)
        if what == "request":
            return messages.handoff_request(percent=round(cycle.fraction * 100, 1), file=cycle.file)
        in_doubt = "" if cycle.was_cut else None
        return messages.handoff_resume(file=cycle.file, call_in_doubt=in_doubt)

    def _finish_document(self, cycle: TerminalHandoff) -> str:
        """Adds what segue knows to the session's document, and reads it once more; returns why it
        is not valid, or "". The context is cleared immediately afterwards, or not at all."""
        text, why = self.state.documents.read(cycle.file, project=project_of(cycle))
        if why or (why := documents.check(text)):
            return why
        whole = redact(documents.complete(text, self.state.documents.own(**self._fields(cycle))))[0]
        if whole != text:
            path = Path(cycle.file)
            self.state.documents.write(self._folder(cycle), path.name, whole)
            text, why = self.state.documents.read(cycle.file, project=project_of(cycle))
            return why or documents.check(text)
        return ""

    def _write_own(self, cycle: TerminalHandoff) -> AnyFact:
        text, why = self.state.documents.read(cycle.file, project=project_of(cycle))
        if not why and not documents.check(text) and not self._is_old(cycle):
            return FileSeen(ok=True, bytes=len(text.encode()), by_segue=is_rule_made(text))
        try:
            text = self.state.documents.own(**self._fields(cycle))
            path = Path(cycle.file)
            self.state.documents.write(self._folder(cycle), path.name, text)
        except (SegueError, OSError) as fault:
            return NotWritten(in_words(fault))
        return OwnWritten(len(text.encode()))

    def _is_old(self, cycle: TerminalHandoff) -> bool:
        """Whether the file was written before the session continued. Once the context is cleared,
        there can be no newer one."""
        found = self.state.documents.state(cycle.file)
        if found is None:
            return True
        return not cycle.is_cleared and found.changed_at < cycle.stale_before

    def _folder(self, cycle: TerminalHandoff) -> Path:
        """Where its document goes; determined each time, because a link may lead out of the project
        by now."""
        return self.state.documents.folder(cycle.cwd, self.observer.policy(cycle).handoff_folder)

    def _fields(self, cycle: TerminalHandoff) -> dict[str, Any]:
        path = self.observer.place(cycle).path
        return {
            "agent": cycle.agent,
            "path": path,
            "earlier": self.state.predecessors(cycle.agent, cycle.session_id, path, cycle.cwd),
            "session_id": cycle.session_id,
            "cwd": cycle.cwd,
            "id": cycle.id,
            "at": self.state.clock.now(),
            "percent": cycle.fraction * 100,
            "env": self.state.env,
        }

    def _record(self, cycle: TerminalHandoff, act: RecordFigures) -> None:
        tracked = self.state.tracked.get((cycle.agent, cycle.session_id))
        session = tracked.session if tracked else None
        self.state.note("metrics", session, {"id": cycle.id, **msgspec.to_builtins(act.metrics)})
        what = f"handoff {cycle.id}: {cycle.step.value} in {act.metrics.duration_s:.0f} s"
        self.state.notices.tell("handoff", f"{cycle.id}:end", what, cycle.why)
        self.on_end(cycle)

    # Stored

    def restore(self) -> None:
        """Continues what a previous daemon left."""
        latest: dict[str, dict[str, Any]] = {}
        recorded: set[str] = set()
        seq = 0
        while notes := self.state.log.since(seq, ("handoff", "metrics")):
            for note in notes:
                seq, name = note.seq, str(note.data.get("id"))
                if note.kind == "metrics":
                    recorded.add(name)
                else:
                    latest[name] = note.data
        for name, data in latest.items():
            with suppress(msgspec.ValidationError):
                cycle = msgspec.convert(data.get("cycle"), TerminalHandoff)
                if cycle.step.is_final:
                    if name not in recorded:  # killed just there
                        self._record(cycle, RecordFigures(machine.metrics(cycle, cycle.step_at)))
                else:
                    self.observer.restore(cycle.id, data.get("place"))
                    self.cycles[cycle.id] = cycle
                    self._await(cycle)
                    self.do(lambda cycle=cycle: self._again(cycle))  # type: ignore[misc]

    def _again(self, cycle: TerminalHandoff) -> None:
        for act in machine.acts_again(cycle):
            self._carry(cycle, act)

    def _zones_of(self, session: Session) -> tuple[str, ...]:
        notes = self.state.log.of(session.agent, session.session_id, ("crossing",))
        return tuple(str(note.data.get("zone", "")) for note in notes)[-16:]

    # What the user says

    def retry(self, cycle: TerminalHandoff) -> None:
        """Continues a handoff that waits for the user."""
        self.tell(cycle.id, RetryRequested())

    def cancel(self, cycle: TerminalHandoff) -> None:
        """Ends a handoff. Text that was already typed stays."""
        self.tell(cycle.id, Cancel())

    def drop(self, cycle: TerminalHandoff, why: str) -> None:
        """Ends a handoff that waits for the user, at once. Only for the worker's thread."""
        self._tell(cycle.id, Cancel(why))

    def asked_by_hook(self, cycle: TerminalHandoff) -> None:
        """The session's own hook asked it for its document in the middle of its turn: nothing
        has to be typed."""

        def asked() -> None:
            self._tell(cycle.id, Busy())
            self._tell(cycle.id, Ready())
            self._tell(cycle.id, PromptSeen("request"))
            self._by_hook.discard(cycle.id)  # another request would have to be typed

        self._by_hook.add(cycle.id)
        self.do(asked)


def _records(path: str) -> tuple[str, ...]:
    """The files that change when something is added to a session's file, or to a database."""
    return (path, f"{path}-wal") if path else ()
