"""Finds the processes that a leg left behind, and ends them.

Agents run their tools in separate process sessions, so the tools of a killed agent survive and
no process group reaches them. Two things find them again: on Linux a process can adopt the
orphans below it, and every process of a leg carries the leg's mark in its environment.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable

import psutil
from msgspec import Struct

from segue.system.process.procfs import Procfs

MARK = "SEGUE_LEG"
GRACE_S = 1.0  # between SIGTERM and SIGKILL
IS_LINUX: bool = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LOOK_S = 0.02
_ROUNDS = 20  # rounds of searching: the end of one process may orphan others


class EndedProcess(Struct, frozen=True):
    """A process that a leg left behind, and that had to be ended."""

    pid: int
    argv: tuple[str, ...]
    by: str  # the signal that ended it


def end_all(
    find: Callable[[], list[psutil.Process]], grace_s: float = GRACE_S
) -> list[EndedProcess]:
    """Ends what `find` returns, repeatedly until it returns nothing; returns what had to be
    ended."""
    ended: dict[psutil.Process, EndedProcess] = {}
    for _ in range(_ROUNDS):
        left = find()
        if not left:
            break
        for process in left:
            # Known from an earlier round: it ignored SIGTERM.
            name = "SIGKILL" if process in ended else "SIGTERM"
            with contextlib.suppress(psutil.Error):
                # psutil compares the start time, so a reused pid is not hit.
                argv = tuple(process.cmdline())
                process.send_signal(signal.Signals[name])
                ended[process] = EndedProcess(process.pid, argv, name)
        until = time.monotonic() + grace_s
        while left and time.monotonic() < until:
            # Not for the whole grace period at once: zombies of another parent may stay.
            left = list(filter(runs, psutil.wait_procs(left, timeout=_LOOK_S)[1]))
    return list(ended.values())


def marked(name: str, value: str, started: float) -> list[psutil.Process]:
    """The running descendants of this process with this variable in their environment, the oldest
    first."""
    found = []
    for process in near(started):
        with contextlib.suppress(OSError, psutil.Error):
            if process.environ().get(name) == value and runs(process):
                found.append(process)
    return sorted(found, key=age)


def left_by(mark: str, agent_pid: int, agent_start_ticks: int) -> list[psutil.Process]:
    """All processes on this machine that belong to a leg whose keeper is gone, the oldest first:
    everything with its mark, the agent's session, and all descendants of those. Only this user's,
    and never this process or its ancestors."""
    session = agent_pid if _is_still(agent_pid, agent_start_ticks) else 0
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(OSError, psutil.Error):
            if process.uids().real == os.getuid() and (
                (session and os.getsid(process.pid) == session)
                or process.environ().get(MARK) == mark
            ):
                found.add(process)
    for process in list(found):
        with contextlib.suppress(psutil.Error):
            found.update(process.children(recursive=True))
    this = psutil.Process()
    return sorted(filter(runs, found - {this, *this.parents()}), key=age)


def _is_still(pid: int, start_ticks: int) -> bool:
    """Whether this pid is still that process, and not a later one."""
    facts = Procfs().facts(pid) if IS_LINUX and pid and start_ticks else None
    return facts is not None and facts.start_ticks == start_ticks


def end_with_parent(number: signal.Signals) -> None:
    """Makes the kernel signal this process when its parent ends, for whatever reason. Linux
    only."""
    if IS_LINUX:
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # too late
            os.kill(os.getpid(), number)


def near(started: float) -> Iterable[psutil.Process]:
    """Every process that may belong to a leg started at that time."""
    if IS_LINUX:
        return psutil.Process().children(recursive=True)
    # Orphans are not reparented to us here: check everything younger.
    return [p for p in psutil.process_iter(["create_time"]) if p.info["create_time"] >= started - 1]


def runs(process: psutil.Process) -> bool:
    """Whether it is more than a zombie."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def age(process: psutil.Process) -> tuple[float, int]:
    """A sort key for the oldest first: a shell whose command is killed before it would continue
    with the next one."""
    return process.create_time(), process.pid


def adopt_orphans() -> None:
    """Makes this process adopt the orphans below it."""
    if IS_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
