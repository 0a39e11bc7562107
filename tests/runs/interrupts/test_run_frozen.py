"""segue, keeper and agent stopped together, as by a paused container or a suspended machine: time
in which segue did not run is not held against the agent."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.running import Staged, stage

from segue.drill.plays import job

STALL_S = 4.0
FROZEN_S = STALL_S + 3.0
CHECKPOINT_S = 9.0
"""A step of 3 s is finished and told within it, on a busy machine too."""
SPEAKS = "for n in 1 2 3 4; do echo at step $n; sleep 1.5; done; echo all done"


def below(pid: int) -> list[int]:
    """All that runs below a process."""
    found = [pid]
    for parent in found:
        path = Path(f"/proc/{parent}/task/{parent}/children")
        found += [int(child) for child in path.read_text().split()]
    return found[1:]


def turns(pid: int) -> int:
    """How often a process has waited for something so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary"))


@contextmanager
def frozen(
    s: Staged, process: "subprocess.Popen[str]", run_id: str, for_s: float = FROZEN_S
) -> Iterator[None]:
    """All of a run is stopped, and segue is the first to wake."""
    kept = json.loads((s.leg(run_id) / "keeper.json").read_text())
    agents = [kept["pid"], *below(kept["pid"])]
    for pid in (process.pid, *agents):
        os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + for_s
    yield
    s.until(lambda: time.monotonic() > until)
    before = turns(process.pid)
    os.kill(process.pid, signal.SIGCONT)
    s.until(lambda: process.poll() is not None or turns(process.pid) > before + 3)
    for pid in agents:
        os.kill(pid, signal.SIGCONT)


def kinds(s: Staged, run_id: str) -> list[str]:
    with s.store() as store:
        return [entry.kind for entry in store.log(run_id)]


def test_a_frozen_run_is_not_a_silent_one(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        command = json.dumps(["sh", "-c", SPEAKS, "{prompt}"])
        s.config(f"[agents.mine]\ncommand = {command}\n", {"stall_s": STALL_S})
        process = s.start("run", "--agent", "mine", "anything")
        (run_id,) = s.until(s.run_ids)
        s.until(lambda: s.state(run_id) == "working")
        with frozen(s, process, run_id):
            pass
        ended = s.end(process)
        assert ended.code == 0, ended.stderr
        assert "elapsed" not in kinds(s, run_id)
        assert kinds(s, run_id).count("started") == 1


def test_time_in_which_it_was_frozen_is_not_taken_from_the_last_words(tmp_path: Path) -> None:
    """After the first Ctrl+C it has `checkpoint_s` to finish what it is at."""
    scenario = tmp_path / "slow.toml"
    scenario.write_text('about = "Slow."\n[job]\nsteps = 6\nstep_s = 3.0\n')
    with stage(scenario, within=tmp_path) as s:
        s.config(policy={"checkpoint_s": CHECKPOINT_S, "stall_s": 60.0})
        process = s.start_run()
        s.until(lambda: job.current(s.project) == 2)
        process.send_signal(signal.SIGINT)
        (run_id,) = s.run_ids()
        s.until(lambda: s.state(run_id) == "stopping")
        with frozen(s, process, run_id, CHECKPOINT_S + 2.0):
            pass
        assert s.end(process).code == 130
        assert "elapsed" not in kinds(s, run_id)
        assert "checkpoint" in s.answers
        assert 2 in s.continuity(finished=False).done


def test_an_agent_that_hangs_after_it_was_frozen_has_stalled(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        command = json.dumps(["sh", "-c", "echo at work; exec sleep 600", "{prompt}"])
        s.config(f"[agents.mine]\ncommand = {command}\n", {"stall_s": STALL_S})
        process = s.start("run", "--agent", "mine", "anything")
        (run_id,) = s.until(s.run_ids)
        s.until(lambda: s.state(run_id) == "working")
        with frozen(s, process, run_id):
            pass
        ended = s.end(process)
        assert ended.code == 124, ended.stderr
        assert "elapsed" in kinds(s, run_id)
