"""Resumes a session that stopped: in its own pane, in a new tmux window, or as a run without a
terminal.

segue types only one fixed command into a shell: its own program and an id that it generated. The
session's prompt, folder and flags are in the log under that id.

One file: the three ways differ in where the agent is started, and share all checks before.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from segue.core.handoffs import document as documents
from segue.core.handoffs.machine.types import HandoffStep
from segue.core.policy import Place
from segue.core.resumes import decisions as wake
from segue.core.sessions.types import Session
from segue.core.stops.reasons import StopReason
from segue.errors import SegueError, StateError
from segue.runs.store import leases, open_store
from segue.sessions import evidence
from segue.sessions.documents import own_document
from segue.system.files import documents as handoffs
from segue.system.files import state
from segue.system.tmux import hosting
from segue.system.tmux.tmux import Tmux, TmuxError
from segue.system.tmux.typist import TypingRefused
from segue.watch.handoffs.seating import shell_waits
from segue.watch.handoffs.worker import HandoffWorker
from segue.watch.resumes import relaying
from segue.watch.resumes.gate import AccountGate
from segue.watch.resumes.pending import DOUBT_S, Pending
from segue.watch.resumes.stops import Stops
from segue.watch.state import ORDER, DaemonState, TrackedSession

VERIFY_S = DOUBT_S
"""How long a session may take to show that it continues."""
_LOOK_S = 0.25
_STEADY_S = 1.0  # for so long an agent that was just started must show its prompt
_RUN_S = 2.0  # a run that cannot be begun says so by then
_PASSING = ("copy_mode", "busy", "dialog", "draft", "starting", "user_active")
"""Why nothing could be typed, for reasons that go by."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class NotDone(NamedTuple):
    """Why it could not be done; `retry`: only for the moment."""

    why: str
    retry: bool = False


class _Stopping(Exception):  # noqa: N818
    """The daemon is ending: the next one checks the result."""


class Resumer:
    """Carries out resumes, one after the other, in the thread of `HandoffWorker`."""

    def __init__(
        self, world: DaemonState, hands: HandoffWorker, *, verify_s: float = VERIFY_S
    ) -> None:
        self.world, self.hands, self.gate = world, hands, AccountGate(world)
        self.verify_s = verify_s
        self.is_stopping = False
        self.stops: Stops | None = None
        self.wakes: Callable[[], None] = lambda: None
        """Called when one is done: what was decided on it may be decided again."""
        self._runs: list[subprocess.Popen[bytes]] = []

    def resume(self, pending: Pending, verdict: wake.Resume | wake.Relay) -> None:
        """Queues a resume; the result is passed to `stops.carried`."""
        self.hands.do(lambda: self.carry_out(pending, verdict))

    def carry_out(self, pending: Pending, verdict: wake.Resume | wake.Relay) -> None:
        """Does it now. For the thread that touches terminals."""
        try:
            failed = self._carry(pending, verdict)
        except _Stopping:
            return
        except (SegueError, OSError, ValueError) as fault:
            failed = NotDone(str(fault))
        if self.stops is not None:
            with self.world.lock:
                why, retry = failed or NotDone("")
                self.stops.carried(pending, why, retry=retry)
        self.wakes()

    def _carry(self, pending: Pending, verdict: wake.Resume | wake.Relay) -> NotDone | None:
        kept = self._kept(pending)
        handoff = self.hands.of(kept.session)
        if handoff is not None and handoff.step is not HandoffStep.RESTING:
            return NotDone("a handoff is under way", retry=True)
        if why := _holder(kept):
            return NotDone(why)
        if isinstance(verdict, wake.Relay):
            return self._relay(kept, pending, verdict)
        if pending.ending.state == "at_prompt":
            if verdict.prompt == "handoff":
                if handoff is not None:
                    self.hands.drop(handoff, "the context is exhausted: segue hands over itself")
                self.hands.begin(kept, own=True)
                return None
            return self._continue(pending)
        marker = ""
        if verdict.place != "headless":
            marker = self._write_order(kept, pending, verdict)
        began = self.world.clock.now()
        failed = self._begin(kept, pending, verdict.place)
        if failed is not None or verdict.place == "headless":
            return failed
        failed = self._verify(pending, marker, began)
        terminal = kept.terminal
        if failed or verdict.prompt == "handoff" or (terminal and terminal.resumes_with_prompt):
            return failed
        return self._continue_once_idle(pending)

    def _relay(self, kept: TrackedSession, pending: Pending, verdict: wake.Relay) -> NotDone | None:
        """Starts the other agent in a window beside it. The session itself is not touched."""
        session = kept.session
        with self.world.lock:
            found = relaying.successors(self.world, self.gate, session)
            to = next((each for each in found if each.agent == verdict.agent), None)
        if to is None:
            return NotDone(f"{verdict.agent} can no longer take over", retry=True)
        document = self._document(kept, pending)
        argv = relaying.begun(self.world, session, to, document)
        order = {"id": pending.id, "argv": list(argv), "cwd": session.cwd, "relay_to": to.agent}
        self.world.note(ORDER, session, order)
        began = self.world.clock.now()
        try:
            why = self._in_window(kept, pending, to.agent)
        except TmuxError as fault:
            why = str(fault)
        if why:
            return NotDone(why)
        return self._verify(pending, document.name, began, to.agent)

    def _begin(self, kept: TrackedSession, pending: Pending, place: Place) -> NotDone | None:
        """Starts it in the chosen place or, if that is no longer free, in the next place that
        the user allows."""
        places = self.world.policy(kept.session).resume_places
        rest = places[places.index(place) :] if place in places else (place,)
        tried: list[str] = []
        for each in rest:
            try:
                if each == "headless":
                    why = self._headless(kept, pending)
                elif each == "pane":
                    why = self._in_pane(kept, pending)
                else:
                    why = self._in_window(kept, pending)
            except TmuxError as fault:
                why = str(fault)
            if not why:
                return None
            tried.append(why)
        return NotDone("; ".join(tried))

    def _kept(self, pending: Pending) -> TrackedSession:
        with self.world.lock:
            return self.stops.kept_of(pending) if self.stops else pending.kept

    def _pause(self) -> None:
        if self.is_stopping:
            raise _Stopping
        time.sleep(_LOOK_S)

    # At its prompt

    def _continue(self, pending: Pending) -> NotDone | None:
        kept = self._kept(pending)
        if kept.seat is None or kept.terminal is None:
            return NotDone("it is in no terminal that segue can type into")
        seen = self.world.look(kept)
        if not isinstance(seen, TypingRefused) and seen.is_harmless and kept.terminal.dismiss:
            # Such as an offer of a cheaper model, which some make at a limit.
            self.world.typist.press(
                kept.seat, kept.terminal, kept.terminal.dismiss, states=("dialog",)
            )
            self._pause()
        text = self._prompt(kept, pending)
        since = self.world.clock.now() - 2
        now = self.world.clock.now()
        waited = pending.in_the_way_since is not None and (
            now - pending.in_the_way_since >= self.world.policy(kept.session).draft_wait_s
        )
        refused = self.world.typist.type(
            kept.seat,
            kept.terminal,
            text,
            landed=lambda: self._heard(kept.session, _marker(text), since),
            keep_draft=waited,
        )
        if refused is None:
            return None
        if refused.why == "draft" and pending.in_the_way_since is None:
            pending.in_the_way_since = now
        why = f"{refused.why}: {refused.detail}".removesuffix(": ")
        return NotDone(why, retry=refused.why in _PASSING)

    def _continue_once_idle(self, pending: Pending) -> NotDone | None:
        """Types what the agent does not accept on its command line."""
        until = time.monotonic() + self.verify_s
        failed: NotDone | None = NotDone("it did not return to its prompt")
        idle_since: float | None = None
        while time.monotonic() < until:
            seen = self.world.look(self._kept(pending))
            if isinstance(seen, TypingRefused) or seen.state != "idle":
                idle_since = None
            elif idle_since is None:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since >= _STEADY_S:
                failed = self._continue(pending)
                if failed is None or not failed.retry:
                    return failed
            self._pause()
        return failed

    def _prompt(self, kept: TrackedSession, pending: Pending) -> str:
        stop = pending.ending.stop
        was_cut = pending.ending.mid_turn and pending.ending.state == "exited"
        return self.world.rules.messages(kept.session.cwd).resume(
            reason=stop.reason if stop else StopReason.UNKNOWN,
            leg=pending.resumes + 1,
            call_in_doubt="" if was_cut else None,
        )

    def _heard(self, session: Session, marker: str, since: float) -> bool:
        heard = evidence.look(session.agent, session.path, session.session_id, marker, since)
        return heard.prompt_at is not None

    # In a new process

    def _write_order(self, kept: TrackedSession, pending: Pending, verdict: wake.Resume) -> str:
        """Logs what `segue back` is to start; returns the name of the handoff document for a new
        session, or ""."""
        session, terminal = kept.session, kept.terminal
        program = _program(kept, self.world.env)
        if terminal is None or not program:
            raise StateError(f"how {session.agent} is started in a terminal is unknown")
        if not _ID.fullmatch(session.session_id):
            raise StateError("its id cannot be passed on a command line")
        marker, writes = "", session.session_id
        if verdict.prompt == "handoff":
            document = self._document(kept, pending)
            marker, writes = document.name, ""
            prompt = self.world.rules.messages(session.cwd).handoff_resume(file=str(document))
            argv = terminal.new_argv(program, prompt, kept.flags)
        else:
            prompt = self._prompt(kept, pending)
            argv = terminal.resume_argv(program, session.session_id, prompt, kept.flags)
        order = {"id": pending.id, "argv": list(argv), "cwd": session.cwd, "writes": writes}
        self.world.note(ORDER, session, order)
        return marker

    def _document(self, kept: TrackedSession, pending: Pending) -> Path:
        """The rule-made handoff of a session that can no longer be asked."""
        session, now = kept.session, self.world.clock.now()
        folder = handoffs.folder_of(session.cwd, self.world.policy(session).handoff_folder)
        text = own_document(
            agent=session.agent,
            path=session.path,
            session_id=session.session_id,
            cwd=session.cwd,
            id=pending.id,
            at=now,
            percent=session.reading.fraction * 100 if session.reading else 0.0,
            env=self.world.env,
        )
        return handoffs.write(folder, documents.name(now, pending.id), text)

    def _in_pane(self, kept: TrackedSession, pending: Pending) -> str:
        """Types one fixed command into the shell in which the agent ran; returns why not, or ""."""
        seat = kept.seat
        if seat is None:
            return "its pane is unknown"
        pane = Tmux(seat.socket).pane(seat.pane)
        if pane is None or pane.tty != seat.tty:
            return "its pane is gone"
        if kept.shell_line is None or not shell_waits(pane):
            return "no shell waits in its pane"
        words = [*program(), "back", pending.id]
        if folder := self.world.env.get("SEGUE_HOME"):
            words += ["--state", folder]  # the shell may know nothing of it
        refused = self.world.typist.command(seat.socket, seat.pane, words, line=kept.shell_line)
        if refused is None:
            return ""
        return _NO_COMMAND.get(refused.why, refused.detail or refused.why)

    def _in_window(self, kept: TrackedSession, pending: Pending, agent: str = "") -> str:
        """Starts it in the tmux where it ran. `agent`: the agent to start, if not its own."""
        agent = agent or kept.session.agent
        if kept.socket == state.open_socket_path():
            # A window there would be seen by nobody: a session of its own can be returned to.
            command = (*program(), "back", pending.id)
            hosting.start(agent, command, self.world.env, kept.session.cwd)
            return ""
        tmux = Tmux(kept.socket)
        session = ""
        if kept.seat is not None:
            pane = tmux.pane(kept.seat.pane)
            session = pane.session if pane else ""
        command = (*program(), "back", pending.id)
        tmux.new_window(kept.session.cwd, command, _env(self.world.env), agent, session)
        return ""

    def _verify(
        self, pending: Pending, marker: str, began: float, agent: str = ""
    ) -> NotDone | None:
        """Waits until an agent has the session open, or one that was told to read the handoff.
        `agent`: which agent, if not its own."""
        until = time.monotonic() + self.verify_s
        while time.monotonic() < until:
            if self._goes_on(pending, marker, began, agent or pending.ending.agent):
                return None
            if why := self._why_not_back(pending, began):
                return NotDone(why)
            self._pause()
        return NotDone(f"it showed no activity for {self.verify_s:.0f} s")

    def _goes_on(self, pending: Pending, marker: str, began: float, agent: str) -> bool:
        if not marker:
            return self._kept(pending).session.process is not None
        with self.world.lock:
            everyone = [kept.session for kept in self.world.kept.values()]
        return any(
            session.process is not None
            and session.agent == agent
            and session.cwd == pending.ending.project
            and self._heard(session, marker, began)
            for session in everyone
        )

    def _why_not_back(self, pending: Pending, began: float) -> str:
        """The message of `segue back`, if it could not start the agent."""
        for note in reversed(self.world.log.of(pending.ending.agent, pending.ending.session_id)):
            if note.at < began - 1:
                break
            if note.kind == "back" and note.data.get("id") == pending.id:
                return str(note.data.get("error", ""))
        return ""

    # Without a terminal

    def _headless(self, kept: TrackedSession, pending: Pending) -> str:
        """A run takes the work over in its own session, with what segue knows about it."""
        session = kept.session
        self.gate.left(kept)  # the run asks for itself
        self._runs = [run for run in self._runs if run.poll() is None]
        document = self._document(kept, pending)
        task = self.world.rules.messages(session.cwd).handoff_resume(file=str(document))
        folder = Path(state.watch_folder()) / "headless"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place = folder / f"{pending.id}.log"
        with open(place, "ab", opener=_private) as log:
            run = subprocess.Popen(  # noqa: S603 - ourselves
                # The user never ran segue here: what a repository calls a check is not theirs.
                [*program(), "run", "--agent", session.agent, "--no-project-check", "-"],
                cwd=session.cwd,
                env=dict(self.world.env),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        assert run.stdin is not None
        with suppress(BrokenPipeError), run.stdin as stdin:
            stdin.write(task.encode())
        self._runs.append(run)
        try:
            code = run.wait(_RUN_S)
        except subprocess.TimeoutExpired:
            return ""
        if code == 0:
            return ""
        said = place.read_text("utf-8", "replace").strip().splitlines()
        return f"the run ended with {code}: {said[-1] if said else 'it says nothing'}"


_NO_COMMAND = {
    "gone": "its pane is gone",
    "not_in_front": "no shell waits in its pane",
    "draft": "something was typed in its shell since",
    "user_active": "somebody is typing there",
}


def program() -> tuple[str, ...]:
    """How to start this segue again: the same interpreter, whatever the PATH says."""
    script = Path(sys.executable).parent / "segue"
    if script.is_file() and os.access(script, os.X_OK):
        return (str(script),)
    return (sys.executable, "-m", "segue")


def _holder(kept: TrackedSession) -> str:
    """Why another process is writing to the session; "" if none is."""
    session = kept.session
    with open_store() as store:
        holder = store.holder(f"session:{session.agent}:{session.session_id}")
    if holder is None or not leases.is_alive(holder):
        return ""
    if session.process is not None and holder.pid == session.process.pid:
        return ""  # the agent itself, which `segue back` has become
    return f"process {holder.pid} has the session ({holder.note or 'a run'})"


def _program(kept: TrackedSession, env: Mapping[str, str]) -> str:
    """The program that ran; if it was replaced since, what its name leads to now."""
    if kept.program and os.access(kept.program, os.X_OK):
        return kept.program
    return shutil.which(kept.session.agent, path=env.get("PATH")) or ""


def _marker(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _env(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that move homes: a window has the tmux server's environment, not the
    daemon's."""
    names = ("SEGUE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
    return {name: env[name] for name in names if env.get(name)}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
