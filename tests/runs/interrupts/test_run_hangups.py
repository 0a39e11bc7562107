"""A terminal that closes, a line that drops, a machine that goes down: none of them is the user's
word that a run is over."""

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from support.running import Staged, stage
from support.runs.hangups import SEGUE, close, terminal_with
from support.runs.killing import left_running
from support.runs.stops import SLOW, in_step


def only_run(s: Staged) -> str:
    return str(s.until(lambda: next(iter(s.run_ids()), "")))


def test_a_closed_terminal_interrupts_the_run_and_does_not_end_it(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        pid, terminal = terminal_with(s, *SEGUE, *s.words())
        in_step(s, 3)
        close(terminal, pid)
        run_id = only_run(s)
        with s.store() as store:
            run = store.run(run_id)
        assert run is not None
        assert not run.state.is_final, "nobody wanted it to end"
        assert run.interrupted
        assert not left_running(s), "and nobody is left to look after the agent"
        listed = s.segue("runs")
        assert f"interrupted: segue resume {run_id}" in listed.stderr
        again = s.segue("resume")
        assert again.code == 0, again.stderr
        assert s.state(run_id) == "done"
        assert s.continuity().is_whole


def test_a_hang_up_while_it_waits_leaves_the_wait_as_it_is(tmp_path: Path) -> None:
    with stage("plan-limit", within=tmp_path) as s:
        process = s.start_run()
        s.until(lambda: s.run_ids() and s.state(s.run_ids()[0]) == "waiting")
        (run_id,) = s.run_ids()
        process.send_signal(signal.SIGHUP)
        s.end(process)
        assert s.state(run_id) == "waiting"
        assert s.segue("resume").code == 0
        assert s.continuity().is_whole


def test_ctrl_c_then_a_closed_terminal_is_the_users_end(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        pid, terminal = terminal_with(s, *SEGUE, *s.words())
        in_step(s, 2)
        os.write(terminal, b"\x03")
        s.until(lambda: s.state(s.run_ids()[0]) == "stopping")
        close(terminal, pid)
        assert s.state(s.run_ids()[0]) == "cancelled"


@pytest.mark.parametrize("how", ["nohup", "trap '' HUP;"])
def test_a_run_that_was_told_to_ignore_hang_ups_does(how: str, tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        command = shlex.join([*SEGUE, *s.words()])
        script = f"{how} {command} >out.txt 2>err.txt & echo started; read line"
        pid, terminal = terminal_with(s, "/bin/bash", "-i", "-c", script)
        in_step(s, 2)
        run_id = only_run(s)
        with s.store() as store:
            holder = store.holder(f"run:{run_id}")
        assert holder is not None
        close(terminal, pid)
        os.kill(holder.pid, signal.SIGHUP)  # whatever the shell did
        s.until(lambda: s.state(run_id) == "done")
        assert s.continuity().is_whole
        with s.store() as store:
            assert "hungup" not in [entry.kind for entry in store.log(run_id)]


def test_a_background_job_of_a_script_does_not_hear_ctrl_c(tmp_path: Path) -> None:
    """Shells without job control start those with SIGINT ignored: the key is not meant for them."""
    with stage(SLOW, within=tmp_path) as s:
        command = shlex.join([*SEGUE, *s.words()])
        shell = subprocess.Popen(
            ["/bin/sh", "-c", f"{command} & echo $!; wait"],
            env=s.env,
            cwd=s.project,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        s.started.append(shell)
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        in_step(s, 2)
        os.kill(pid, signal.SIGINT)
        s.until(lambda: s.state(only_run(s)) == "done")
        shell.wait(60)
        assert s.continuity().is_whole


def test_sigterm_while_the_machine_goes_down_is_not_the_users_word(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        tools = s.root / "tools"
        tools.mkdir()
        (tools / "systemctl").write_text("#!/bin/sh\necho stopping; exit 1\n")
        (tools / "systemctl").chmod(0o755)
        process = s.start_run(PATH=f"{tools}:{s.env['PATH']}")
        in_step(s, 3)
        process.send_signal(signal.SIGTERM)
        s.end(process)
        with s.store() as store:
            (run,) = store.runs()
        assert "shutdown" in run.interrupted
        assert not run.state.is_final
        assert not left_running(s)


def test_sigterm_together_with_a_hang_up_is_the_end_of_a_login_session(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        process = s.start_run()
        in_step(s, 3)
        process.send_signal(signal.SIGTERM)  # as a service manager does: one after the other
        process.send_signal(signal.SIGHUP)
        s.end(process)
        with s.store() as store:
            (run,) = store.runs()
        assert run.interrupted
        assert not run.state.is_final
