"""The invariants of sessions in terminals: what the daemon types, clears and resumes there."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from segue.core.handoffs import document, machine
from segue.core.handoffs.machine.types import AnyFact, TerminalHandoff
from segue.core.stops.events import ToolCall
from segue.runs.store.coding import convert_any
from segue.testing.simulation.clock import EPOCH
from segue.testing.simulation.invariants import goes, must, percent
from segue.testing.simulation.terminals.conversations import BAD, file_in, kind_of

if TYPE_CHECKING:
    from segue.testing.simulation.terminals.session import TerminalSession

_MAX_OPEN_S = 80_000.0
_MAX_NOTES = 600
_MOST_WAIT_S = 900.0  # past a reset: its jitter, and others that go first
_MOST_READING_S = 3 * 300.0 + 120.0  # to receive the message, to read the document, to act on it
_TYPING_S = 1.0  # how long a text is in the input line before it is sent, at most
_NOT_VALID = (document.check(BAD), document.check(""))
"""What is wrong with documents that cannot be used."""


class TerminalWatch:
    """Watches one session in a terminal."""

    def __init__(self, session: "TerminalSession") -> None:
        self.session, self.world = session, session.world
        self.is_ended_by_user = False
        self.is_interrupted_by_user = False
        self.resumes: Counter[str] = Counter()  # of each session since the user's last message
        # segue's messages, by session, kind and document
        self.messages: Counter[tuple[str, str, str]] = Counter()
        self.is_measured = True  # whether the size at which the request is read counts
        self.largest_step = 0
        # when the request was last received since the user's last message
        self.asked_at = float("inf")
        self.notes: dict[str, int] = {}  # the number of notes on each handoff in progress
        # when the new session of a handoff was told to continue (awake time)
        self.told_at: dict[str, float] = {}
        self.spoilt_at: dict[str, float] = {}  # when the user spoiled a document
        self.spoilt_late: set[str] = set()  # the documents spoiled after the context was cleared

    # What happens

    def received(self, text: str, *, by_segue: bool, is_typed: bool = True) -> None:
        """The agent receives a message. A prompt on the command line of an agent in a new window
        disturbs nobody who types elsewhere."""
        session, policy = self.session, self.session.policy
        must(not session.is_busy, "nothing is typed into a turn", text[:40])
        if not by_segue:
            self.spoke()
            return
        is_disturbed = is_typed and session.is_typing
        must(not is_disturbed, "nothing is typed while the user types", text[:40])
        must(not self.is_ended_by_user, "the user's end stays", f"it is told {text[:40]!r}")
        kind, file = kind_of(text), file_in(text)
        must(kind != "", "only what segue may say is typed", text[:40])
        key = (session.talk.id, kind, file)
        self.messages[key] += 1
        most = 3 if kind == "request" else 1
        if kind == "resume":
            most = policy.max_resumes + 1
        what = f"{kind!r} for the {self.messages[key]}th time"
        must(self.messages[key] <= most, "nothing is typed twice", what)
        if kind == "clear":
            self._cleared()
        elif kind == "request":
            may = policy.auto_handoff or self._by_user()
            must(may, "only what the user allows", "a handoff begins, and auto_handoff is off")
            self.is_measured = False
            if self._by_user():  # a Ctrl+C before it was asked only made it come sooner
                self.is_interrupted_by_user = False
            known, written_ns = self.world.daemon.documents.files.get(file, ("", 0))
            is_answered = document.check(known) == "" and written_ns / 1e9 >= self.asked_at
            must(not is_answered, "nothing is typed twice", "it has written the document already")
            self.asked_at = session.now
        elif kind == "resume":
            self.resumed("prompt")
        elif kind == "continue":
            is_new = not session.talk.events
            must(is_new, "nothing is typed twice", "a session that works is told to begin anew")
            why = document.check(self.world.daemon.documents.files.get(file, ("", 0))[0])
            # Once the old context is gone, the user may do with the document what they want.
            must(why == "" or file in self.spoilt_late, "it can be read", f"{file}: {why}")

    def spoke(self) -> None:
        """The user says something, to the agent or with a command of segue's. The limits on what
        segue may say count from here."""
        self.is_ended_by_user = self.is_interrupted_by_user = False
        self.resumes.clear()
        self.asked_at = float("inf")
        self.messages.clear()

    def _by_user(self) -> bool:
        """Whether the user asked for the handoff in progress."""
        found = self._cycles()
        return any(cycle.by_user for cycle in found)

    def _cycles(self) -> list[TerminalHandoff]:
        watch = self.world.daemon.watch
        if watch is None:
            return []
        own = self.session.talks
        return [c for c in watch.handoffs.cycles.values() if c.session_id in own]

    def is_open(self, session_id: str) -> bool:
        """Whether a handoff of this session is, or may be, in progress."""
        if self.session.talk.id == session_id or self.world.daemon.watch is None:
            return True
        cycles = self.world.daemon.watch.handoffs.cycles.values()
        pending = self.world.daemon.watch.stops.pending
        used = {name for c in cycles for name in (c.session_id, c.new_session_id)}
        return session_id in used or session_id in {name for _, name in pending}

    def _cleared(self) -> None:
        """A context was cleared. A valid document must contain what was in it, and later messages
        from the user must not be lost with it."""
        session, files = self.session, self.world.daemon.documents.files
        names = [c.file for c in self._cycles() if c.session_id == session.talk.id]
        whys = [document.check(files[name][0]) for name in names if name in files]
        what = f"on disk: {whys or 'none'}"
        # No check can prevent that a user spoils it while the text is in the input line.
        just_now = self.world.schedule.now - _TYPING_S
        late = {name for name in names if self.spoilt_at.get(name, -1e9) > just_now}
        must("" in whys or bool(late), "cleared only with a document", what)
        self.spoilt_late |= late
        must(not self.is_interrupted_by_user, "the user's end stays", "cleared after Ctrl+C")

    def pressed(self) -> None:
        """segue ends a turn with a key."""
        must(not self.session.is_typing, "nothing is typed while the user types", "a key")
        may = self.session.policy.auto_handoff or self._by_user()
        must(may, "only what the user allows", "a turn is interrupted, and auto_handoff is off")

    def begun(self, writes: str) -> None:
        """segue starts an agent in place of the one that ended."""
        is_open = self.session.process is not None
        must(not is_open, "one writer a session", "a second process for a session that is open")
        self.resumed("process")
        self.resumes[self.session.talk.id] -= 1  # its prompt is counted too

    def resumed(self, how: str) -> None:
        """segue resumes the session unasked."""
        session, world = self.session, self.world
        policy = session.policy
        must(policy.auto_resume, "the user's end stays", "auto_resume is off")
        must(not self.is_ended_by_user, "the user's end stays", "a session that the user ended")
        name = session.talk.id
        what = f"{self.resumes[name]} resumes since the user's last word"
        must(self.resumes[name] <= policy.max_resumes, "tries are bounded", what)
        if how != "headless" and world.machine.clock.offset_s == 0.0:
            account = world.account_of(session.number)
            goes(account, f"session-{session.number}", world.schedule.now)
        self.resumes[name] += 1
        world.figures.resumes += how != "process"
        session.say(f"the daemon resumes the session ({how})")

    def request_read(self, used_tokens: int) -> None:
        """The model reads the request for a document."""
        self.is_measured = True
        share = percent(used_tokens, self.session.window)
        self.world.figures.terminal_percent[share] += 1
        self.session.say(f"the request for a document is read at {used_tokens} tokens")

    def compacted(self) -> None:
        """The agent compacts because its own limit is reached."""
        figures, session = self.world.figures, self.session
        figures.compactions += 1
        may = session.policy.auto_handoff and self.world.daemon.watch is not None
        limit = session.enforced or session.window
        room = limit - min(session.policy.hard_mark * session.window, limit - 10_000)
        is_steep = self.largest_step * 2 > room
        figures.terminal_compactions += may
        figures.steep_compactions += may and is_steep
        session.say("the agent compacts by itself")
        self.largest_step = 0

    def grew(self, tokens: int) -> None:
        """A tool's result made it grow."""
        self.largest_step = max(self.largest_step, tokens)

    def spoilt(self, file: str, *, is_cleared: bool) -> None:
        """The user left a document half edited."""
        self.spoilt_at[file] = self.world.schedule.now
        if is_cleared:
            self.spoilt_late.add(file)

    def ended_by_user(self) -> None:
        """The user leaves."""
        self.is_ended_by_user = True

    def interrupted_by_user(self) -> None:
        """Ctrl+C in a turn."""
        self.is_interrupted_by_user = True

    # The log

    def noted(self, cycle: dict[str, Any]) -> None:
        """The daemon logged the state of a handoff."""
        name = cycle["id"]
        self.notes[name] = self.notes.get(name, 0) + 1
        what = f"{self.notes[name]} notes on handoff {name}"
        must(self.notes[name] <= _MAX_NOTES, "what is kept is bounded", what)
        self._is_read_in_time(cycle)
        what = cycle["why"]
        is_ours = cycle["step"] == "needs_user" and any(why in what for why in _NOT_VALID)
        must(not is_ours, "segue must fix a bad document", what)
        if cycle["step"] == "needs_user" and not cycle["is_cleared"]:
            # Much may happen until the user answers, so the session may be asked again then.
            self.asked_at = float("inf")
            for key in [key for key in self.messages if key[1] == "request"]:
                del self.messages[key]
        if cycle["step"] in ("done", "cancelled"):
            del self.notes[name]

    def _is_read_in_time(self, cycle: dict[str, Any]) -> None:
        """Checks that a new session that was told to continue does so soon, or its user is
        asked."""
        name, awake = cycle["id"], self.world.machine.clock.awake()
        if cycle["step"] != "resumed":
            self.told_at.pop(name, None)
            return
        waited_s = awake - self.told_at.setdefault(name, awake)
        machine_, since = self.world.machine, self.world.schedule.now - waited_s
        began_at = self.world.daemon.began_at
        is_excused = max(began_at, machine_.jumped_at, machine_.disk_full_until) > since
        what = f"resumed for {waited_s:.0f} s"
        is_late = waited_s > _MOST_READING_S and not is_excused
        must(not is_late, "every handoff ends or waits for its user", what)

    def decided(self, verdict: str, data: dict[str, Any]) -> None:
        """The daemon logged its verdict on a session that stopped."""
        if verdict != "ask" or not str(data.get("why", "")).startswith("its agent ended, and"):
            return
        seat = (data.get("sat") or {}).get("seat") or {}
        process = self.session.process
        is_there = process is not None and process.pid == seat.get("pid")
        must(not is_there, "what people are told is true", "its agent runs, with another session")

    def handed_over(self, cycle: dict[str, Any]) -> None:
        """The daemon says that a handoff is done: the new session has read its document and is
        working."""
        talk = self.session.talks.get(cycle["new_session_id"])
        is_read = talk is not None and any(
            isinstance(event, ToolCall) and event.argument == cycle["file"] for event in talk.events
        )
        must(is_read, "a handoff is verified", "done, and the new session has read nothing")
        self.world.figures.terminal_handoffs += 1

    def look(self) -> None:
        """Called from time to time: checks that every handoff ends or waits for its user."""
        machine_, now = self.world.machine, self.world.schedule.now
        if machine_.awake_at > now - 7_200.0 or machine_.jumped_at > now - 90_000.0:
            return
        if machine_.disk_full_until > now - 7_200.0:
            return
        daemon = self.world.daemon
        if daemon.watch is not None and now - daemon.began_at > 600.0:
            forgotten = self.notes.keys() - daemon.watch.handoffs.cycles.keys()
            what = f"the daemon knows nothing of {sorted(forgotten)}"
            must(not forgotten, "every handoff ends or waits for its user", what)
        self._waits_end(now)
        for cycle in self._cycles():
            open_s = machine_.clock.now() - cycle.step_at
            what = f"{cycle.step} for {open_s:.0f} s"
            is_open = cycle.step.is_active and open_s > _MAX_OPEN_S
            must(not is_open, "every handoff ends or waits for its user", what)

    def _waits_end(self, now: float) -> None:
        """Checks that a session that waits for a reset does not wait much longer."""
        daemon, machine_ = self.world.daemon, self.world.machine
        if daemon.watch is None or machine_.clock.offset_s:
            return
        account = self.world.account_of(self.session.number)
        for (_, session_id), pending in daemon.watch.stops.pending.items():
            stop = pending.ending.stop
            until = getattr(pending.verdict, "until", None)
            if session_id not in self.session.talks or until is None or stop is None:
                continue
            reset_at = max(stop.retry_at or 0.0, EPOCH + account.limited_until, EPOCH + now)
            what = f"waits until {until - reset_at:.0f} s after its reset"
            must(until <= reset_at + _MOST_WAIT_S, "waits end within their bound", what)

    def replays(self, run_id: str) -> None:
        """Checks that replaying the facts gives the same handoffs."""
        policy = self.session.policy
        before: dict[str, TerminalHandoff] = {}
        notes: list[Any] = []
        for session_id in self.session.talks:
            notes += self.world.daemon.log.of("claude", session_id, ("handoff",), 1_000_000)
        for note in sorted(notes, key=lambda note: note.seq):
            cycle = msgspec.convert(note.data["cycle"], TerminalHandoff)
            if cycle.id in before:
                fact = convert_any(note.data["fact"], AnyFact)
                again, _ = machine.step(before[cycle.id], fact, policy, note.at)
                what = f"{cycle.id} after {type(fact).__name__}"
                must(again == cycle, "logs replay to the same state", what)
            before[cycle.id] = cycle
