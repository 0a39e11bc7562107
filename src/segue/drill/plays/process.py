"""One leg of a play: the lifetime of an agent's process, from its start to the end of everything
it left behind. (The legs of runs outlive segue: `runs/legs/leg`.)"""

import contextlib
import os
import select
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from segue.drill.plays import enclosure
from segue.system.process.descendants import (
    GRACE_S,
    IS_LINUX,
    MARK,
    EndedProcess,
    adopt_orphans,
    age,
    end_all,
    end_with_parent,
    marked,
    near,
    runs,
)

__all__ = [
    "MARK",
    "EndedProcess",
    "PlayLeg",
    "adopt_orphans",
    "end_all",
    "end_with_parent",
    "marked",
]

_DEFAULT = [
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGQUIT,
    signal.SIGPIPE,  # Python ignores this signal and the next one
    signal.SIGXFSZ,
    signal.SIGCHLD,
]
_TO_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
_LOOK_S = 0.02  # for kernels that cannot notify us
_KILL_S = 5.0  # even SIGKILL takes a while
_IN_FOLDER = 'cd -- "$0" && exec "$@"'


class PlayLeg:
    """A process, and everything that it starts. Several threads may wait for it and signal it. As a
    context manager it leaves nothing running, however its block ends."""

    def __init__(self, pid: int, mark: str, started: float, owns_all: bool = False) -> None:
        self.pid = pid
        self._owns_all = owns_all
        self.exit_code: int | None = None  # negative: the signal that killed it
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
        """Starts it in its own session, with no signal ignored or blocked, whatever this process
        inherited. Its output goes to files, which anyone may read while they grow. `owns_all`: this
        process has no other children, so every descendant belongs to the leg. Raises OSError if the
        program or the folder does not exist, and NotEnclosedError if it must be enclosed and this
        process is not."""
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
            # subprocess leaves ignored signals ignored, and its hook for the child is not
            # thread-safe. posix_spawn cannot change the folder, so a shell does that first and then
            # becomes the program.
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
        """Its exit code, negative for a signal; None if it is still running after `limit_s`."""
        until = time.monotonic() + limit_s
        while self._reap() is None and (left_s := until - time.monotonic()) > 0:
            self._sleep(left_s)
        return self.exit_code

    def signal(self, name: str) -> bool:
        """Sends a signal ("SIGINT") to it, and to nothing else; False if it had already ended."""
        self._reap()
        with self._lock:
            # Until it is waited for, its process id cannot be reused.
            if self.exit_code is not None:
                return False
            os.kill(self.pid, signal.Signals[name])
            return True

    def end(self, grace_s: float = GRACE_S) -> int | None:
        """Sends SIGTERM, then SIGKILL if it ignores that; returns its exit code."""
        self.signal("SIGTERM")
        if self.wait(grace_s) is None:
            self.signal("SIGKILL")
        return self.wait(_KILL_S)

    def sweep(self, grace_s: float = GRACE_S) -> list[EndedProcess]:
        """Ends the process and all of its descendants; returns the descendants that had to be
        ended. It misses only a process that dropped the mark, left the session and has no living
        parent; and not even that one if the leg owns all."""
        self.end(grace_s)
        return end_all(self._running_processes, grace_s)

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
        """Waits until the process ends or the time is up; may return earlier on kernels that cannot
        notify us."""
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

    def _running_processes(self) -> list[psutil.Process]:
        """The running processes of this leg."""
        found = {process for process in near(self._started) if self._is_mine(process)}
        for process in list(found):
            with contextlib.suppress(psutil.Error):
                found.update(process.children(recursive=True))
        # The oldest first: a shell whose command is killed before it would continue with the next
        # one.
        return sorted(filter(runs, found), key=age)

    def _is_mine(self, process: psutil.Process) -> bool:
        if self._owns_all and IS_LINUX:
            return True
        try:
            return os.getsid(process.pid) == self.pid or process.environ().get(MARK) == self._mark
        except (OSError, psutil.Error):
            return False
