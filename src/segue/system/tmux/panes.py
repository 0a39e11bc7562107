"""Finds the tmux pane of a process, and checks that the process still has it.

Of a process's environment, only the variables named here are read: the rest may contain keys.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from msgspec import Struct

from segue.core.sessions.types import Process
from segue.system.files import state
from segue.system.process.procfs import System, system
from segue.system.tmux import hosting
from segue.system.tmux.tmux import Pane, Tmux, TmuxError

SHELLS = ("sh", "bash", "zsh", "fish", "dash", "ksh", "mksh", "nu", "xonsh")
_IS_LINUX = sys.platform == "linux"
_ABOVE = 64  # how many ancestors are checked


class AgentPane(Struct, frozen=True, kw_only=True):
    """An agent's process in a pane. Valid as long as both are the same."""

    socket: str  # of the tmux server; "" for the user's default one
    pane: str
    tty: str
    pid: int
    start_ticks: int
    agent: str


class _Posture(NamedTuple):
    """How a process relates to its terminal."""

    state: str
    group: int
    terminal: int  # as a device number; 0: none
    front: int  # the group that is in the terminal's foreground


def seat_of(
    process: Process, *, tmux_for: Callable[[str], Tmux] = Tmux, on: System | None = None
) -> AgentPane | None:
    """The pane of a process, or None. Its environment counts only if the pane's terminal is the
    process's, because everything started from a pane inherits it."""
    on = on or system()
    for socket, wanted in _possible_panes(process.pid):
        try:
            tmux = tmux_for(socket)
            panes = [tmux.pane(wanted)] if wanted else tmux.panes()
        except TmuxError:
            continue
        for pane in panes:
            if pane is not None and sits_in(process.pid, pane, on):
                return AgentPane(
                    socket=socket,
                    pane=pane.id,
                    tty=pane.tty,
                    pid=process.pid,
                    start_ticks=process.start_ticks,
                    agent=process.agent,
                )
    return None


def in_run(pid: int) -> bool:
    """Whether a `segue run` started it or one of its ancestors."""
    return bool(_variables(pid, ("SEGUE_RUN",)))


def why_left(seat: AgentPane, pane: Pane | None, on: System) -> Literal["", "gone", "not_in_front"]:
    """Why segue must no longer type to an agent in its pane; "" if it may."""
    facts = on.facts(seat.pid)
    if pane is None or pane.dead or facts is None or facts.start_ticks != seat.start_ticks:
        return "gone"
    if not sits_in(seat.pid, pane, on):
        return "gone"
    posture = _posture(seat.pid)
    if posture is None:
        return "gone"
    return "" if posture.group == posture.front and posture.state != "T" else "not_in_front"


def shell_in(pane: Pane) -> bool:
    """Whether the pane's own shell waits at its prompt: it is in the foreground, has neither a
    script nor a command, and runs nothing there."""
    on = system()
    arguments = on.arguments(pane.pid)
    named = os.path.basename(arguments[0]).removeprefix("-") if arguments else ""
    posture = _posture(pane.pid)
    if pane.dead or pane.in_mode or posture is None or named not in SHELLS:
        return False
    if any(not a.startswith("-") or (a[1:2] != "-" and "c" in a) for a in arguments[1:]):
        return False
    if posture.state != "S" or posture.group != posture.front:
        return False
    # Without job control, a shell's commands stay in its group.
    same = (_posture(child) for child in _children(pane.pid))
    return not any(p is not None and p.group == posture.group for p in same)


def sits_in(pid: int, pane: Pane, on: System) -> bool:
    """Whether the pane's terminal is the process's."""
    posture = _posture(pid)
    if posture is None or not posture.terminal:
        return False
    try:
        return os.stat(pane.tty).st_rdev == posture.terminal
    # another view of /dev: then it must be a descendant of the pane's first process
    except OSError:
        return any(above == pane.pid for above in _above(pid, on))


def _above(pid: int, on: System) -> Iterator[int]:
    for _ in range(_ABOVE):
        yield pid
        facts = on.facts(pid)
        if facts is None or facts.parent <= 1:
            return
        pid = facts.parent


def _possible_panes(pid: int) -> Iterator[tuple[str, str]]:
    """Servers and panes that a process may be in; "": any pane of the server."""
    variables = _variables(pid, ("TMUX", "TMUX_PANE"))
    socket = variables.get("TMUX", "").rsplit(",", 2)[0]
    if socket and variables.get("TMUX_PANE"):
        yield socket, variables["TMUX_PANE"]
    if socket:
        yield socket, ""
    if hosting.is_there():  # agents in there do not know about it
        yield state.open_socket_path(), ""
    yield "", ""


def _variables(pid: int, names: tuple[str, ...]) -> dict[str, str]:
    if not _IS_LINUX:
        return _variables_elsewhere(pid, names)
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = [pair.partition(b"=") for pair in file.read().split(b"\0")]
    except OSError:
        return {}
    wanted = {os.fsencode(name): name for name in names}
    return {wanted[name]: os.fsdecode(value) for name, _, value in pairs if name in wanted}


def _variables_elsewhere(pid: int, names: tuple[str, ...]) -> dict[str, str]:
    import psutil

    try:
        environment = psutil.Process(pid).environ()
    except (psutil.Error, OSError, ValueError):
        return {}
    return {name: environment[name] for name in names if name in environment}


def _posture(pid: int) -> _Posture | None:
    if not _IS_LINUX:
        return _posture_elsewhere(pid)
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        group, device, front = int(fields[2]), int(fields[4]), int(fields[5])
    except (OSError, IndexError, ValueError):
        return None
    # The kernel's own form of a device number differs from that of `stat`.
    major, minor = (device >> 8) & 0xFFF, (device & 0xFF) | ((device >> 12) & 0xFFF00)
    return _Posture(fields[0].decode(), group, os.makedev(major, minor) if device else 0, front)


def _posture_elsewhere(pid: int) -> _Posture | None:
    argv = ["ps", "-o", "state=,pgid=,tpgid=,tty=", "-p", str(pid)]
    try:
        output = subprocess.run(argv, capture_output=True, text=True, timeout=5)  # noqa: S603
        state, group, front, tty = output.stdout.split()
        terminal = os.stat(f"/dev/{tty}").st_rdev
        return _Posture(state[:1], int(group), terminal, int(front))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def _children(pid: int) -> list[int]:
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except (psutil.Error, OSError):
        return []
