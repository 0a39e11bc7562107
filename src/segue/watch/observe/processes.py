"""Tracks the agents' processes as they start, change and exit. Linux reports an exit at once,
through a descriptor for each process; new processes are found by scanning all processes from
time to time.

A scan costs only what is new: a process that reports in a file of its own what it works on is
not read again until that file changes.
"""

import errno
import os
import selectors
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from segue.agents import signs_of
from segue.agents.signs import PidFiles
from segue.core.sessions.types import Process
from segue.sessions.find import Home
from segue.system.process.processes import living
from segue.system.process.procfs import Facts, Flock, System, system
from segue.system.tmux import hosting
from segue.watch.observe import exits
from segue.watch.observe.endings import After, Terminal

REREAD_SHARE = 6
"""One in this many files about processes is read at each pass, even without an event."""
REMEMBER_S = 60.0
"""How long segue remembers how a process ended."""
IDLE_S = 10.0
"""How long a process may show nothing before it counts as working on nothing. A process that ends
closes its files first."""
SPARE_FILES = 256
"""How many open files are reserved for everything else; at most a quarter of the user's limit."""

_MAX_FILES = 1 << 16
_CLOCK_SET_S = 2.0


class ProcessPlace(NamedTuple):
    """Where a process runs: the leader of its terminal session is the shell it was started in."""

    has_terminal: bool
    leader: int
    leader_ticks: int
    is_hosted: bool = False  # started by `segue open`: closing a terminal there only detaches it


class Changes(NamedTuple):
    """What a scan found: processes that are new or report something new, those that are gone,
    and live ones that are no longer a working agent's."""

    changed: list[Process]
    ended: list[Process]
    idle: list[Process]


class _Remains(NamedTuple):
    handle: int | None
    place: ProcessPlace | None
    ended_at: float


class ProcessTracker:
    """Tracks the running agents. `selector` learns about exits: their keys have `data` = a pid."""

    def __init__(self, selector: selectors.BaseSelector, on: System | None = None) -> None:
        self.on = on or system()
        self._is_own = on is None
        self._booted_at = _booted_at()
        self.known: dict[int, Process] = {}
        self._selector = selector
        self._handles: dict[int, int] = {}
        self._places: dict[int, ProcessPlace | None] = {}
        self._remains: dict[tuple[int, int], _Remains] = {}
        self._silent_since: dict[int, float] = {}  # those that showed nothing at the last look
        self._turn = 0

    @property
    def must_look(self) -> bool:
        """Whether some process could exit unnoticed, so that only a scan finds out."""
        return len(self._handles) < len(self.known)

    # Looking

    def look(self, homes: Sequence[Home], now: float) -> Changes:
        """Scans all processes."""
        self._bury(now)
        if self._is_own and abs(_booted_at() - self._booted_at) > _CLOCK_SET_S:
            self.on, self._booted_at = system(), _booted_at()  # the clock was set
        names = self.on.names()
        if self._is_own and self.on.facts(os.getpid()) is None:
            # nothing can be read now, which does not mean that a process has ended
            return Changes([], [], [])
        telling_homes = [home for home in homes if _files_of(home)]
        silent_homes = [home for home in homes if not _files_of(home)]
        tells = {home.agent for home in telling_homes}
        ended = [p for pid, p in self.known.items() if self._has_ended(pid, p, names)]
        for process in ended:
            self._end(process.pid, now)
        self._turn = (self._turn + 1) % REREAD_SHARE
        asked = {
            pid: name
            for pid, name in names.items()
            if pid not in self.known
            or self.known[pid].agent not in tells
            or pid % REREAD_SHARE == self._turn
        }
        met = (
            {p.pid: p for p in living(silent_homes, _Some(self.on, names))} if silent_homes else {}
        )
        met |= (
            {p.pid: p for p in living(telling_homes, _Some(self.on, asked))}
            if telling_homes
            else {}
        )
        found = [*met.values()]
        # A process that stopped reporting what it works on is still working: it is just writing
        # that file, or has removed it because it is about to end.
        silent = [p for pid, p in self.known.items() if p.agent not in tells and pid not in met]
        self._silent_since = {p.pid: self._silent_since.get(p.pid, now) for p in silent}
        idle = [p for p in silent if now >= self._silent_since[p.pid] + IDLE_S]
        for process in idle:
            self._forget(process.pid)
        ended_now: list[Process] = []
        changed = [p for process in found for p in self._take(process, now, ended_now)]
        return Changes(changed, [*ended, *ended_now], idle)

    def reread(self, homes: Sequence[Home], pids: Collection[int], now: float) -> Changes:
        """Looks only at these processes, because the files that they keep about themselves have
        changed."""
        telling = [home for home in homes if _files_of(home)]
        names = {pid: self._name(pid) for pid in pids}
        found = living(telling, _Some(self.on, {p: n for p, n in names.items() if n is not None}))
        ended_now: list[Process] = []
        changed = [p for process in found for p in self._take(process, now, ended_now)]
        return Changes(changed, ended_now, [])

    def _name(self, pid: int) -> str | None:
        """None if there is no such process. Only whether it has an agent's name matters."""
        if self.on.facts(pid) is None:
            return None
        known = self.known.get(pid)
        signs = signs_of(known.agent) if known else None
        return signs.names[0] if signs else ""

    def _take(self, process: Process, now: float, ended_now: list[Process]) -> Iterable[Process]:
        before = self.known.get(process.pid)
        if before is not None and not _is_same(before, process):
            self._end(before.pid, now)
            ended_now.append(before)
            before = None
        if before == process:
            return
        if before is None and not self._hold(process):
            return  # it has ended meanwhile
        self.known[process.pid] = process
        yield process

    def _has_ended(self, pid: int, process: Process, names: dict[int, str]) -> bool:
        """Only for processes without a handle: handles report the exits of the others."""
        if pid in self._handles:
            return False
        facts = self.on.facts(pid) if pid in names else None
        return facts is None or facts.start_ticks != process.start_ticks

    # Ends

    def ended(self, pid: int, now: float) -> Process | None:
        """A handle reported an exit: returns the process, or None if it is not tracked."""
        return self._end(pid, now)

    def after(self, process: Process) -> After:
        """What is known about how the process ended. A closing terminal disappears a moment after
        its agent."""
        remains = self._remains.get((process.pid, process.start_ticks))
        if remains is None:
            return After()
        # in this order: its parent may be asking right now
        code = exits.zombie_exit_code(process.pid, process.start_ticks)
        is_reaped = exits.is_reaped(remains.handle)
        if code is None:
            code = exits.exit_code(remains.handle)
        return After(
            terminal=self._terminal(process, remains.place),
            exit_code=code,
            is_final=is_reaped or code is not None,
        )

    def close(self) -> None:
        """Closes all handles."""
        for pid in [*self._handles]:
            self._forget(pid)
        self._bury(float("inf"))

    def _hold(self, process: Process) -> bool:
        """Whether it is alive: a handle belongs to whichever process has the pid now."""
        pid = process.pid
        handle = _opened(pid)
        facts = self.on.facts(pid)
        if facts is None or facts.start_ticks != process.start_ticks:
            if handle is not None:
                os.close(handle)
            return False
        if handle is not None:
            self._handles[pid] = handle
            self._selector.register(handle, selectors.EVENT_READ, pid)
        self._places[pid] = self._place(pid)
        return True

    def _end(self, pid: int, now: float) -> Process | None:
        process = self.known.pop(pid, None)
        handle, place = self._handles.pop(pid, None), self._places.pop(pid, None)
        if handle is not None:
            self._selector.unregister(handle)
        if process is None:
            if handle is not None:
                os.close(handle)
            return None
        former = self._remains.pop((pid, process.start_ticks), None)
        if former is not None and former.handle is not None:
            os.close(former.handle)  # it became another agent before
        self._remains[pid, process.start_ticks] = _Remains(handle, place, now)
        return process

    def _forget(self, pid: int) -> None:
        self.known.pop(pid, None)
        self._places.pop(pid, None)
        handle = self._handles.pop(pid, None)
        if handle is not None:
            self._selector.unregister(handle)
            os.close(handle)

    def _bury(self, now: float) -> None:
        for name, remains in [*self._remains.items()]:
            if now >= remains.ended_at + REMEMBER_S:
                del self._remains[name]
                if remains.handle is not None:
                    os.close(remains.handle)

    # Terminals

    def _place(self, pid: int) -> ProcessPlace | None:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            leader, terminal = int(fields[3]), int(fields[4])
        except (OSError, ValueError, IndexError):
            return None
        facts = self.on.facts(leader) if terminal else None
        is_hosted = facts is not None and hosting.is_host(self.on.arguments(leader))
        return ProcessPlace(terminal != 0, leader, facts.start_ticks if facts else 0, is_hosted)

    def _terminal(self, process: Process, place: ProcessPlace | None) -> Terminal:
        if place is None:
            return "unknown"
        if not place.has_terminal:
            return "none"
        if place.is_hosted:
            return "there"
        if place.leader == process.pid:
            return "own"
        facts = self.on.facts(place.leader)
        is_there = facts is not None and facts.start_ticks == place.leader_ticks
        return "there" if is_there else "gone"


class _Some:
    """The system restricted to some of its processes."""

    def __init__(self, on: System, names: dict[int, str]) -> None:
        self._on, self._names = on, names

    def names(self) -> dict[int, str]:
        return self._names

    def facts(self, pid: int) -> Facts | None:
        return self._on.facts(pid)

    def arguments(self, pid: int) -> list[str]:
        return self._on.arguments(pid)

    def program(self, pid: int) -> str:
        return self._on.program(pid)

    def cwd(self, pid: int) -> str:
        return self._on.cwd(pid)

    def open_files(self, pid: int) -> list[str]:
        return self._on.open_files(pid)

    def locks(self) -> list[Flock]:
        return self._on.locks()

    def domain(self) -> str:
        return self._on.domain()


def pid_files(home: Home) -> PidFiles | None:
    """The files that this home's agent keeps about its processes."""
    signs = signs_of(home.agent)
    if signs is None:
        from segue import agents

        profile = agents.find(home.agent)
        signs = profile.signs if profile is not None else None
    return signs.pid_files if signs is not None else None


def _files_of(home: Home) -> bool:
    """Whether its processes describe themselves there. Old versions did not."""
    files = pid_files(home)
    return files is not None and os.path.isdir(os.path.join(home.path, files.folder))


def _is_same(one: Process, other: Process) -> bool:
    return one.start_ticks == other.start_ticks and one.agent == other.agent


def _opened(pid: int) -> int | None:
    """A handle on a process; None where there are none, or no more."""
    if not hasattr(os, "pidfd_open"):
        return None
    for _ in range(2):
        try:
            handle = os.pidfd_open(pid)
        except OSError as fault:
            if fault.errno != errno.EMFILE or not _allow_more():
                return None
            continue
        if handle < _max_handles():
            return handle
        os.close(handle)  # without a spare descriptor, nothing could be read any more
        if not _allow_more():
            return None
    return None


def _max_handles() -> int:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_FILES if soft == resource.RLIM_INFINITY else soft - min(SPARE_FILES, soft // 4)


def _allow_more() -> bool:
    """Raises the limit on open files as far as this user may: segue needs one per agent."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft >= most:
        return False
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return True
    return False


def _booted_at() -> float:
    """The boot time according to the current clock; 0 if the system does not say."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time() - time.clock_gettime(clock) if clock is not None else 0.0
