"""After a reboot, a power cut, a kill or a hang-up the real daemon goes on with a run; once, and
only if its user did not end it."""

import json
import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import psutil
from support.running import Staged, stage
from support.runs.detaching import ended_afterwards, pid_of  # noqa: F401 - a fixture
from support.runs.hangups import SEGUE, close, terminal_with
from support.runs.stops import SLOW, in_step
from support.watching import Watching, watching

from segue.runs.legs.leg import Leg
from segue.runs.store import leases
from segue.watch.log import Note


def taken_up(watch: Watching) -> list[Note]:
    return watch.notes("takeup")


def finished_by_the_daemon(s: Staged, watch: Watching, run_id: str) -> None:
    watch.until(lambda: s.state(run_id) == "done", "the run", 90)
    (note,) = taken_up(watch)
    assert note.data["run"] == run_id
    assert s.continuity().is_whole


def test_a_run_whose_segue_was_killed_is_taken_up_once_and_ends(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s, watching(s.home, s.env, "--auto") as watch:
        process = s.start_run()
        in_step(s, 2)
        process.kill()  # as the OOM killer does
        finished_by_the_daemon(s, watch, s.run_ids()[0])
        log = s.home / "runs" / s.run_ids()[0] / "segue.log"
        assert "done" in log.read_text()


def power_cut(s: Staged, run_id: str) -> None:
    """Nothing runs any more, and what comes next is another boot: pids mean nothing then."""
    leg = Leg(s.leg(run_id))
    status = leg.status()
    for pid in (pid_of(s, run_id), status.keeper_pid, status.agent_pid):
        os.kill(pid, signal.SIGKILL)
    s.until(lambda: not [p for p in psutil.process_iter() if _is_of(p, s)])
    kept = leg.folder / "keeper.json"
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "boot_id": "before"}))
    me = leases.me()
    with closing(sqlite3.connect(s.home / "runs.db")) as db, db:
        changed = db.execute(
            "UPDATE lease SET holder = json_set(holder, '$.boot', 'before', '$.pid', ?,"
            " '$.started', ?) WHERE holder IS NOT NULL",
            (me.pid, me.started),
        )
        assert changed.rowcount


def _is_of(process: psutil.Process, s: Staged) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.environ().get("HOME") == s.env["HOME"]
    except psutil.Error:
        return False


def test_after_a_reboot_the_run_continues(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        s.start_run()
        in_step(s, 2)
        (run_id,) = s.run_ids()
        power_cut(s, run_id)
        told = s.segue("runs")
        assert f"interrupted: segue resume {run_id}" in told.stderr
        with watching(s.home, s.env, "--auto") as watch:
            finished_by_the_daemon(s, watch, run_id)


def test_a_closed_terminal_is_gone_on_from(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s, watching(s.home, s.env, "--auto") as watch:
        pid, terminal = terminal_with(s, *SEGUE, *s.words())
        in_step(s, 2)
        close(terminal, pid)
        finished_by_the_daemon(s, watch, s.run_ids()[0])


def test_what_the_user_ended_and_what_is_not_to_be_acted_on_is_left_alone(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        other = s.root / "other"
        other.mkdir()
        script = s.root / "plain.py"
        script.write_text("import time\nprint('at work', flush=True)\ntime.sleep(1000)\n")
        s.config(f'[agents.plain]\ncommand = ["{sys.executable}", "{script}"]\n')
        ended = []
        for end in ("ctrl+c", "cancel"):
            process, run_id = s.new_run()
            if end == "ctrl+c":
                process.send_signal(signal.SIGINT)
            else:
                assert s.segue("cancel", run_id).code == 0
            assert s.end(process).code == 130
            ended.append(run_id)
        elsewhere = s.start("run", "--agent", "plain", "anything", cwd=other)
        s.until(lambda: len(s.run_ids()) == 3)
        left = s.run_ids()[0]
        s.until(lambda: s.state(left) == "working")
        elsewhere.kill()
        mine, run_id = s.new_run()
        mine.kill()
        with watching(s.home, s.env, "--auto", "--in", str(s.project)) as watch:
            watch.until(lambda: s.state(run_id) == "done", "the run", 90)
            assert {note.data["run"] for note in taken_up(watch)} == {run_id}
            assert [s.state(each) for each in ended] == ["cancelled", "cancelled"]
        assert s.segue("cancel", left).code == 0
