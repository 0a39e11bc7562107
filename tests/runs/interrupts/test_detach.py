"""Runs that were started to stay: `--detach`, `segue attach`, and what cannot end them."""

import json
import os
import shlex
import signal
from pathlib import Path

import psutil
import pytest
from support.gone import is_gone
from support.running import Staged, stage
from support.runs.detaching import pid_of
from support.runs.hangups import SEGUE, close, terminal_with
from support.runs.killing import left_running
from support.runs.stops import SLOW, in_step

from segue.cli.support.run import lookup
from segue.runs.store import leases
from segue.runs.store.port import run_key
from segue.system import clock


def detach(s: Staged, *more: str) -> str:
    """`segue run --detach`, to its end; the run's id."""
    ended = s.run("--detach", *more)
    assert ended.code == 0, ended.stderr
    run_id = ended.stdout.strip()
    assert run_id in s.run_ids()
    assert f"segue attach {run_id}" in ended.stderr
    assert f"segue cancel {run_id}" in ended.stderr
    return run_id


def test_detach_returns_while_the_run_continues_in_a_session_of_its_own(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        run_id = detach(s)
        pid = pid_of(s, run_id)
        assert os.getsid(pid) == pid, "it has a session of its own"
        assert psutil.Process(pid).terminal() is None
        s.until(lambda: s.state(run_id) == "done")
        assert s.continuity().is_whole
        log = s.home / "runs" / run_id / "segue.log"
        s.until(lambda: "done" in log.read_text())
        assert log.stat().st_mode & 0o077 == 0
        s.until(lambda: not left_running(s))


def test_a_detached_run_outlives_its_shell_its_terminal_and_a_hang_up(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        script = f"{shlex.join([*SEGUE, *s.words('--detach')])}; read line"
        pid, terminal = terminal_with(s, "/bin/bash", "-i", "-c", script)
        in_step(s, 2)
        (run_id,) = s.run_ids()
        driver = pid_of(s, run_id)
        os.kill(pid, signal.SIGKILL)  # the shell
        close(terminal, pid)
        os.kill(driver, signal.SIGHUP)
        s.until(lambda: s.state(run_id) == "done")
        assert s.continuity().is_whole


def test_sigterm_interrupts_what_was_told_to_stay_and_segue_cancel_ends_it(tmp_path: Path) -> None:
    """So a logout, systemd and a shutdown end everything: nobody's decision about this run."""
    with stage(SLOW, within=tmp_path) as s:
        run_id = detach(s)
        in_step(s, 2)
        driver = pid_of(s, run_id)
        os.kill(driver, signal.SIGTERM)
        s.until(lambda: is_gone(driver) and not left_running(s))
        with s.store() as store:
            run = store.run(run_id)
        assert run is not None
        assert not run.state.is_final
        assert run.interrupted == "SIGTERM"
        assert f"interrupted: segue resume {run_id}" in s.segue("runs").stderr
        resumed = s.start("resume", run_id)
        in_step(s, 4)
        assert s.segue("cancel", run_id).code == 0
        assert s.end(resumed).code == 130
        assert s.state(run_id) == "cancelled"


def test_attach_shows_it_and_ends_with_its_answer_and_its_exit_code(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        run_id = detach(s)
        shown = s.segue("attach")  # the newest unfinished one of this folder
        assert shown.code == 0, shown.stderr
        assert "All 6 steps are done." in shown.stdout
        assert run_id in shown.stderr
        assert "✓ done" in shown.stderr
        for words in (["attach"], ["attach", run_id]):  # it is over: what came of it is told
            late = s.segue(*words)
            assert (late.code, late.stdout) == (0, shown.stdout)
        none = s.segue("attach", cwd=s.root)
        assert none.code == 2
        assert "no run in" in none.stderr


def test_attach_gives_programs_all_events_and_the_agents_own_output(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        run_id = detach(s)
        raw = s.start("attach", "--raw", run_id)
        events = s.segue("attach", "--json", run_id)
        assert events.code == 0
        assert [e["seq"] for e in events.events] == list(range(1, len(events.events) + 1))
        assert events.events[-1]["state"] == "done"
        assert s.end(raw).stdout == s.leg(run_id).joinpath("stdout").read_text()


def test_ctrl_c_leaves_the_view_and_not_the_run(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        run_id = detach(s)
        pid, terminal = terminal_with(s, *SEGUE, "attach", run_id)
        shown = b""
        while b"leg 1" not in shown or b"sh job/step" not in shown:
            shown += os.read(terminal, 65536)
        os.write(terminal, b"\x03")
        try:
            while data := os.read(terminal, 65536):
                shown += data
        except OSError:
            pass  # so a terminal says that nobody is there any more
        assert close(terminal, pid) == 130
        assert f"segue cancel {run_id}".encode() in shown
        s.until(lambda: s.state(run_id) == "done")
        assert s.continuity().is_whole


def test_attach_says_that_nobody_drives_it_and_what_to_type(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        run_id = detach(s)
        in_step(s, 2)
        watched = s.start("attach", run_id)
        os.kill(pid_of(s, run_id), signal.SIGKILL)
        for ended in (s.end(watched), s.segue("attach", run_id)):
            assert ended.code == 1
            assert f"no segue drives {run_id} now" in ended.stderr
            assert f"segue resume {run_id}" in ended.stderr
        again = s.segue("resume", "--detach")
        assert again.stdout.strip() == run_id
        assert s.segue("attach", run_id).code == 0
        assert s.continuity().is_whole


def test_attach_ends_with_the_exit_code_of_a_run_that_is_cancelled(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        run_id = detach(s)
        in_step(s, 2)
        watched = s.start("attach", run_id)
        assert s.segue("cancel", run_id).code == 0
        assert s.end(watched).code == 130
        s.until(lambda: not left_running(s))


def test_a_cancelled_run_can_be_resumed_before_the_segue_that_ended_it_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage(SLOW, within=tmp_path) as s:
        run_id = detach(s)
        in_step(s, 2)
        assert s.segue("cancel", run_id).code == 0
        s.until(lambda: not left_running(s))
        looks: list[float] = []
        with s.store() as store:
            run = store.run(run_id)
            assert run is not None
            lease = store.acquire(run_key(run_id), leases.me("segue run"), clock.now())

            def leave(pause_s: float) -> None:
                looks.append(pause_s)
                if len(looks) == 3:
                    store.release(lease)

            monkeypatch.setattr("time.sleep", leave)
            lookup.wait_until_released(store, run)
            monkeypatch.undo()
        assert len(looks) == 3
        assert s.segue("resume", "--detach", run_id).code == 0
        s.until(lambda: s.state(run_id) == "done")


def test_a_run_that_had_ended_and_cannot_be_resumed_is_not_said_to_continue(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        run_id = detach(s)
        in_step(s, 2)
        assert s.segue("cancel", run_id).code == 0
        s.until(lambda: not left_running(s))
        refused = s.segue("resume", "--detach", "--policy", "nobody's", run_id)
        assert refused.code == 1
        assert f"{run_id} could not be detached: " in refused.stderr
        assert "nobody's" in refused.stderr
        assert s.state(run_id) == "cancelled"


def test_detach_tells_programs_where_it_is_and_says_why_it_cannot_be_begun(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        told = json.loads(s.run("--detach", "--json").stdout)
        assert pid_of(s, told["run"]) == told["pid"]
        second = s.run("--detach")
        assert second.code == 2
        assert "another run works in" in second.stderr
        assert len(s.run_ids()) == 1
        refused = s.segue("resume", "--detach", told["run"])
        assert refused.code == 2
        assert f"segue attach {told['run']}" in refused.stderr
        assert s.run("--detach", "--raw").code == 2
        s.until(lambda: s.state(told["run"]) == "done")
