"""Goes on with a session that stopped: in its own pane, in a new window of tmux, or without a
terminal, by a run.

A shell is only ever given one line of segue's own: its own program and an id of its own making.
What the session is to be told, its folder and its flags stand in the log under that id.
"""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from segue.core import handoff as documents
from segue.core import wake
from segue.core.session import Session
from segue.core.stop import StopReason
from segue.errors import SegueError, StateError
from segue.io import handoffs, seats, state
from segue.io.tmux import Tmux, TmuxError
from segue.io.typist import Refused
from segue.transcripts import evidence
from segue.transcripts.handoffs import own_document
from segue.watch.hands import Hands
from segue.watch.stops import Pending, Stops
from segue.watch.world import Kept, World

VERIFY_S = 45.0
"""How long a session may take to show that it goes on."""
_LOOK_S = 0.25


class Waking:
    """Carries resumes out, one after the other, in the thread of `Hands`."""

    def __init__(self, world: World, hands: Hands, *, verify_s: float = VERIFY_S) -> None:
        self.world, self.hands = world, hands
        self.verify_s = verify_s
        self.stops: Stops | None = None
        self.wakes: Callable[[], None] = lambda: None
        """Called when one is done: what was decided on it may be decided anew."""

    def resume(self, pending: Pending, verdict: wake.Resume) -> None:
        """Has it done; the answer is given to `stops.carried`."""
        self.hands.do(lambda: self._resume(pending, verdict))

    def _resume(self, pending: Pending, verdict: wake.Resume) -> None:
        try:
            why_not = self._carry(pending, verdict)
        except (SegueError, OSError) as fault:
            why_not = str(fault)
        if self.stops is not None:
            with self.world.lock:
                self.stops.carried(pending, why_not)
        self.wakes()

    def _carry(self, pending: Pending, verdict: wake.Resume) -> str:
        """Why it could not be, or ""."""
        kept = self.world.kept.get((pending.ending.agent, pending.ending.session_id))
        if kept is None:
            return "the session is not known any more"
        if pending.ending.state == "at_prompt":
            if verdict.prompt == "handoff":
                self.hands.begin(kept, own=True)
                return ""
            return self._continue(kept, pending)
        if verdict.place == "headless":
            return self._headless(kept, pending)
        self._write_order(kept, pending, verdict)
        command = (*program(), "back", pending.id)
        if verdict.place == "pane" and (why := self._in_pane(kept, command)) is not None:
            if why:
                places = self.world.policy(kept.session).resume_places
                if "window" not in places:
                    return why
                self._in_window(kept, command)
        elif verdict.place == "window":
            self._in_window(kept, command)
        why = self._verify(kept, pending)
        terminal = kept.terminal
        if why or verdict.prompt == "handoff" or (terminal and terminal.resumes_with_prompt):
            return why
        return self._continue_once_idle(kept, pending)

    # At its prompt

    def _continue(self, kept: Kept, pending: Pending) -> str:
        if kept.seat is None or kept.terminal is None:
            return "it sits in no terminal that segue can type into"
        text = self._prompt(kept, pending)
        since = self.world.clock.now() - 2
        refused = self.world.typist.type(
            kept.seat,
            kept.terminal,
            text,
            landed=lambda: self._heard(kept.session, _marker(text), since),
        )
        return "" if refused is None else f"{refused.why}: {refused.detail}".removesuffix(": ")

    def _continue_once_idle(self, kept: Kept, pending: Pending) -> str:
        """Types what the agent does not take when it is started."""
        until = time.monotonic() + self.verify_s
        why = "it did not come to its prompt"
        while time.monotonic() < until:
            seen = self.world.look(kept)
            if not isinstance(seen, Refused) and seen.state == "idle":
                if not (why := self._continue(kept, pending)):
                    return ""
            time.sleep(_LOOK_S)
        return why

    def _prompt(self, kept: Kept, pending: Pending) -> str:
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

    def _write_order(self, kept: Kept, pending: Pending, verdict: wake.Resume) -> None:
        """Writes down what `segue back` is to start."""
        session, terminal = kept.session, kept.terminal
        if terminal is None or not kept.program:
            raise StateError(f"how {session.agent} is started in a terminal is not known")
        if verdict.prompt == "handoff":
            prompt = self.world.rules.messages(session.cwd).handoff_resume(
                file=str(self._document(kept, pending))
            )
            argv = terminal.new_argv(kept.program, prompt, kept.flags)
        else:
            argv = terminal.resume_argv(
                kept.program, session.session_id, self._prompt(kept, pending), kept.flags
            )
        order = {"id": pending.id, "argv": list(argv), "cwd": session.cwd}
        self.world.note("order", session, order)

    def _document(self, kept: Kept, pending: Pending) -> Path:
        """The rule-made handoff of a session that cannot be asked any more."""
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

    def _in_pane(self, kept: Kept, command: tuple[str, ...]) -> str:
        """Types one line of segue's own into the shell in which the agent was; why not, or ""."""
        seat = kept.seat
        if seat is None:
            return "its pane is not known"
        tmux = Tmux(seat.socket)
        try:
            pane = tmux.pane(seat.pane)
            if pane is None or not seats.shell_in(pane):
                return "no shell waits in its pane"
            if kept.shell_line != tmux.shell_line(seat.pane):
                return "something was typed in its shell since"
            if tmux.active_s(seat.pane) < 2:
                return "somebody types there"
            tmux.literal(seat.pane, shlex.join(command))
            tmux.keys(seat.pane, "Enter")
        except TmuxError as fault:
            return str(fault)
        return ""

    def _in_window(self, kept: Kept, command: tuple[str, ...]) -> None:
        tmux = Tmux(kept.seat.socket if kept.seat else "")
        session = ""
        if kept.seat is not None:
            pane = tmux.pane(kept.seat.pane)
            session = pane.session if pane else ""
        tmux.new_window(
            kept.session.cwd, command, _env(self.world.env), kept.session.agent, session
        )

    def _verify(self, kept: Kept, pending: Pending) -> str:
        """Waits until an agent is behind the session, or behind one that was told to read the
        handoff."""
        began = self.world.clock.now()
        until = time.monotonic() + self.verify_s
        name = (kept.session.agent, kept.session.session_id)
        while time.monotonic() < until:
            with self.world.lock:
                everyone = list(self.world.kept.values())
            for other in everyone:
                session = other.session
                if session.process is None or session.agent != kept.session.agent:
                    continue
                is_same = (session.agent, session.session_id) == name
                is_new = session.cwd == kept.session.cwd and (session.started_at or 0) >= began - 5
                if is_same or is_new:
                    return ""
            time.sleep(_LOOK_S)
        return f"nothing was seen of it in {self.verify_s:.0f} s"

    # Without a terminal

    def _headless(self, kept: Kept, pending: Pending) -> str:
        """A run takes the work over, in a session of its own, with what segue knows of it."""
        session = kept.session
        document = self._document(kept, pending)
        task = self.world.rules.messages(session.cwd).handoff_resume(file=str(document))
        folder = Path(state.watch_folder()) / "headless"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(folder / f"{pending.id}.log", "ab", opener=_private) as log:
            subprocess.Popen(  # noqa: S603 - ourselves
                [*program(), "run", "--agent", session.agent, task],
                cwd=session.cwd,
                env=dict(self.world.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return ""


def program() -> tuple[str, ...]:
    """How this segue is started again: the same interpreter, wherever the PATH leads."""
    script = Path(sys.executable).parent / "segue"
    if script.is_file() and os.access(script, os.X_OK):
        return (str(script),)
    return (sys.executable, "-m", "segue")


def order_of(note: dict[str, Any]) -> tuple[list[str], str]:
    """What `segue back` starts, and where."""
    order = msgspec.convert(note, _Order, strict=False)
    return order.argv, order.cwd


class _Order(msgspec.Struct):
    argv: list[str]
    cwd: str


def _marker(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _env(env: Any) -> dict[str, str]:
    """What moves homes: a window has the tmux server's environment, not the daemon's."""
    names = ("SEGUE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")
    return {name: env[name] for name in names if env.get(name)}


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
