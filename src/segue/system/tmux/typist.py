"""Types into an agent's terminal, or says why not.

It never types into a pane that is busy, in copy mode, shows a dialog or an unknown screen, holds
a draft of the user, or no longer runs the expected agent. The user may type at any moment: their
keys are held back while text from segue is in the input line, and come after it, so that no line
is ever mixed and no key is lost (`system/tmux/guard`).
"""

import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from segue.agents.contracts.terminal import Terminal
from segue.core.terminals.draft import shows, typeable
from segue.core.terminals.screen import Screen, State
from segue.system.process.procfs import System, system
from segue.system.tmux import panes as seats
from segue.system.tmux.guard import PaneGuard, PaneStatus
from segue.system.tmux.input_line import LOOK_S, InputLine, InputView, Times
from segue.system.tmux.panes import AgentPane
from segue.system.tmux.tmux import Tmux, TmuxError, key

QUIET_S = 2.0  # without a key from the user; tmux reports whole seconds, so at least 1
Why = Literal[
    "gone",
    "not_in_front",
    "copy_mode",
    "busy",
    "dialog",
    "draft",
    "starting",
    "unknown",
    "user_active",
    "swallowed",
]
_SHOW_S = 1.5  # for a text to appear in the input line, in addition to the time to settle
_LEAVE_S = 0.8  # for it to leave once it is submitted
_BETWEEN_KEYS_S = 0.15
_CHANGES = 6  # of the screen, between a look and the Enter
# contains nothing that a shell would interpret
_WORD = re.compile(r"[A-Za-z0-9_./-][A-Za-z0-9_./:=@%+-]*")


class TypingRefused(Struct, frozen=True):
    """Why nothing was typed, or why it had no effect. None of our text is left in the input line,
    if it could be removed."""

    why: Why
    detail: str = ""


_CHANGED = TypingRefused("user_active", "the pane changed just then")


class Typist:
    """Types one text at a time into a pane; several panes in parallel."""

    def __init__(
        self,
        tmux_for: Callable[[str], Tmux] = Tmux,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        wall: Callable[[], float] = time.time,
        quiet_s: float = QUIET_S,
        say: Callable[[str], None] | None = None,
        on: System | None = None,
    ) -> None:
        self._tmux_for = tmux_for
        self._times = Times(clock, sleep, wall, max(quiet_s, 1.0))
        self._say = say or (lambda line: None)
        self._on = on or system()

    def look(self, seat: AgentPane, terminal: Terminal) -> Screen | TypingRefused:
        """What the agent shows; refused if segue must not type to it, whatever it shows."""
        try:
            input_line = self._approach(seat, terminal)
            return input_line if isinstance(input_line, TypingRefused) else input_line.look().screen
        except TmuxError as error:
            return TypingRefused("gone", str(error))

    def type(
        self,
        seat: AgentPane,
        terminal: Terminal,
        text: str,
        *,
        landed: Callable[[], bool],
        land_s: float = 10.0,
        keep_draft: bool = False,
        tries: int = 3,
    ) -> TypingRefused | None:
        """Types a text and submits it; None once `landed` says that the agent has it. With
        `keep_draft`, a draft of the user's is removed and restored afterwards. If the text is
        already in the input line, because an earlier call was killed, it is only submitted."""
        text, dropped = typeable(text)
        if dropped:
            self._say(f"{dropped} characters that a terminal takes for keys were left out")
        if not text:
            return TypingRefused("unknown", "there is nothing to type")
        input_line: InputLine | TypingRefused | None = None
        try:
            input_line = self._approach(seat, terminal)
            if isinstance(input_line, TypingRefused):
                return input_line
            input_line.sit_down()
            if refused := self._type(input_line, text, landed, keep_draft, tries):
                return refused
            input_line.guard.release()
            return self._wait_landed(landed, land_s)
        except TmuxError as error:
            return TypingRefused("gone", str(error))
        finally:
            if isinstance(input_line, InputLine):
                input_line.guard.release()

    def press(
        self,
        seat: AgentPane,
        terminal: Terminal,
        keys: Sequence[str],
        *,
        states: Sequence[State] = ("idle", "busy", "dialog"),
    ) -> TypingRefused | None:
        """Presses keys one by one, as long as the agent is in one of these states."""
        try:
            input_line = self._approach(seat, terminal)
            if isinstance(input_line, TypingRefused):
                return input_line
            input_line.sit_down()
            for number, name in enumerate(keys):
                if number:
                    self._times.sleep(_BETWEEN_KEYS_S)
                view = input_line.look()
                if view.screen.state not in states:
                    return _by_state(view.screen.state)
                if refused := self._present(input_line, view.status):
                    return refused
                input_line.guard.begin(view.status)
                if not input_line.guard.act(input_line.guard.press((key(name),))):
                    return _CHANGED
        except TmuxError as error:
            return TypingRefused("gone", str(error))
        return None

    def command(
        self, socket: str, pane_id: str, words: Sequence[str], *, line: str
    ) -> TypingRefused | None:
        """Makes a pane's own shell, which waits at its prompt, run one command. `line` is what
        `Tmux.shell_line` returned when it was judged to be an empty prompt. The words are plain, so
        no shell expands them."""
        if not words or not all(map(_WORD.fullmatch, words)):
            return TypingRefused("unknown", "this text must not be typed into a shell")
        try:
            tmux = self._tmux_for(socket)
            pane = tmux.pane(pane_id)
            if pane is None or pane.dead:
                return TypingRefused("gone")
            if pane.in_mode:
                return TypingRefused("copy_mode")
            guard = PaneGuard(tmux, pane)
            guard.reset()
            shown, status = guard.look()
            if not seats.shell_in(pane) or status.flags != "0000":
                return TypingRefused("not_in_front")
            if "".join(shown.lines[shown.cursor[1] :][:1]).rstrip() != line.rstrip():
                return TypingRefused("draft")
            if status.quiet_s(self._times.wall()) < self._times.quiet_s:
                return TypingRefused("user_active")
            guard.begin(status)
            name = f"segue-{secrets.token_hex(8)}"
            tmux.load(name, " ".join(words))
            # A shell needs no pause before Enter, so no key can come in between.
            put = guard.put(name, bracketed=False)
            if guard.act(put, guard.press(("Enter",)), cursor=status.cursor):
                return None
            tmux.run("delete-buffer", "-b", name)
            return _CHANGED
        except TmuxError as error:
            return TypingRefused("gone", str(error))

    # Checks

    def _approach(self, seat: AgentPane, terminal: Terminal) -> InputLine | TypingRefused:
        tmux = self._tmux_for(seat.socket)
        pane = tmux.pane(seat.pane)
        if why := seats.why_left(seat, pane, self._on):
            return TypingRefused(why)
        if pane is None or pane.in_mode:
            return TypingRefused("copy_mode")
        return InputLine(seat, terminal, tmux, pane, self._on, self._times)

    def _present(self, input_line: InputLine, status: PaneStatus) -> TypingRefused | None:
        """Refused if the agent is gone, or the user is active."""
        if why := input_line.why_left():
            return TypingRefused(why)
        if status.flags[1:2] == "1":
            return TypingRefused("copy_mode")
        if status.flags != "0000":
            return TypingRefused("unknown", "its panes are synchronized, or its input is off")
        return None if input_line.is_quiet(status) else TypingRefused("user_active")

    # Typing

    def _type(
        self,
        input_line: InputLine,
        text: str,
        landed: Callable[[], bool],
        keep_draft: bool,
        tries: int,
    ) -> TypingRefused | None:
        view = input_line.look()
        screen = view.screen
        if screen.state != "idle":
            return _by_state(screen.state)
        if refused := self._present(input_line, view.status):
            return refused
        stands = input_line.stands(view, text)
        if screen.draft and not stands:
            if not keep_draft or screen.pasted or not input_line.terminal.erase:
                return TypingRefused("draft")
            draft = input_line.kept_with(screen.draft)
        else:
            draft = input_line.stored_draft()
        input_line.guard.begin(view.status)
        if refused := self._place(input_line, view, text, stands=stands, draft=draft):
            return refused
        refused = self._submit(input_line, text, landed, tries)
        if (refused or draft) and not input_line.tidy(text, draft) and draft:
            self._say("the user's draft could not be put back: it is in tmux's paste buffers")
        return refused

    def _place(
        self, input_line: InputLine, view: InputView, text: str, *, stands: bool, draft: str
    ) -> TypingRefused | None:
        """Holds back the user's keys, and makes the input line contain segue's text and nothing
        else."""
        cursor = view.status.cursor
        hold = input_line.guard.holding()
        if hold is None:
            return TypingRefused("user_active", "a tmux key sequence is in progress")
        if not stands and not view.screen.draft:
            return None if input_line.put(text, *hold, cursor=cursor) else _CHANGED
        if not input_line.guard.act(*hold, cursor=cursor):
            return _CHANGED
        if stands or (input_line.keep(draft) and input_line.put(text)):
            return None
        input_line.tidy(text, draft)
        return _CHANGED

    def _submit(
        self, input_line: InputLine, text: str, landed: Callable[[], bool], tries: int
    ) -> TypingRefused | None:
        """Presses Enter while our text, and only that, is in the input line, until it has left. The
        text itself is never typed again."""
        settled = self._times.clock() + input_line.terminal.settle_s
        input_line.wait(
            lambda view: shows(view.screen, text), input_line.terminal.settle_s + _SHOW_S
        )
        self._times.sleep(max(0.0, settled - self._times.clock()))
        pressed = 0
        for _ in range(tries + _CHANGES):
            screen, status = input_line.look()
            if pressed and (landed() or not shows(screen, text)):
                return None
            if not input_line.guard.is_intact(status):
                return TypingRefused("draft", "the user typed")
            if screen.state != "idle":
                return _by_state(screen.state)
            if not shows(screen, text):
                return TypingRefused("swallowed", "the text did not appear in the input line")
            if why := input_line.why_left():
                return TypingRefused(why)
            if pressed == tries:
                break
            if input_line.submit(status.cursor):
                pressed += 1
                input_line.wait(lambda view: landed() or not shows(view.screen, text), _LEAVE_S)
        return TypingRefused("swallowed", "the text stays in the input line")

    def _wait_landed(self, landed: Callable[[], bool], land_s: float) -> TypingRefused | None:
        until = self._times.clock() + land_s
        while not landed():
            if self._times.clock() >= until:
                return TypingRefused("swallowed", "the text was sent, but nothing happened")
            self._times.sleep(LOOK_S)
        return None


def _by_state(state: State) -> TypingRefused:
    return TypingRefused("unknown" if state == "idle" else state)
