"""What a test run that is cut off leaves behind is ended: runs, agents, daemons, tmux servers.

A process of its own, started with each worker, waits for the worker's end, also by kill -9 or
Ctrl+C. Then it ends all whose HOME or SEGUE_HOME is in a folder of that worker's tests: each test
has its own there, and hands it down. So nobody else's process is touched.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

_QUIET_LOOKS = 5  # in a row: what was started by a process that is ended is seen by then
_LOOK_S = 0.1
_HOMES = ("HOME", "SEGUE_HOME")


@pytest.fixture(scope="session", autouse=True)
def no_orphans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Watches over this worker. Temporary folders beside pytest's own, for short paths, are in one
    folder, which is removed."""
    short = Path(tempfile.mkdtemp(prefix="segue-t-", dir="/tmp"))
    short.chmod(0o711)  # PostgreSQL's user has a folder in it
    kept, tempfile.tempdir = tempfile.tempdir, str(short)
    reads, writes = os.pipe()  # no child inherits the end that is written to
    watcher = subprocess.Popen(
        [sys.executable, __file__, str(short), str(tmp_path_factory.getbasetemp())],
        stdin=reads,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    os.close(reads)
    yield short
    tempfile.tempdir = kept
    os.close(writes)
    watcher.wait()


def found(roots: Sequence[str]) -> list[psutil.Process]:
    """The processes whose home is below `roots`."""
    below = tuple(f"{root}/" for root in roots)
    those = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            env = process.environ()
            if any(f"{env.get(name)}/".startswith(below) for name in _HOMES):
                those.append(process)
    return those


def end_all(roots: Sequence[str]) -> None:
    """Until nothing is left, and nothing new comes."""
    quiet = 0
    while quiet < _QUIET_LOOKS:
        left = found(roots)
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        quiet = 0 if left else quiet + 1
        time.sleep(_LOOK_S)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()  # until the worker's end
    roots = sys.argv[1:]
    end_all(roots)
    shutil.rmtree(roots[0], ignore_errors=True)


if __name__ == "__main__":
    main()
