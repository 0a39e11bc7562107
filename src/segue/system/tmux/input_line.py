"""An agent's input line while segue types a text: its content, inserting and removing text, and
restoring the user's own draft afterwards."""

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from segue.agents.contracts.terminal import Terminal
from segue.core.terminals.draft import is_all, rows, shows, without
from segue.core.terminals.screen import Screen, same
from segue.system.process.procfs import System
from segue.system.tmux import panes as seats
from segue.system.tmux.guard import PaneGuard, PaneStatus, note
from segue.system.tmux.panes import AgentPane
from segue.system.tmux.tmux import Pane, Tmux, TmuxError, key

LOOK_S = 0.03
_ECHO_S = 1.0  # for an agent to show what was typed
_ERASED_S = 0.15
_ERASES = 12
_MAX_ROWS = 100
_TIDY_S = 20.0  # for a pause in which the user's draft can be restored


class Times(NamedTuple):
    """The clock, and how long the user must not have pressed a key."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    wall: Callable[[], float] = time.time
    quiet_s: float = 2.0


class InputView(NamedTuple):
    """One look at the input line."""

    screen: Screen
    status: PaneStatus


class InputLine:
    """The input line of a pane. Methods may raise a TmuxError. Before `sit_down` is called, it is
    only observed, which is allowed while another call types."""

    def __init__(
        self, seat: AgentPane, terminal: Terminal, tmux: Tmux, pane: Pane, on: System, times: Times
    ) -> None:
        self.seat, self.terminal, self.tmux = seat, terminal, tmux
        self.guard = PaneGuard(tmux, pane)
        self._on = on
        self._times = times
        # Where the user's draft is stored while it is not in the input line.
        self._buffer = f"segue-draft-{pane.id[1:]}-{seat.pid}-{seat.start_ticks}"

    def sit_down(self) -> None:
        """Prepares the line for changes, by clearing what a call that was killed left there."""
        self.guard.reset()

    def look(self) -> InputView:
        """What the input line shows now."""
        shown, status = self.guard.look()
        return InputView(self.terminal.read(shown), status)

    def wait(self, met: Callable[[InputView], bool], max_s: float) -> InputView:
        """Looks until a condition holds, or for this long; returns the last look."""
        until = self._times.clock() + max_s
        while True:
            view = self.look()
            if met(view) or self._times.clock() >= until:
                return view
            self._times.sleep(LOOK_S)

    def why_left(self) -> Literal["", "gone", "not_in_front"]:
        """Why segue must no longer type to the agent."""
        return seats.why_left(self.seat, self.tmux.pane(self.seat.pane), self._on)

    def is_quiet(self, status: PaneStatus) -> bool:
        """Whether the user has pressed no key for a while, and none is pending."""
        if status.late or status.keys == "held":
            return False
        return status.quiet_s(self._times.wall()) >= self._times.quiet_s

    # segue's text

    def stands(self, view: InputView, text: str) -> bool:
        """Whether the line contains only our text, left there by a call that was killed."""
        was_put = view.status.ours == note(_digest(text), view.status)
        return is_all(view.screen, text) or (was_put and shows(view.screen, text))

    def put(self, text: str, *first: str, cursor: tuple[int, int] | None = None) -> bool:
        """Inserts our text into the empty input line; returns whether it did."""
        name = f"segue-{secrets.token_hex(8)}"
        self.tmux.load(name, text)
        # A command is typed: some agents treat a pasted one as text.
        is_pasted = self.terminal.takes_paste and not text.startswith("/")
        commands = (self.guard.mark(_digest(text)), self.guard.put(name, bracketed=is_pasted))
        if self.guard.act(*first, *commands, cursor=cursor):
            return True
        self.tmux.run("delete-buffer", "-b", name)
        return False

    def submit(self, cursor: tuple[int, int]) -> bool:
        """Presses Enter if nothing has changed; returns whether it did."""
        enter = self.guard.press((key(self.terminal.submit),))
        return self.guard.act(enter, self.guard.mark(""), cursor=cursor)

    # The user's draft

    def stored_draft(self) -> str:
        """A draft of the user's that was removed and not restored yet."""
        try:
            return self.tmux.run("show-buffer", "-b", self._buffer)
        except TmuxError:
            return ""

    def kept_with(self, draft: str) -> str:
        """That draft, and what the line contains now. A call that was killed may have stored a
        draft without removing it."""
        earlier = self.stored_draft()
        return earlier if same(earlier, draft) else earlier + draft

    def keep(self, draft: str) -> bool:
        """Removes the user's draft, to be restored by `tidy`; returns whether the line is empty
        now."""
        self.tmux.load(self._buffer, draft)
        return self._erase(draft)

    def tidy(self, text: str, draft: str) -> bool:
        """Leaves only the user's text in the input line: the stored draft, and what they typed
        since. If keys of theirs were delivered, waits for a pause. Returns whether it succeeded."""
        until = self._times.clock() + _TIDY_S
        # keys of theirs were delivered; they may have been held back, so the time is unknown
        seen_at = None
        while True:
            view = self.look()
            is_intact = self.guard.is_intact(view.status)
            if not is_intact:
                seen_at = seen_at or self._times.clock()
                is_shown = self._times.clock() >= seen_at + _ECHO_S
                if renewed := self._renew() if is_shown else None:
                    view, is_intact = renewed, True
            if view.screen.state in ("idle", "busy"):
                if is_intact and self._rewrite(view, draft + without(view.screen, text)):
                    return True
            elif is_intact and not draft:
                return False  # a dialog hides it: the next call finds it
            if self._times.clock() >= until or self.why_left():
                return False
            self._times.sleep(LOOK_S)

    def _renew(self) -> InputView | None:
        """Starts over, once the user pauses."""
        self.guard.release()
        self.guard.reset()
        view = self.look()
        if not self.is_quiet(view.status) or view.status.flags != "0000" or self.why_left():
            return None
        self.guard.begin(view.status)
        hold = self.guard.holding()
        return view if hold is not None and self.guard.act(*hold) else None

    def _rewrite(self, view: InputView, wanted: str) -> bool:
        if view.screen.draft == wanted:
            if not self.guard.act(self.guard.mark("")):
                return False
            if self.stored_draft():
                self.tmux.run("delete-buffer", "-b", self._buffer)
            return True
        if wanted:  # before anything is removed
            self.tmux.load(self._buffer, wanted)
        if view.screen.draft and not self._erase(view.screen.draft):
            return False
        if not wanted:
            return self.guard.act(self.guard.mark(""))
        put = self.guard.put(self._buffer, bracketed=self.terminal.takes_paste)
        return self.guard.act(self.guard.mark(""), put)

    def _erase(self, draft: str) -> bool:
        """Empties the input line; returns whether it is empty."""
        names = [key(name) for name in self.terminal.erase]
        for _ in range(_ERASES if names else 0):
            # Once for each line; more do no harm.
            if not self.guard.act(self.guard.press(names * min(rows(draft), _MAX_ROWS))):
                return False
            view = self.wait(lambda v: not v.screen.draft, _ERASED_S)
            draft = view.screen.draft
            if not draft:
                return self.guard.is_intact(view.status)
        return False


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
