"""Who sits where: what is learned once of each process that is seen behind a session."""

import os
import time
from contextlib import suppress

from segue.agents import terminals
from segue.agents.terminal import kept as kept_flags
from segue.core.session import Process
from segue.io import seats
from segue.io.procfs import System, system
from segue.io.tmux import Pane, Tmux, TmuxError
from segue.watch.world import Kept

_DEEP = 64
_FRESH_S = 1.0  # how long a list of panes is good enough to find somebody in it


class Seating:
    """Fills in what a session's process tells of itself. Costs some milliseconds for a new one."""

    def __init__(self, on: System | None = None) -> None:
        self._on = on or system()
        self._above = set(_ancestors(os.getpid(), self._on))
        self._servers: dict[str, _Panes] = {}

    def _server(self, socket: str) -> "_Panes":
        return self._servers.setdefault(socket, _Panes(socket))

    def learn(self, kept: Kept, process: Process) -> None:
        """Once for each process; a seat is looked for again if there was none."""
        is_new = kept.seen_pid != process.pid or (
            kept.seat is not None and kept.seat.start_ticks != process.start_ticks
        )
        if not is_new:
            return
        kept.seen_pid = process.pid
        kept.hook_end, kept.shell_line, kept.ended_at = "", "", None
        kept.in_run = seats.in_run(process.pid)
        kept.is_ours = process.pid in self._above
        kept.terminal = terminals.find(process.agent)
        kept.seat = None
        if kept.terminal is not None:
            kept.seat = seats.seat_of(process, tmux_for=self._server, on=self._on)
        kept.program = self._on.program(process.pid)
        kept.flags = ()
        if kept.terminal is not None:
            kept.flags = kept_flags(kept.terminal, self._on.arguments(process.pid)[1:])


class _Panes(Tmux):
    """A server whose panes are listed once for all who are looked for at the same time."""

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


def _ancestors(pid: int, on: System) -> list[int]:
    found = []
    for _ in range(_DEEP):
        facts = on.facts(pid)
        if facts is None or facts.parent <= 1:
            break
        pid = facts.parent
        found.append(pid)
    return found
