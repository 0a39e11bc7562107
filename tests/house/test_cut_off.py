"""A test run that is interrupted leaves no process behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.orphans import found
from support.waiting import until

TESTS = Path(__file__).parents[1]
BUSY = """
import signal
from pathlib import Path
from support.running import PATIENT, stage

def test_busy(tmp_path):
    with stage("silent-hang", within=tmp_path, policy=PATIENT) as s:
        s.new_run()
        Path({ready!r}).touch()
        signal.pause()
"""


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_tests_that_are_cut_off_leave_no_run_and_no_agent(
    number: signal.Signals, workers: str, tmp_path: Path
) -> None:
    ready, inner = tmp_path / "ready", tmp_path / "inner"
    (tmp_path / "test_busy.py").write_text(BUSY.format(ready=str(ready)))
    words = ["-p", "support.orphans", "-n", workers, "--basetemp", str(inner), "-c", "/dev/null"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *words, "--rootdir", str(tmp_path), "test_busy.py"],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(ready.exists)
    assert len(found([str(inner)])) >= 3  # segue, the keeper and the agent
    process.send_signal(number)
    process.wait()
    until(lambda: not found([str(inner)]))
