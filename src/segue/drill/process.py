"""One leg: one life of an agent's process, from its start to the end of all that it left behind.

Agents run their tools in sessions of their own, so that a killed agent's tools live on and no
process group reaches them. Two things find them again: on Linux this process adopts the orphans,
and every process of a leg carries the leg's mark in its environment.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from msgspec import Struct

from segue.drill import enclosure

MARK = "SEGUE_LEG"
_IS_LINUX: bool = sys.platform == "linux"
_DEFAULT = [
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGQUIT,
    signal.SIGPIPE,  # ignored by Python itself, as is the next
    signal.SIGXFSZ,
    signal.SIGCHLD,
]
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TO_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_LOOK_S = 0.02  # where the kernel cannot wake us
_GRACE_S = 1.0  # between SIGTERM and SIGKILL
_KILL_S = 5.0  # even SIGKILL takes a moment
_ROUNDS = 20  # of looking for what is left: the end of one may set others free
_IN_FOLDER = 'cd -- "$0" && exec "$@"'


class Ended(Struct, frozen=True):
    """A process that a leg left behind, and that had to be ended."""

    pid: int
    argv: tuple[str, ...]
    by: str  # the signal that it took


class Leg:
    """A process that was started here. May be waited for and signalled by several threads.

    As a context manager it leaves nothing running, however its block ends."""

    def __init__(self, pid: int, mark: str, started: float, owns_all: bool = False) -> None:
        self.pid = pid
        self._owns_all = owns_all
        self.exit_code: int | None = None  # negative: the signal that it died of
        self._mark = mark
        self._started = started  # unix time
        self._lock = threading.Lock()

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        stdout: Path,
        stderr: Path,
        stdin: bytes = b"",
        must_be_enclosed: bool = False,
        owns_all: bool = False,
    ) -> Self:
        """Starts it in a session of its own, with no signal ignored or blocked, whatever this
        process inherited. Its output goes to files, which anyone may read while they grow.
        `owns_all`: this process has no other children, so all below it is of the leg.

        Raises OSError if the program or the folder is not there, and NotEnclosedError if it must be
        enclosed and this process is not."""
        if must_be_enclosed:
            enclosure.demand()
        program = shutil.which(argv[0], path=env.get("PATH", os.defpath))
        if program is None:
            raise FileNotFoundError(f"{argv[0]}: no such program")
        if not cwd.is_dir():
            raise NotADirectoryError(f"{cwd}: no such folder")
        adopt_orphans()
        mark = uuid.uuid4().hex
        with contextlib.ExitStack() as stack:
            given = stack.enter_context(tempfile.TemporaryFile())  # a pipe could fill up
            given.write(stdin)
            given.seek(0)
            files = [given.fileno()]
            for path in (stdout, stderr):
                files.append(os.open(path, _TO_FILE, 0o600))
                stack.callback(os.close, files[-1])
            started = time.time()
            # Not subprocess: it leaves ignored signals ignored, and its hook for the child is not
            # safe with threads. posix_spawn knows no folder, so a shell goes there first; it is
            # the same process.
            pid = os.posix_spawn(
                "/bin/sh",
                ["/bin/sh", "-c", _IN_FOLDER, str(cwd), program, *argv[1:]],
                {**env, "PWD": str(cwd), MARK: mark},
                file_actions=[(os.POSIX_SPAWN_DUP2, file, at) for at, file in enumerate(files)],
                setsid=True,
                setsigmask=[],
                setsigdef=_DEFAULT,
            )
        return cls(pid, mark, started, owns_all)

    def wait(self, limit_s: float) -> int | None:
        """Its exit code, negative for a signal; None if it still runs after `limit_s`."""
        until = time.monotonic() + limit_s
        while self._reap() is None and (left_s := until - time.monotonic()) > 0:
            self._sleep(left_s)
        return self.exit_code

    def signal(self, name: str) -> bool:
        """Sends a signal ("SIGINT") to it, and to nothing else; False if it had ended before."""
        self._reap()
        with self._lock:
            # Until it is waited for, nobody else can have its number.
            if self.exit_code is not None:
                return False
            os.kill(self.pid, signal.Signals[name])
            return True

    def end(self, grace_s: float = _GRACE_S) -> int | None:
        """SIGTERM, and SIGKILL if that is not heard; its exit code."""
        self.signal("SIGTERM")
        if self.wait(grace_s) is None:
            self.signal("SIGKILL")
        return self.wait(_KILL_S)

    def sweep(self, grace_s: float = _GRACE_S) -> list[Ended]:
        """Ends it and all that it started, at any remove; what had to be ended, but for itself.

        Out of reach is only what gave up the mark, the session and every living parent; and not
        even that, if the leg owns all."""
        self.end(grace_s)
        return end_all(self._left, grace_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sweep()

    def _reap(self) -> int | None:
        with self._lock:
            if self.exit_code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.exit_code = os.waitstatus_to_exitcode(status)
            return self.exit_code

    def _sleep(self, limit_s: float) -> None:
        """Until it ends or the time is over; earlier where there is nothing to wait on."""
        descriptor = None
        with self._lock:
            if self.exit_code is None and hasattr(os, "pidfd_open"):
                with contextlib.suppress(OSError):
                    descriptor = os.pidfd_open(self.pid)
        if descriptor is None:
            time.sleep(min(_LOOK_S, limit_s))
            return
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            poll.poll(max(1, int(limit_s * 1000)))
        finally:
            os.close(descriptor)

    def _left(self) -> list[psutil.Process]:
        """What runs and is of this leg."""
        found = {process for process in _near(self._started) if self._is_mine(process)}
        for process in list(found):
            with contextlib.suppress(psutil.Error):
                found.update(process.children(recursive=True))
        # The oldest first: a shell whose command ends before it would go on to the next.
        return sorted(filter(_runs, found), key=_age)

    def _is_mine(self, process: psutil.Process) -> bool:
        if self._owns_all and _IS_LINUX:
            return True
        try:
            return os.getsid(process.pid) == self.pid or process.environ().get(MARK) == self._mark
        except (OSError, psutil.Error):
            return False


def end_all(find: Callable[[], list[psutil.Process]], grace_s: float = _GRACE_S) -> list[Ended]:
    """Ends what `find` finds, again and again until it finds nothing; what had to be ended."""
    ended: dict[psutil.Process, Ended] = {}
    for _ in range(_ROUNDS):
        left = find()
        if not left:
            break
        for process in left:
            # Known from a round before: it did not hear SIGTERM.
            name = "SIGKILL" if process in ended else "SIGTERM"
            with contextlib.suppress(psutil.Error):
                # psutil compares the start time: a number that is used again is not hit.
                argv = tuple(process.cmdline())
                process.send_signal(signal.Signals[name])
                ended[process] = Ended(process.pid, argv, name)
        psutil.wait_procs(left, timeout=grace_s)
    return list(ended.values())


def marked(name: str, value: str, started: float) -> list[psutil.Process]:
    """What runs below this process with this variable in its environment, the oldest first."""
    found = []
    for process in _near(started):
        with contextlib.suppress(OSError, psutil.Error):
            if process.environ().get(name) == value and _runs(process):
                found.append(process)
    return sorted(found, key=_age)


def end_with_parent(number: signal.Signals) -> None:
    """Has this process get a signal when its parent ends, however that ends. Linux only."""
    if _IS_LINUX:
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:  # too late
            os.kill(os.getpid(), number)


def _near(started: float) -> Iterable[psutil.Process]:
    """All that can be of a leg which was started then."""
    if _IS_LINUX:
        return psutil.Process().children(recursive=True)
    # Orphans are not ours here: look at everything younger.
    return [p for p in psutil.process_iter(["create_time"]) if p.info["create_time"] >= started - 1]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _age(process: psutil.Process) -> tuple[float, int]:
    return process.create_time(), process.pid


def adopt_orphans() -> None:
    """Makes this process the one that orphans below it come to."""
    if _IS_LINUX:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
