"""Resumes a session that stopped: in its own pane, in a new tmux window, or as a run without a
terminal.

segue types only one fixed command into a shell: its own program and an id that it generated. The
session's prompt, folder and flags are in the log under that id.

All in one file: the three ways differ in where the agent is started, and share all checks before.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from segue.core.handoffs import document as documents
from segue.core.handoffs.machine.types import HandoffStep
from segue.core.policy import Place
from segue.core.resumes import decisions as wake
from segue.core.sessions.types import Session
from segue.core.stops.reasons import StopReason
from segue.errors import SegueError, StateError, in_words
from segue.system.tmux.tmux import TmuxError
from segue.system.tmux.typist import TypingRefused
from segue.watch.handoffs.worker import HandoffWorker
from segue.watch.resumes import relaying
from segue.watch.resumes.gate import AccountGate
from segue.watch.resumes.pending import DOUBT_S, Pending
from segue.watch.resumes.places import Places
from segue.watch.resumes.stops import Stops
from segue.watch.state import ORDER, DaemonState, TrackedSession, label

VERIFY_S = DOUBT_S
"""How long a session may take to show that it continues."""
_LOOK_S = 0.25
_STEADY_S = 1.0  # how long an agent that was just started may take to show its prompt
_CANCEL_S = 5.0
_SLOW = 2  # times `VERIFY_S`, for an agent that exists but has not shown anything yet
_PASSING = ("copy_mode", "busy", "dialog", "draft", "starting", "user_active")
"""Temporary reasons why nothing could be typed."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class NotDone(NamedTuple):
    """Why a resume failed. `retry`: only for the moment. `has_started`: an agent was started and
    still runs, but did not do what it was told."""

    why: str
    retry: bool = False
    has_started: bool = False


class _Stopping(Exception):  # noqa: N818
    """The daemon is ending: the next one checks the result."""


class Resumer:
    """Carries out resumes, one after the other, in the thread of `HandoffWorker`."""

    def __init__(
        self, state: DaemonState, handoffs: HandoffWorker, *, verify_s: float = VERIFY_S
    ) -> None:
        self.state, self.handoffs, self.gate = state, handoffs, AccountGate(state)
        self.verify_s = verify_s
        self.is_stopping = False
        self.stops: Stops | None = None
        self.wakes: Callable[[], None] = lambda: None
        """Called when one is done, because the decision on it may change."""
        self.places = Places(state)

    def resume(self, pending: Pending, verdict: wake.Resume | wake.Relay) -> None:
        """Queues a resume; the result is passed to `stops.carried`."""
        self.handoffs.do(lambda: self.carry_out(pending, verdict))

    def carry_out(self, pending: Pending, verdict: wake.Resume | wake.Relay) -> None:
        """Carries out a resume now. Only for the thread that touches terminals."""
        try:
            failed = self._carry(pending, verdict)
        except _Stopping:
            return
        except (SegueError, OSError, ValueError) as fault:
            failed = NotDone(in_words(fault))
        if self.stops is not None:
            with self.state.lock:
                why, retry, is_begun = failed or NotDone("")
                self.stops.carried(pending, why, retry=retry, is_begun=is_begun)
        self.wakes()

    def _carry(self, pending: Pending, verdict: wake.Resume | wake.Relay) -> NotDone | None:
        tracked = self._tracked(pending)
        handoff = self.handoffs.of(tracked.session)
        if handoff is not None and handoff.step is not HandoffStep.RESTING:
            return NotDone("a handoff is in progress", retry=True)
        if why := self.places.holder(tracked):
            return NotDone(why)
        if isinstance(verdict, wake.Relay):
            return self._relay(tracked, pending, verdict)
        with self.state.lock:  # others were resumed first: its account may have hit a limit since
            answer = self.gate.ask(tracked, takes_turn=False)
        if answer.until is not None:
            return NotDone("its account is limited", retry=True)
        if pending.ending.state == "at_prompt":
            if verdict.prompt == "handoff":
                if handoff is not None:
                    self.handoffs.drop(
                        handoff, "the context is exhausted: segue hands it over itself"
                    )
                self.handoffs.begin(tracked, own=True)
                return None
            return self._continue(pending)
        marker = ""
        if verdict.place != "headless":
            marker = self._write_order(tracked, pending, verdict)
        began = self.state.clock.now()
        failed = self._begin(tracked, pending, verdict.place)
        if failed is not None or verdict.place == "headless":
            return failed
        failed = self._verify(pending, marker, began)
        terminal = tracked.terminal
        if failed or verdict.prompt == "handoff" or (terminal and terminal.resumes_with_prompt):
            return failed
        return self._continue_once_idle(pending)

    def _relay(
        self, tracked: TrackedSession, pending: Pending, verdict: wake.Relay
    ) -> NotDone | None:
        """Starts the other agent in a window beside it. The session itself is not touched, except
        that its agent's own plan to continue is cancelled."""
        session = tracked.session
        with self.state.lock:
            found = relaying.successors(self.state, self.gate, session)
            to = next((each for each in found if each.agent == verdict.agent), None)
        if to is None:
            return NotDone(f"{verdict.agent} can no longer take over", retry=True)
        if failed := self._cancel_native(tracked, pending):
            return failed
        document = self._document(tracked, pending)
        argv = relaying.begun(self.state, session, to, document)
        order = {"id": pending.id, "argv": list(argv), "cwd": session.cwd, "relay_to": to.agent}
        self.state.note(ORDER, session, order)
        began = self.state.clock.now()
        try:
            why = self.places.in_window(tracked, pending.id, to.agent)
        except TmuxError as fault:
            why = str(fault)
        if why:
            return NotDone(why)
        return self._verify(pending, document.name, began, to.agent)

    def _cancel_native(self, tracked: TrackedSession, pending: Pending) -> NotDone | None:
        """Cancels the agent's own plan to continue: otherwise two agents would do the work. If the
        relay fails after all, segue resumes the session after the reset, like any other."""
        seat, terminal = tracked.seat, tracked.terminal
        if pending.ending.state != "at_prompt" or seat is None or terminal is None:
            return None
        pane = self.state.look(tracked)
        if isinstance(pane, TypingRefused):
            return _not_pressed(pane) if pending.ending.native_continues_at is not None else None
        if not pane.continues_at:
            return None
        if pane.draft:
            return NotDone("something is typed in its input line", retry=True)
        refused = self.state.typist.press(
            seat, terminal, terminal.cancel_continue, states=("idle",)
        )
        if refused is not None:
            return _not_pressed(refused)
        until = self.state.clock.awake() + _CANCEL_S
        while not isinstance(pane, TypingRefused) and pane.continues_at:
            if self.state.clock.awake() >= until:
                return NotDone("its agent still says that it will continue by itself", retry=True)
            self._pause()
            pane = self.state.look(tracked)
        with self.state.lock:
            pending.ending = replace(pending.ending, native_continues_at=None)
        self.state.say(f"{label(tracked.session)}: segue cancelled its plan to continue by itself")
        return None

    def _begin(self, tracked: TrackedSession, pending: Pending, place: Place) -> NotDone | None:
        """Starts it in the chosen place or, if that is no longer free, in the next place that
        the user allows."""
        places = self.state.policy(tracked.session).resume_places
        rest = places[places.index(place) :] if place in places else (place,)
        tried: list[str] = []
        for each in rest:
            try:
                if each == "headless":
                    why = self._headless(tracked, pending)
                elif each == "pane":
                    why = self.places.in_pane(tracked, pending.id)
                else:
                    why = self.places.in_window(tracked, pending.id)
            except TmuxError as fault:
                why = str(fault)
            if not why:
                return None
            tried.append(why)
        return NotDone("; ".join(tried))

    def _tracked(self, pending: Pending) -> TrackedSession:
        with self.state.lock:
            return self.stops.tracked_of(pending) if self.stops else pending.tracked

    def _pause(self) -> None:
        if self.is_stopping:
            raise _Stopping
        self.state.clock.wait((), _LOOK_S)

    # At its prompt

    def _continue(self, pending: Pending) -> NotDone | None:
        tracked = self._tracked(pending)
        if tracked.seat is None or tracked.terminal is None:
            return NotDone("it is not in a terminal that segue can type into")
        pane = self.state.look(tracked)
        if not isinstance(pane, TypingRefused) and pane.is_harmless and tracked.terminal.dismiss:
            # Such as an offer of a cheaper model, which some make at a limit.
            self.state.typist.press(
                tracked.seat, tracked.terminal, tracked.terminal.dismiss, states=("dialog",)
            )
            self._pause()
        text = self._prompt(tracked, pending)
        since = self.state.clock.now() - 2
        now = self.state.clock.now()
        waited = pending.in_the_way_since is not None and (
            now - pending.in_the_way_since >= self.state.policy(tracked.session).draft_wait_s
        )
        refused = self.state.typist.type(
            tracked.seat,
            tracked.terminal,
            text,
            landed=lambda: self._has_arrived(tracked.session, _marker(text), since),
            keep_draft=waited,
        )
        if refused is None:
            return None
        if refused.why == "draft" and pending.in_the_way_since is None:
            pending.in_the_way_since = now
        why = f"{refused.why}: {refused.detail}".removesuffix(": ")
        return NotDone(why, retry=refused.why in _PASSING)

    def _continue_once_idle(self, pending: Pending) -> NotDone | None:
        """Types the prompt that the agent does not accept on its command line, once it is idle."""
        until = self.state.clock.awake() + self.verify_s
        failed: NotDone | None = NotDone("it did not reach its prompt")
        idle_since: float | None = None
        while self.state.clock.awake() < until:
            pane = self.state.look(self._tracked(pending))
            if isinstance(pane, TypingRefused) or pane.state != "idle":
                idle_since = None
            elif idle_since is None:
                idle_since = self.state.clock.awake()
            elif self.state.clock.awake() - idle_since >= _STEADY_S:
                failed = self._continue(pending)
                if failed is None or not failed.retry:
                    return failed
            self._pause()
        return failed

    def _prompt(self, tracked: TrackedSession, pending: Pending) -> str:
        stop = pending.ending.stop
        was_cut = pending.ending.mid_turn and pending.ending.state == "exited"
        return self.state.rules.messages(tracked.session.cwd).resume(
            reason=stop.reason if stop else StopReason.UNKNOWN,
            leg=pending.resumes + 1,
            call_in_doubt="" if was_cut else None,
        )

    def _has_arrived(self, session: Session, marker: str, since: float) -> bool:
        received = self.state.records.look(
            session.agent, session.path, session.session_id, marker, since
        )
        return received.prompt_at is not None

    # In a new process

    def _write_order(self, tracked: TrackedSession, pending: Pending, verdict: wake.Resume) -> str:
        """Logs what `segue back` is to start; returns the name of the handoff document for a new
        session, or ""."""
        session, terminal = tracked.session, tracked.terminal
        program = self.places.program(tracked)
        if terminal is None or not program:
            raise StateError(f"segue does not know how to start {session.agent} in a terminal")
        if not _ID.fullmatch(session.session_id):
            raise StateError("its id cannot be passed on a command line")
        marker, writes = "", session.session_id
        if verdict.prompt == "handoff":
            document = self._document(tracked, pending)
            marker, writes = document.name, ""
            prompt = self.state.rules.messages(session.cwd).handoff_resume(file=str(document))
            argv = terminal.new_argv(program, prompt, tracked.flags)
        else:
            prompt = self._prompt(tracked, pending)
            argv = terminal.resume_argv(program, session.session_id, prompt, tracked.flags)
        order = {"id": pending.id, "argv": list(argv), "cwd": session.cwd, "writes": writes}
        self.state.note(ORDER, session, order)
        return marker

    def _document(self, tracked: TrackedSession, pending: Pending) -> Path:
        """The rule-made handoff of a session that can no longer be asked."""
        session, now = tracked.session, self.state.clock.now()
        folder = self.state.documents.folder(session.cwd, self.state.policy(session).handoff_folder)
        text = self.state.documents.own(
            agent=session.agent,
            path=session.path,
            session_id=session.session_id,
            cwd=session.cwd,
            id=pending.id,
            at=now,
            percent=session.reading.fraction * 100 if session.reading else 0.0,
            env=self.state.env,
        )
        return self.state.documents.write(folder, documents.name(now, pending.id), text)

    def _verify(
        self, pending: Pending, marker: str, began: float, agent: str = ""
    ) -> NotDone | None:
        """Waits until an agent has the session open, or one that was told to read the handoff.
        `agent`: which agent, if not its own."""
        began_at = self.state.clock.awake()
        while (took_s := self.state.clock.awake() - began_at) < _SLOW * self.verify_s:
            if self._goes_on(pending, marker, began, agent or pending.ending.agent):
                return None
            if why := self._why_not_back(pending, began):
                return NotDone(why)
            # An agent that starts for the first time creates its database before anything else.
            if took_s >= self.verify_s and not self._is_begun(pending, began):
                break
            self._pause()
        return NotDone(
            f"it showed no activity for {took_s:.0f} s", has_started=self._is_begun(pending, began)
        )

    def _goes_on(self, pending: Pending, marker: str, began: float, agent: str) -> bool:
        if not marker:
            return self._tracked(pending).session.process is not None
        with self.state.lock:
            everyone = [tracked.session for tracked in self.state.tracked.values()]
        return any(
            session.process is not None
            and session.agent == agent
            and session.cwd == pending.ending.project
            and self._has_arrived(session, marker, began)
            for session in everyone
        )

    def _why_not_back(self, pending: Pending, began: float) -> str:
        """The message of `segue back`, if it could not start the agent."""
        return str(self._back(pending, began).get("error", ""))

    def _is_begun(self, pending: Pending, began: float) -> bool:
        """Whether the agent that `segue back` became is still there."""
        pid = self._back(pending, began).get("pid")
        return isinstance(pid, int) and self.places.is_running(pid)

    def _back(self, pending: Pending, began: float) -> dict[str, Any]:
        """What `segue back`, which starts the agent in its pane or window, reported."""
        for note in reversed(self.state.log.of(pending.ending.agent, pending.ending.session_id)):
            if note.at < began - 1:
                break
            if note.kind == "back" and note.data.get("id") == pending.id:
                return note.data
        return {}

    # Without a terminal

    def _headless(self, tracked: TrackedSession, pending: Pending) -> str:
        """A run takes the work over in its own session, with what segue knows about it."""
        session = tracked.session
        self.gate.yield_first(tracked)  # the run asks for itself
        document = self._document(tracked, pending)
        task = self.state.rules.messages(session.cwd).handoff_resume(file=str(document))
        return self.places.headless(tracked, pending.id, task)


def _not_pressed(refused: TypingRefused) -> NotDone:
    why = f"{refused.why}: {refused.detail}".removesuffix(": ")
    return NotDone(
        f"segue cannot stop it from continuing by itself ({why})", refused.why in _PASSING
    )


def _marker(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
