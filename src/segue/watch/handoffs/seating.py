"""Finds the pane of each agent: once for each process that has a session open."""

import os
import termios
import time
from contextlib import suppress

from segue.agents import terminals
from segue.agents.contracts.terminal import kept_arguments
from segue.core.sessions.types import Process
from segue.system.files import state
from segue.system.process.procfs import System, system
from segue.system.tmux import panes as seats
from segue.system.tmux.tmux import Pane, Tmux, TmuxError
from segue.watch.state import TrackedSession

_DEEP = 64
_RUNNERS = ("node", "bun", "deno", "python")
_WITHOUT_EDITOR = ("dash",)
_FRESH_S = 1.0  # how long a list of panes is recent enough


class Seating:
    """Fills in what a session's process reveals about itself. Takes some milliseconds for a new
    one."""

    def __init__(self, on: System | None = None) -> None:
        self._on = on or system()
        self._above = set(_ancestors(os.getpid(), self._on))
        self._servers: dict[str, _Panes] = {}

    def _server(self, socket: str) -> "_Panes":
        return self._servers.setdefault(socket, _Panes(socket))

    def learn(self, tracked: TrackedSession, process: Process) -> bool:
        """Runs once for each process; returns whether it is a new one."""
        is_new = tracked.seen_pid != process.pid or (
            tracked.seat is not None and tracked.seat.start_ticks != process.start_ticks
        )
        if not is_new:
            return False
        tracked.seen_pid = process.pid
        tracked.hook_end, tracked.shell_line, tracked.ended_at = "", None, None
        tracked.in_run = seats.in_run(process.pid)
        tracked.is_ours = process.pid in self._above
        tracked.terminal = terminals.find(process.agent)
        tracked.seat = None
        if tracked.terminal is not None:
            tracked.seat = seats.seat_of(process, tmux_for=self._server, on=self._on)
        tracked.socket = tracked.seat.socket if tracked.seat is not None else ""
        tracked.program, arguments = self._command(process.pid)
        tracked.flags = (
            kept_arguments(tracked.terminal, arguments) if tracked.terminal is not None else ()
        )
        return True

    def has_tmux(self) -> bool:
        """Whether the user's tmux has any pane."""
        with suppress(TmuxError):
            return bool(Tmux().panes())
        return False

    def shell_of(self, tracked: TrackedSession) -> tuple[bool, str | None, bool]:
        """Of the pane in which an agent has just ended: whether there is a tmux, what its shell
        shows (None: none waits there), and whether the pane is still there."""
        assert tracked.seat is not None
        if tracked.seat.socket == state.open_socket_path():
            return True, None, False  # a separate session can be started there at any time
        tmux = Tmux(tracked.seat.socket)
        try:
            pane = tmux.pane(tracked.seat.pane)
            if pane is None:
                return bool(tmux.panes()), None, False
            return True, tmux.shell_line(pane.id) if shell_waits(pane) else None, True
        except TmuxError:
            return False, None, False

    def _command(self, pid: int) -> tuple[str, list[str]]:
        """The command and arguments that would start it again."""
        program, arguments = self._on.program(pid), self._on.arguments(pid)[1:]
        script = arguments[0] if arguments else ""
        is_run = os.path.basename(program).rstrip("0123456789.") in _RUNNERS
        if is_run and os.path.isabs(script) and os.access(script, os.X_OK):
            return script, arguments[1:]
        return program, arguments


class _Panes(Tmux):
    """A tmux server whose panes are listed once for all lookups at the same time."""

    def __init__(self, socket: str) -> None:
        super().__init__(socket)
        self._listed: list[Pane] = []
        self._listed_at = float("-inf")

    def panes(self) -> list[Pane]:
        if time.monotonic() - self._listed_at >= _FRESH_S:
            self._listed = []
            with suppress(TmuxError):
                self._listed = super().panes()
            self._listed_at = time.monotonic()
        return self._listed

    def pane(self, id: str) -> Pane | None:
        return next((pane for pane in self.panes() if pane.id == id), None)


def shell_waits(pane: Pane) -> bool:
    """Whether the pane's own shell waits at its prompt and would react to Enter. A shell without
    a line editor reads keys as the terminal delivers them. A killed agent leaves the terminal
    in raw mode: then no line ever ends."""
    if not seats.shell_in(pane):
        return False
    if os.path.basename(system().program(pane.pid)) not in _WITHOUT_EDITOR:
        return True
    try:
        handle = os.open(pane.tty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        given, _, _, local, *_ = termios.tcgetattr(handle)
        return bool(given & termios.ICRNL and local & termios.ICANON)
    except termios.error:
        return False
    finally:
        os.close(handle)


def _ancestors(pid: int, on: System) -> list[int]:
    found = []
    for _ in range(_DEEP):
        facts = on.facts(pid)
        if facts is None or facts.parent <= 1:
            break
        pid = facts.parent
        found.append(pid)
    return found
