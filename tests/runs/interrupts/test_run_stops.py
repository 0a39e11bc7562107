"""How a run is ended on purpose: Ctrl+C in stages, signals, limits, guards; and how it is
resumed."""

import os
import pty
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from support.agents.denied import DENIED
from support.running import QUICK, Staged, stage
from support.runs.killing import left_running
from support.runs.stops import SLOW, in_step


def test_the_first_ctrl_c_lets_the_agent_finish_and_write_a_checkpoint(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        process = s.start_run()
        in_step(s, 3)
        process.send_signal(signal.SIGINT)
        ended = s.end(process)
        (run_id,) = s.run_ids()
        assert ended.code == 130
        assert s.state(run_id) == "cancelled"
        assert "Session ended by user, not auto-resuming" in ended.stderr
        assert f"segue resume {run_id}" in ended.stderr
        found = s.continuity(finished=False)
        assert found.is_whole
        assert 3 in found.done, "the step that ran was finished"
        assert "checkpoint" in s.answers
        with s.store() as store:
            run = store.run(run_id)
            assert run is not None
            kept = store.checkpoint(run_id, run.checkpoint)
        assert kept is not None
        assert kept["told"]
        assert not left_running(s)
        again = s.segue("resume")
        assert again.code == 0, again.stderr
        assert s.continuity().is_whole


def test_the_second_ctrl_c_stops_the_agent_at_once_and_the_run_can_continue(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        process = s.start_run()
        in_step(s, 3)
        process.send_signal(signal.SIGINT)
        s.until(lambda: s.run_ids() and s.state(s.run_ids()[0]) == "stopping")
        process.send_signal(signal.SIGINT)
        ended = s.end(process)
        assert ended.code == 130
        assert s.continuity(finished=False).is_whole
        assert not left_running(s)
        assert s.segue("resume").code == 0
        assert s.continuity().is_whole


STUBBORN = """\
import signal, sys, time
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
print("at work", flush=True)
while True:
    time.sleep(1)
"""


def stubborn(s: Staged) -> None:
    """An agent of the user's own that hears no signal."""
    script = s.root / "stubborn.py"
    script.write_text(STUBBORN)
    command = f'["{sys.executable}", "{script}"]'
    s.config(f"[agents.stubborn]\ncommand = {command}\n", {**QUICK, "grace_s": 30.0})


def test_the_third_ctrl_c_kills_an_agent_that_hears_nothing_else(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        stubborn(s)
        process = s.start("run", "--agent", "stubborn", "anything")
        s.until(lambda: s.run_ids() and s.state(s.run_ids()[0]) == "working")
        (run_id,) = s.run_ids()
        for number in (1, 2, 3):
            process.send_signal(signal.SIGINT)
            s.until(partial(_was_pressed, s, run_id, number, process))
        ended = s.end(process)
        assert ended.code == 130
        assert s.state(run_id) == "cancelled"
        assert not left_running(s)


def _was_pressed(s: Staged, run_id: str, times: int, process: "subprocess.Popen[str]") -> bool:
    with s.store() as store:
        kinds = [entry.kind for entry in store.log(run_id)]
    return kinds.count("pressed") == times or process.poll() is not None


def test_ctrl_c_in_a_terminal_reaches_segue_alone(tmp_path: Path) -> None:
    """A terminal sends it to all of the foreground's processes: the agent is not one of them."""
    with stage(SLOW, within=tmp_path) as s:
        command = [sys.executable, "-c", "from segue.start import main; main()", *s.words()]
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(s.project)
            os.execve(command[0], command, {**s.env, "TERM": "xterm"})
        in_step(s, 3)
        os.write(terminal, b"\x03")
        shown = b""
        try:
            while data := os.read(terminal, 65536):
                shown += data
        except OSError:
            pass  # so a terminal says that nobody is there any more
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        assert os.waitstatus_to_exitcode(status) == 130
        assert b"not auto-resuming" in shown
        found = s.continuity(finished=False)
        assert found.is_whole
        assert 3 in found.done, "the agent was interrupted too"
        assert not left_running(s)


def test_a_signal_that_ends_segue_ends_the_agent_and_its_tools_too(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        process = s.start_run()
        in_step(s, 3)
        process.send_signal(signal.SIGTERM)
        ended = s.end(process)
        assert ended.code == 130
        assert s.state(s.run_ids()[0]) == "cancelled"
        assert not left_running(s)
        assert s.segue("resume").code == 0
        assert s.continuity().is_whole


def test_ctrl_c_while_it_waits_ends_it_at_once(tmp_path: Path) -> None:
    with stage("plan-limit", within=tmp_path) as s:
        process = s.start_run()
        s.until(lambda: s.run_ids() and s.state(s.run_ids()[0]) == "waiting")
        process.send_signal(signal.SIGINT)
        assert s.end(process).code == 130
        assert s.state(s.run_ids()[0]) == "cancelled"


def test_a_limit_on_active_time_ends_it_with_124_and_says_how_to_change_it(
    tmp_path: Path,
) -> None:
    with stage(SLOW, within=tmp_path, policy={**QUICK, "max_active_s": 2.0}) as s:
        ended = s.run()
        assert ended.code == 124
        assert "max_active_s" in ended.stderr
        assert s.continuity(finished=False).is_whole
        assert not left_running(s)
        with s.store() as store:
            (run,) = store.runs()
        assert run.tokens > 0, "usage is kept on a timeout too"


def test_waiting_for_a_limit_does_not_count_as_active_time(tmp_path: Path) -> None:
    with stage("plan-limit", within=tmp_path, policy={**QUICK, "max_active_s": 7.0}) as s:
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        waits = [e for e in ended.events if e["state"] == "waiting"]
        assert waits


def test_a_silent_agent_is_ended_and_continues_in_the_same_session(tmp_path: Path) -> None:
    with stage("silent-hang", within=tmp_path, policy={**QUICK, "stall_s": 3.0}) as s:
        ended = s.run("--json")
        assert ended.code == 0, ended.stderr
        assert s.continuity().is_whole
        with s.store() as store:
            (run,) = store.runs()
            stops = [kept.stop.reason.value for kept in store.stops(run.id)]
            sessions = {leg.session_id for leg in store.legs(run.id)}
        assert stops[0] == "timeout"
        assert len(sessions) == 1


def test_a_tool_that_takes_long_is_not_a_stall(tmp_path: Path) -> None:
    scenario = tmp_path / "long.toml"
    scenario.write_text('about = "Long steps."\n[job]\nsteps = 2\nstep_s = 2.5\n')
    with stage(scenario, within=tmp_path, policy={**QUICK, "stall_s": 1.0}) as s:
        ended = s.run("--json")  # each step is silent for longer than that
        assert ended.code == 0, ended.stderr
        assert len([e for e in ended.events if e["kind"] == "legended"]) == 1


def test_a_check_that_fails_three_times_ends_the_run_and_its_output_was_the_prompt(
    tmp_path: Path,
) -> None:
    with stage("success", within=tmp_path) as s:
        ended = s.run("--json", "--check", "echo nine lives; exit 7")
        assert ended.code == 1
        (run_id,) = s.run_ids()
        with s.store() as store:
            run = store.run(run_id)
            assert run is not None
            assert run.outcome is not None
            assert run.outcome.reason == "check_failed"
            legs = store.legs(run_id)
        assert len(legs) == 4, "the work, and three more tries"
        told = (s.leg(run_id, 2) / "prompt.md").read_text()
        assert "nine lives" in told
        assert "status 7" in told


def test_a_check_that_passes_later_lets_the_run_be_done(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        check = "test -e tried || { touch tried; exit 1; }"
        ended = s.run("--check", check)
        assert ended.code == 0, ended.stderr
        with s.store() as store:
            (run,) = store.runs()
        assert run.leg == 2


def test_a_cap_on_legs_ends_it_and_names_the_setting(tmp_path: Path) -> None:
    with stage("three-exhaustions", within=tmp_path, policy={**QUICK, "max_legs": 2}) as s:
        ended = s.run()
        assert ended.code == 1
        assert "max_legs" in ended.stderr
        assert s.continuity(finished=False).is_whole
        assert not left_running(s)


def test_waiting_longer_than_is_allowed_gives_up_with_75(tmp_path: Path) -> None:
    with stage("plan-limit", within=tmp_path, policy={**QUICK, "max_limited_s": 2.0}) as s:
        ended = s.run()
        assert ended.code == 75
        assert "segue resume" in ended.stderr
        s.until(lambda: s.segue("resume").code == 0, max_s=40)
        assert s.continuity().is_whole


def test_ctrl_c_while_the_check_runs_ends_the_check_and_all_that_it_started(
    tmp_path: Path,
) -> None:
    with stage("success", within=tmp_path) as s:
        process = s.start_run("--check", "(sleep 97 & sleep 98)")
        s.until(lambda: s.run_ids() and s.state(s.run_ids()[0]) == "checking")
        process.send_signal(signal.SIGINT)
        assert s.end(process).code == 130
        assert not left_running(s)


def test_a_check_of_a_segue_that_was_killed_is_taken_up_and_not_run_twice(
    tmp_path: Path,
) -> None:
    with stage("success", within=tmp_path) as s:
        process = s.start_run("--check", "echo once >>ran; sleep 2")
        s.until(lambda: (s.project / "ran").exists())
        process.kill()
        s.end(process)
        ended = s.segue("resume")
        assert ended.code == 0, ended.stderr
        assert (s.project / "ran").read_text() == "once\n"
        assert not left_running(s)


def test_half_a_character_in_an_answer_does_no_harm(tmp_path: Path) -> None:
    scenario = tmp_path / "half.toml"
    scenario.write_text('about = "x"\n[[turns]]\ntext = "half"\n')
    with stage(scenario, within=tmp_path) as s:
        command = f'["{sys.executable}", "{s.root}/half.py"]'
        (s.root / "half.py").write_text(
            'import json\nprint(json.dumps({"type": "result", "subtype": "success", "is_error":'
            ' False, "result": "x \\ud83d y", "session_id": "s", "num_turns": 1}))\n'
            'print(json.dumps({"type": "assistant", "message": {"id": "msg_1", "model": "claude-x",'
            ' "content": [{"type": "text", "text": "x \\ud83d y"}]}, "session_id": "s"}))\n'
        )
        s.config(f'[agents.half]\ncommand = {command}\nlike = "claude"\n')
        ended = s.segue("run", "--agent", "half", "anything")
        assert "Traceback" not in ended.stderr
        assert ended.code in (0, 1)


def test_a_cap_on_tokens_ends_a_leg_that_is_at_work(tmp_path: Path) -> None:
    scenario = tmp_path / "dear.toml"
    scenario.write_text('about = "Dear."\nlimit_s = 60\n[job]\nsteps = 30\nstep_s = 0.6\n')
    with stage(scenario, within=tmp_path, policy={**QUICK, "max_tokens": 3_000}) as s:
        ended = s.run()
        assert ended.code == 1
        assert "max_tokens" in ended.stderr
        assert 0 < len(s.continuity(finished=False).done) < 30
        assert not left_running(s)


FLOOD = """\
import os
line = b"x" * 1000 + b"\\n"
for _ in range(400_000):
    os.write(1, line)
"""


def test_an_agent_that_prints_without_end_can_still_be_ended(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        script = s.root / "flood.py"
        script.write_text(FLOOD)
        command = f'["{sys.executable}", "{script}"]'
        s.config(f"[agents.flood]\ncommand = {command}\n")
        process = s.start("run", "--agent", "flood", "anything")
        s.until(lambda: s.run_ids() and s.state(s.run_ids()[0]) == "working")
        process.send_signal(signal.SIGTERM)
        assert s.end(process).code == 130
        assert not left_running(s)


def test_a_reader_that_stands_still_holds_up_nothing(tmp_path: Path) -> None:
    scenario = tmp_path / "loud.toml"
    scenario.write_text('about = "Loud."\n[job]\nsteps = 12\noutput_bytes = 20000\n')
    with stage(scenario, within=tmp_path) as s:
        process = s.start_run("--raw")  # nobody reads what it prints, and a pipe holds 64 KB
        s.until(lambda: s.run_ids() and s.state(s.run_ids()[0]) == "done")
        ended = s.end(process)
        assert ended.code == 0
        assert ended.stdout.encode() == s.leg(s.run_ids()[0]).joinpath("stdout").read_bytes()


def test_the_first_ctrl_c_ends_an_agent_that_tells_nothing_of_its_tools(tmp_path: Path) -> None:
    with stage(SLOW, within=tmp_path) as s:
        script = s.root / "plain.py"
        script.write_text("import time\nprint('at work', flush=True)\ntime.sleep(100)\n")
        s.config(f'[agents.plain]\ncommand = ["{sys.executable}", "{script}"]\n')
        process = s.start("run", "--agent", "plain", "anything")
        s.until(lambda: s.run_ids() and s.state(s.run_ids()[0]) == "working")
        process.send_signal(signal.SIGINT)
        assert s.end(process).code == 130
        assert not left_running(s)


def test_a_permission_that_nobody_could_give_is_needs_you_although_the_agent_ended_well(
    tmp_path: Path,
) -> None:
    with stage("success", within=tmp_path) as s:
        (s.root / "denied.py").write_text(DENIED)
        command = f'["{sys.executable}", "{s.root}/denied.py"]'
        s.config(f'[agents.denied]\ncommand = {command}\nlike = "claude"\n')
        ended = s.segue("run", "--agent", "denied", "anything")
        assert ended.code == 3, ended.stderr
        assert s.state(s.run_ids()[0]) == "needs-you"
        assert "make deploy" in ended.stderr
        assert "segue resume" in ended.stderr
