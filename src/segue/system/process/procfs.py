"""What the system knows about running processes. No function raises: a process may be gone by the
time it is looked up, or belong to another user.

On Linux, /proc is read directly: psutil reads the same files, takes 30 ms to import, and knows
neither locks nor a start time that stays the same when the clock is set. It is used on other
systems.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

_DELETED = " (deleted)"  # what Linux adds to the path of a file or folder that was removed
_READ_BYTES = 64 << 10


class Facts(NamedTuple):
    """What identifies a process."""

    parent: int
    started_at: float
    start_ticks: int  # 0 if unknown


class Flock(NamedTuple):
    """A write lock on a whole file."""

    pid: int
    device: str  # "fe:00"
    inode: int


class System(Protocol):
    """What can be asked about processes."""

    def names(self) -> dict[int, str]:
        """The pid and name of every process."""

    def facts(self, pid: int) -> Facts | None:
        """None if it is gone or a zombie."""

    def arguments(self, pid: int) -> list[str]:
        """Its command line."""

    def program(self, pid: int) -> str:
        """The path of its executable."""

    def cwd(self, pid: int) -> str:
        """Its working folder."""

    def open_files(self, pid: int) -> list[str]:
        """The paths of its open files."""

    def locks(self) -> list[Flock]:
        """All locks on whole files, if the system reports them."""

    def domain(self) -> str:
        """The domain in which pids have the same meaning; "" if it has no name."""


def system() -> System:
    """This machine."""
    return Procfs() if sys.platform == "linux" else Psutil()


class Procfs:
    """Linux."""

    def __init__(
        self,
        root: str = "/proc",
        machine_id: str = "/etc/machine-id",
        booted_at: float | None = None,
    ) -> None:
        self.root = root
        self.machine_id = machine_id
        if booted_at is None:  # /proc/stat has it too, but only in whole seconds
            booted_at = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._booted_at = booted_at
        self._ticks_per_second = os.sysconf("SC_CLK_TCK")

    def names(self) -> dict[int, str]:
        try:
            entries = os.listdir(self.root)
        except OSError:
            return {}
        pids = [name for name in entries if name.isdecimal() and name.isascii()]
        read = ((int(pid), self._read(pid, "comm")) for pid in pids)
        return {pid: name.decode("utf-8", "replace").rstrip("\n") for pid, name in read}

    def facts(self, pid: int) -> Facts | None:
        # The name in brackets may contain anything, including brackets and spaces.
        fields = self._read(pid, "stat").rpartition(b")")[2].split()
        try:
            state, parent, ticks = fields[0], int(fields[1]), int(fields[19])
        except (IndexError, ValueError):
            return None
        if state in (b"Z", b"X", b"x"):
            return None
        started_at = self._booted_at + ticks / self._ticks_per_second
        return Facts(parent, round(started_at, 2), ticks)

    def arguments(self, pid: int) -> list[str]:
        return self._read(pid, "cmdline").decode("utf-8", "replace").removesuffix("\0").split("\0")

    def program(self, pid: int) -> str:
        return self._link(f"{pid}/exe")

    def cwd(self, pid: int) -> str:
        return self._link(f"{pid}/cwd")

    def open_files(self, pid: int) -> list[str]:
        try:
            numbers = os.listdir(f"{self.root}/{pid}/fd")
        except OSError:
            return []
        links = (self._link(f"{pid}/fd/{number}", removed="") for number in numbers)
        return [link for link in links if link.startswith("/")]

    def locks(self) -> list[Flock]:
        """`1: FLOCK  ADVISORY  WRITE 4711 fe:00:524312 0 EOF`; only those of our pid namespace."""
        return list(_flocks(self._read("", "locks", limit=4 << 20)))

    def domain(self) -> str:
        namespace = self._link("self/ns/pid")
        try:
            with open(self.machine_id, encoding="ascii", errors="replace") as file:
                machine = file.read(64).strip()
        except OSError:
            machine = ""
        return f"linux:{machine}:{namespace}" if namespace else ""

    def _read(self, pid: int | str, name: str, limit: int = _READ_BYTES) -> bytes:
        try:
            handle = os.open(f"{self.root}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return b""
        try:
            data = chunk = os.read(handle, _READ_BYTES)
            while chunk and len(data) < limit and limit > _READ_BYTES:  # /proc reports it in pages
                data += (chunk := os.read(handle, _READ_BYTES))
        except OSError:
            return b""
        finally:
            os.close(handle)
        return data

    def _link(self, name: str, removed: str | None = None) -> str:
        """The target of a link; `removed` instead, if the target no longer exists."""
        try:
            target = os.fsencode(os.readlink(f"{self.root}/{name}")).decode("utf-8", "replace")
        except OSError:
            return ""
        if not target.endswith(_DELETED):
            return target
        return target.removesuffix(_DELETED) if removed is None else removed


def _flocks(text: bytes) -> Iterator[Flock]:
    for line in text.splitlines():
        with suppress(ValueError, IndexError):
            _, kind, _, mode, pid, place, *_ = line.decode("ascii", "replace").split()
            if kind == "FLOCK" and mode == "WRITE":
                device, _, inode = place.rpartition(":")
                yield Flock(int(pid), device, int(inode))


class Psutil:
    """Other systems. They report no locks, but open files."""

    def __init__(self) -> None:
        import psutil

        self._fault = psutil.Error
        self._process = psutil.Process
        self._dead = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        self._all = psutil.process_iter

    def names(self) -> dict[int, str]:
        return {p.pid: str(p.info["name"] or "") for p in self._all(["name"])}

    def facts(self, pid: int) -> Facts | None:
        try:
            process = self._process(pid)
            if process.status() in self._dead:
                return None
            return Facts(process.ppid(), process.create_time(), 0)
        except (self._fault, OSError, ValueError):
            return None

    def arguments(self, pid: int) -> list[str]:
        return [str(argument) for argument in self._ask(pid, "cmdline") or ()]

    def program(self, pid: int) -> str:
        return str(self._ask(pid, "exe") or "")

    def cwd(self, pid: int) -> str:
        return str(self._ask(pid, "cwd") or "")

    def open_files(self, pid: int) -> list[str]:
        return [str(file.path) for file in self._ask(pid, "open_files") or ()]

    def locks(self) -> list[Flock]:
        return []

    def domain(self) -> str:
        return ""

    def _ask(self, pid: int, what: str) -> Any:
        try:
            return getattr(self._process(pid), what)()
        except (self._fault, OSError, ValueError):
            return None
