"""`segue uninstall --purge` while other things are running: real runs, keepers and daemons."""

import os
import signal
from pathlib import Path

import pytest
from support.running import QUICK, Staged, stage
from support.watching import watching

from segue.runs.legs.leg import Leg


def is_refused(s: Staged, *words: str) -> None:
    before = {p for p in s.home.rglob("*") if not p.name.endswith(("-wal", "-shm", "-journal"))}
    ended = s.segue("uninstall", "--purge")
    assert ended.code == 2, ended
    (line,) = ended.stderr.splitlines()
    for word in words:
        assert word in line
    assert ended.stdout == ""
    assert before <= {*s.home.rglob("*")}


def test_a_live_run_is_not_purged(tmp_path: Path) -> None:
    with stage("silent-hang", within=tmp_path, policy={**QUICK, "stall_s": 120.0}) as s:
        process, run = s.new_run()
        is_refused(s, run, f"segue cancel {run}")
        os.kill(process.pid, signal.SIGKILL)  # the agent works on, in its keeper's hands
        process.wait()
        assert Leg(s.leg(run)).status().state == "running"
        is_refused(s, run, f"segue cancel {run}")
        assert s.segue("cancel", run).code == 0
        s.until(lambda: Leg(s.leg(run)).status().state != "running")
        (s.home / "runs" / "my-experiment").mkdir()
        (s.home / "runs.db.backup-of-mine").write_text("x")
        named_alike = s.home / "runs" / "run-12345678"  # a folder of the user's, with such a name
        named_alike.mkdir()
        (named_alike / "thesis.tex").write_text("x")
        (s.home / "runs" / "run-deadbeef").symlink_to(tmp_path)
        for own in ("queue.db", "accounts.json", "accounts.lock", "doubts.jsonl", "prices.json"):
            (s.home / own).write_text("")
        for own in ("tasks/task-0a1b2c3d/segue.log", "fleet/leash.json"):
            (s.home / own).parent.mkdir(parents=True)
            (s.home / own).write_text("")
        (s.home / "trees" / "task-0a1b2c3d").mkdir(parents=True)
        ended = s.segue("uninstall", "--purge")
        assert ended.code == 0, ended.stderr
        assert {p.name for p in s.home.iterdir()} == {
            *("config.toml", "runs", "runs.db.backup-of-mine", "trees")
        }
        assert (named_alike / "thesis.tex").exists()
        _, work, others = ended.stdout.splitlines()[-3:]
        assert work == (
            "kept, because they may contain tasks' work that exists nowhere else:"
            " trees/task-0a1b2c3d"
        )
        assert others == (
            "kept, because segue did not create them: runs/my-experiment, runs/run-12345678, "
            "runs/run-deadbeef, runs.db.backup-of-mine"
        )


@pytest.mark.parametrize("answers", [True, False])
def test_a_daemon_keeps_its_ground(answers: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    with stage("success", within=tmp_path_factory.mktemp("s")) as s:
        with watching(s.home, s.env) as daemon:
            assert daemon.process is not None
            if not answers:
                daemon.process.send_signal(signal.SIGSTOP)
            try:
                is_refused(s, "`segue watch` is running", "end it first")
            finally:
                daemon.process.send_signal(signal.SIGCONT)
        ended = s.segue("uninstall", "--purge")
        assert ended.code == 0, ended.stderr
