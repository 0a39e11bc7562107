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
from typing import Any, Literal

import msgspec

from segue.core import cycle as machine
from segue.core import handoff as documents
from segue.core.handing import (
    AnyAct,
    AnyFact,
    AskUser,
    Cancel,
    Cycle,
    Done,
    FileSeen,
    Heard,
    Interrupt,
    NotTyped,
    NotWritten,
    OwnWritten,
    Planned,
    Ready,
    Record,
    Retry,
    TimeUp,
    Type,
    Typed,
    What,
    WriteOwn,
)
from segue.core.reading import Zone
from segue.core.session import Session
from segue.errors import SegueError
from segue.io import handoffs
from segue.io.notify import Notifier
from segue.transcripts.handoffs import own_document, read_document
from segue.watch.bell import Bell
from segue.watch.seen import Seen, is_rule_made, project_of
from segue.watch.world import Kept, World, label

LOOK_S = 0.5
"""How often a handoff that is under way is looked at."""
SLOW_S = 2.0
"""The same of those that wait for the user."""
_LASTING = ("gone", "unknown")


class Hands:
    """All handoffs. `begin`, `tell`, `do` and `cycles` are for any thread; the work is done in one
    of its own."""

    def __init__(self, world: World, *, look_s: float = LOOK_S) -> None:
        self.world = world
        self.seen = Seen(world)
        self.cycles: dict[str, Cycle] = {}
        self._look_s = look_s
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._bell: Bell | None = None
        self._events: Notifier | None = None  # of the documents that are awaited
        self._stopped = False
        self._thread = threading.Thread(target=self._work, name="hands", daemon=True)
        self._by_hook: set[str] = set()  # those whose session was asked by its own hook

    # For any thread

    def start(self) -> None:
        """Goes on with what a former daemon left, too."""
        self._bell, self._events = Bell(), Notifier()
        self.restore()
        self._thread.start()

    def stop(self) -> None:
        """Ends after what is being typed just now."""
        self._stopped = True
        self._ring()
        if self._thread.is_alive():
            self._thread.join(timeout=20)
        for each in (self._bell, self._events):
            if each is not None and not self._thread.is_alive():
                each.close()

    def do(self, job: Callable[[], None]) -> None:
        """Does something that needs a terminal, in its turn."""
        self._jobs.put(job)
        self._ring()

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
        Raises SegueError if there is no agent behind the session, or no place for the document."""
        world, session = self.world, kept.session
        if session.process is None:  # its seat may be another session's by now
            raise SegueError(f"{label(session)} cannot be handed over: no agent is behind it")
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
                **({machine.BY_USER: 1} if by_user else {}),
            },
        )
        self._keep(cycle, Planned(forced=True))
        with suppress(OSError):  # else it is said when the document cannot be written
            handoffs.prepare(folder)
        self._await(cycle)
        world.say(f"{label(session)}: handoff {cycle.id} begins at {cycle.fraction:.0%}")
        world.notices.tell("handoff", cycle.id, f"{label(session)}: handoff begins", cycle.file)
        self._ring()
        return cycle

    def _await(self, cycle: Cycle) -> None:
        """An event tells of its document at once; without one it is looked for now and then."""
        if self._events is not None and os.path.isdir(os.path.dirname(cycle.file)):
            self._events.watch(cycle.file)

    def tell(self, name: str, fact: AnyFact) -> None:
        """Something happened to a handoff; what follows is done by the thread."""
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
            told = [bell.fileno(), events.fileno()]
            self.world.clock.wait([file for file in told if file is not None], wait_s)
            bell.hush()
            events.drain()

    def look_round(self) -> None:
        """Does what is waiting to be done, and looks at each handoff once. The thread's own."""
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
        policy = self.seen.policy(cycle)
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
        self.seen.forget(name)
        self._by_hook.discard(name)

    def _keep(self, cycle: Cycle, fact: AnyFact) -> None:
        data = {
            "id": cycle.id,
            "fact": msgspec.to_builtins(fact),
            "cycle": msgspec.to_builtins(cycle),
            "place": msgspec.to_builtins(self.seen.place(cycle)),
        }
        kept = self.world.kept.get((cycle.agent, cycle.session_id))
        self.world.note("handoff", kept.session if kept else None, data)
        self.cycles[cycle.id] = cycle

    # Looking

    def _attend(self, name: str) -> None:
        """Tells all that can be seen of a handoff just now."""
        cycle = self.cycles[name]
        for fact in self.seen.facts(cycle):
            self._tell(name, fact)
            if self.cycles.get(name) is None:
                return
        if self.seen.is_harmless(cycle := self.cycles[name]):
            self._press(cycle, "dismiss")
        if not self.seen.is_idle(cycle):
            self._tell(name, TimeUp())

    # Doing

    def _carry(self, cycle: Cycle, act: AnyAct) -> None:
        match act:
            case Type():
                self._tell(cycle.id, self._type(cycle, act.what))
            case Interrupt():
                self._press(cycle, "interrupt")
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

    def _press(self, cycle: Cycle, what: Literal["interrupt", "dismiss"]) -> None:
        """An interrupt answers No where a question is open: only a turn that runs is ended."""
        seat, terminal = self.seen.place(cycle).seat, self.seen.terminal(cycle)
        if seat is None or terminal is None:
            return
        if what == "interrupt":
            self.world.typist.press(seat, terminal, terminal.interrupt, states=("busy",))
        else:
            self.world.typist.press(seat, terminal, terminal.dismiss, states=("dialog",))

    def _type(self, cycle: Cycle, what: What) -> AnyFact:
        """Types it, unless it is seen to have been typed."""
        seat, terminal = self.seen.place(cycle).seat, self.seen.terminal(cycle)
        if seat is None or terminal is None:
            return NotTyped(what, "it sits in no terminal", retry=False)
        if what == "clear":
            if self._landed(cycle, what):
                return Typed(what)
            if why := self._finish_document(cycle):
                self._tell(cycle.id, FileSeen(ok=False, why=why))
                return NotTyped(what, why)
        elif (what == "request" and cycle.id in self._by_hook) or self._landed(cycle, what):
            return Heard(what)
        refused = self.world.typist.type(
            seat,
            terminal,
            terminal.clear if what == "clear" else self._text(cycle, what),
            landed=lambda: self._landed(cycle, what),
            keep_draft=self.seen.keeps_draft(cycle),
        )
        if refused is None:
            self.seen.typed(cycle)
            return Typed(what)
        return NotTyped(what, refused.detail or refused.why, retry=refused.why not in _LASTING)

    def _landed(self, cycle: Cycle, what: What) -> bool:
        if what != "clear":
            return self.seen.was_heard(cycle, what)
        return bool(self.seen.cleared_to(cycle)) or self.seen.is_fresh(cycle)

    def _text(self, cycle: Cycle, what: What) -> str:
        """The same whenever it is asked for: what stands in an input line is known again by it."""
        messages = self.world.rules.messages(cycle.cwd)
        if what == "request":
            return messages.handoff_request(percent=round(cycle.fraction * 100, 1), file=cycle.file)
        in_doubt = "" if cycle.was_cut else None
        return messages.handoff_resume(file=cycle.file, call_in_doubt=in_doubt)

    def _finish_document(self, cycle: Cycle) -> str:
        """Adds what segue knows to the session's document, and reads it once more: why it is not
        valid, or "". The context is cleared in the same breath, or not at all."""
        text, why = read_document(cycle.file, project=project_of(cycle))
        if why or (why := documents.check(text)):
            return why
        whole = documents.complete(text, own_document(**self._known(cycle)))
        if whole != text:
            path = Path(cycle.file)
            handoffs.write(self._folder(cycle), path.name, whole)
            text, why = read_document(cycle.file, project=project_of(cycle))
            return why or documents.check(text)
        return ""

    def _write_own(self, cycle: Cycle) -> AnyFact:
        text, why = read_document(cycle.file, project=project_of(cycle))
        if not why and not documents.check(text) and not self._is_old(cycle):
            return FileSeen(ok=True, bytes=len(text.encode()), by_segue=is_rule_made(text))
        try:
            text = own_document(**self._known(cycle))
            path = Path(cycle.file)
            handoffs.write(self._folder(cycle), path.name, text)
        except (SegueError, OSError) as fault:
            return NotWritten(str(fault))
        return OwnWritten(len(text.encode()))

    def _is_old(self, cycle: Cycle) -> bool:
        """Whether the file was written before the session went on. Once the context is cleared
        there is no newer one to be had."""
        try:
            return not cycle.is_cleared and os.lstat(cycle.file).st_mtime < cycle.stale_before
        except OSError:
            return True

    def _folder(self, cycle: Cycle) -> Path:
        """Where its document goes; asked each time: a link may lead out of the project by now."""
        return handoffs.folder_of(cycle.cwd, self.seen.policy(cycle).handoff_folder)

    def _known(self, cycle: Cycle) -> dict[str, Any]:
        return {
            "agent": cycle.agent,
            "path": self.seen.place(cycle).path,
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

    def restore(self) -> None:
        """Takes up what a former daemon left."""
        latest: dict[str, dict[str, Any]] = {}
        recorded: set[str] = set()
        seq = 0
        while notes := self.world.log.since(seq, ("handoff", "metrics")):
            for note in notes:
                seq, name = note.seq, str(note.data.get("id"))
                if note.kind == "metrics":
                    recorded.add(name)
                else:
                    latest[name] = note.data
        for name, data in latest.items():
            with suppress(msgspec.ValidationError):
                cycle = msgspec.convert(data.get("cycle"), Cycle)
                if cycle.step.is_final:
                    if name not in recorded:  # killed just there
                        self._record(cycle, Record(machine.metrics(cycle, cycle.step_at)))
                else:
                    self.seen.restore(cycle.id, data.get("place"))
                    self.cycles[cycle.id] = cycle
                    self._await(cycle)
                    self.do(lambda cycle=cycle: self._again(cycle))  # type: ignore[misc]

    def _again(self, cycle: Cycle) -> None:
        for act in machine.acts_again(cycle):
            self._carry(cycle, act)

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
