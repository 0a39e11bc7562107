"""One writer: for a session, for a working tree, for a run; and the user's own hands count."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from running import Staged, stage
from test_real_processes import running, start_ticks

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def pid_file(s: Staged, pid: int, session_id: str) -> None:
    """As Claude Code says which process has which session."""
    machine_id = Path("/etc/machine-id")
    machine = machine_id.read_text().strip() if machine_id.exists() else ""
    folder = Path(s.env["CLAUDE_CONFIG_DIR"]) / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "pid": pid,
        "sessionId": session_id,
        "procStart": start_ticks(pid),
        "pidDomain": f"linux:{machine}:{os.readlink('/proc/self/ns/pid')}",
        "status": "idle",
    }
    (folder / f"{pid}.json").write_text(json.dumps(told))


@ON_LINUX
def test_a_session_that_the_user_has_open_by_hand_is_not_resumed(tmp_path: Path) -> None:
    with stage("user-interrupt", within=tmp_path) as s:
        process, run_id = s.new_run()
        process.send_signal(signal.SIGTERM)
        assert s.end(process).code == 130
        with s.store() as store:
            session_id = store.legs(run_id)[0].session_id
        with running("claude", cwd=s.project) as by_hand:
            pid_file(s, by_hand.pid, session_id)
            ended = s.segue("resume", run_id)
            assert ended.code == 1
            assert f"process {by_hand.pid} has session {session_id} open" in ended.stderr
        again = s.segue("resume", run_id)
        assert again.code == 0, again.stderr
        assert s.continuity().is_whole


def test_two_runs_in_one_tree_are_refused_unless_they_are_to_share_it(tmp_path: Path) -> None:
    with stage("user-interrupt", within=tmp_path) as s:
        process, run_id = s.new_run()
        below = s.project / "steps"
        second = s.segue(*s.words(), cwd=below)
        assert second.code == 2
        assert run_id in second.stderr
        assert "--share-tree" in second.stderr
        assert s.run_ids() == [run_id], "a run that is refused leaves nothing behind"
        process.send_signal(signal.SIGTERM)
        s.end(process)


def test_a_run_that_one_segue_drives_is_not_driven_by_a_second(tmp_path: Path) -> None:
    with stage("user-interrupt", within=tmp_path) as s:
        process, run_id = s.new_run()
        second = s.segue("resume", run_id)
        assert second.code not in (0, -9)
        assert "is driven by process" in second.stderr
        ended = s.end(process)
        assert ended.code == 0, ended.stderr
        assert s.continuity().is_whole
