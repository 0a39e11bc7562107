"""Agents that run: real processes, locks and deaths."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from support.files.proc_world import ID
from support.files.real_processes import running, start_ticks

from segue.agents.places import STORES
from segue.sessions.find import Home
from segue.system.process import processes, procfs
from segue.system.process.procfs import Procfs, Psutil

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@ON_LINUX
def test_a_real_process_with_a_pid_file_lives_until_it_is_killed(tmp_path: Path) -> None:
    home = Home("claude", str(tmp_path), STORES["claude"])
    (tmp_path / "sessions").mkdir()
    with running("claude", cwd=tmp_path) as child:
        machine_id = Path("/etc/machine-id")
        machine = machine_id.read_text().strip() if machine_id.exists() else ""
        told = {
            "pid": child.pid,
            "sessionId": ID,
            "procStart": start_ticks(child.pid),
            "pidDomain": f"linux:{machine}:{os.readlink('/proc/self/ns/pid')}",
            "status": "idle",
        }
        file = tmp_path / "sessions" / f"{child.pid}.json"
        file.write_text(json.dumps(told))
        (process,) = processes.living([home])
        assert (process.pid, process.session_id, process.status) == (child.pid, ID, "idle")
        assert process.cwd == os.path.realpath(tmp_path)
        file.write_text(json.dumps(told | {"procStart": "1"}))
        assert processes.living([home]) == []
        file.write_text(json.dumps(told))
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.living([home]) == []  # dead, and not yet buried
    assert file.exists()
    assert processes.living([home]) == []


@ON_LINUX
def test_a_real_lock_shows_the_session_until_its_holder_is_killed(tmp_path: Path) -> None:
    home = Home("codex", os.path.realpath(tmp_path), STORES["codex"])
    (tmp_path / "thread-writer-locks").mkdir()
    lock = tmp_path / "thread-writer-locks" / f"{ID}.lock"
    with running("codex", lock) as child:
        (process,) = processes.living([home])
        assert (process.pid, [h.session_id for h in process.holds]) == (child.pid, [ID])
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert processes.living([home]) == []
    assert lock.exists()


@ON_LINUX
@pytest.mark.parametrize("system", [Procfs, Psutil])
def test_both_ways_of_asking_tell_the_same_of_a_real_process(
    tmp_path: Path, system: type[Procfs] | type[Psutil]
) -> None:
    home = Home("codex", os.path.realpath(tmp_path), STORES["codex"])
    (tmp_path / "thread-writer-locks").mkdir()
    lock = tmp_path / "thread-writer-locks" / f"{ID}.lock"
    with running("codex", lock, cwd=tmp_path) as child:
        (process,) = processes.living([home], system())
        assert (process.pid, process.cwd) == (child.pid, os.path.realpath(tmp_path))
        assert [h.session_id for h in process.holds] == [ID]
        born = os.stat(f"/proc/{child.pid}").st_ctime
        assert abs(process.started_at - born) < 60
        on = system()
        assert on.arguments(child.pid)[1] == "-c"
        assert os.path.basename(on.program(child.pid)).startswith("python")
        facts = on.facts(child.pid)
        assert facts is not None
        assert facts.parent == os.getpid()
        os.kill(child.pid, signal.SIGKILL)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert on.facts(child.pid) is None
    assert processes.living([home], system()) == []
    assert system().facts(child.pid) is None
    assert system().open_files(child.pid) == []


def test_this_machine_is_asked_in_its_own_way() -> None:
    kind = Procfs if sys.platform == "linux" else Psutil
    assert isinstance(procfs.system(), kind)
