"""Keepers: one agent each, complete output, the right exit record, and nothing left behind."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from support.runs.keeping import LIMIT_S, Kept, alive, kept, when, whole

from segue.runs.legs import keeper
from segue.runs.legs.leg import Leg, Spec
from segue.system.process.descendants import MARK

__all__ = ["kept"]

GLIBCS_OWN = 1 << 31 | 1 << 32  # two signals that no program can use
DEAF = "trap '' INT TERM HUP; echo up >up; while :; do sleep 0.1; done"


# What an agent is given


def test_an_agent_gets_its_folder_environment_and_input_and_nothing_else(kept: Kept) -> None:
    env = kept.env(COLOUR="red", PYTHONPATH="/x", PYTHONHOME="/y", PWD="/wrong")
    spec = kept.spec("env; pwd; cat; echo oh >&2; exit 3", input=b"a prompt\n")
    kept.leg.start(spec, env)
    assert kept.exit().exit_code == 3
    told = kept.said()
    assert told.endswith(f"{kept.work}\na prompt\n")
    assert kept.leg.stderr.read_text() == "oh\n"
    got = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
    got.pop("_", None)
    assert got == {**env, "PWD": str(kept.work)}


def test_secrets_of_the_environment_are_nowhere_in_the_folder_and_it_is_private(
    kept: Kept,
) -> None:
    kept.leg.start(kept.spec("exit 0"), kept.env(API_KEY="sk-very-secret"))
    kept.exit()
    for file in kept.leg.folder.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file
        if file.is_file():
            assert b"sk-very-secret" not in file.read_bytes(), file
    assert kept.leg.folder.stat().st_mode & 0o077 == 0
    assert "API_KEY" in (kept.leg.folder / "spec.json").read_text()


def test_ten_megabytes_of_input_reach_it_and_then_comes_the_end(kept: Kept) -> None:
    kept.start("sleep 0.2; wc -c; echo after", input=b"x" * (10 << 20))
    assert kept.exit().exit_code == 0
    assert kept.said().split() == [str(10 << 20), "after"]


def test_an_agent_that_does_not_read_its_input_is_waited_for(kept: Kept) -> None:
    kept.start("exec <&-; sleep 0.1; exit 4", input=b"x" * (10 << 20))
    assert kept.exit().exit_code == 4


def test_an_agent_that_never_reads_its_input_can_be_ended(kept: Kept) -> None:
    kept.start("echo up >up; exec sleep 300", input=b"x" * (10 << 20))
    kept.reached("up")
    kept.leg.command("bye", "end")
    assert kept.exit().exit_code == -15


def test_without_input_there_is_nothing_to_read(kept: Kept) -> None:
    kept.start("cat; readlink /proc/self/fd/0")
    assert kept.exit().exit_code == 0
    assert kept.said() == "/dev/null\n"


def test_more_input_comes_in_order_and_closing_it_is_the_end_of_it(kept: Kept) -> None:
    kept.start("cat; echo end", input=b"1\n", stays_open=True)
    when(lambda: kept.said() == "1\n", "the first line is there")
    kept.leg.command("a", "input", input=b"2\n")
    when(lambda: kept.said() == "1\n2\n", "the second line is there")
    kept.leg.command("b", "input", input=b"3\n" * 100_000)
    kept.leg.command("c", "close_input")
    kept.leg.command("d", "input", input=b"too late\n")
    assert kept.exit().exit_code == 0
    assert kept.said() == "1\n2\n" + "3\n" * 100_000 + "end\n"
    assert kept.exit().ended_by_command == ""


def test_ignored_and_blocked_signals_are_not_handed_down(kept: Kept) -> None:
    """segue may have been started with nohup, or in the background of a script."""
    script = "grep -E 'Sig(Blk|Ign)' /proc/self/status"
    code = f"""
import signal
from pathlib import Path
from segue.runs.legs.leg import Leg, Spec
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
leg = Leg(Path({str(kept.leg.folder)!r}))
leg.start(Spec(argv=("sh", "-c", {script!r}), cwd="/"), {kept.env()!r})
"""
    argv = ["sh", "-c", 'trap "" HUP INT TERM QUIT PIPE; exec "$0" -c "$1"', sys.executable, code]
    subprocess.run(argv, check=True, timeout=60)
    assert kept.exit().exit_code == 0
    told = dict(line.split(":\t") for line in kept.said().splitlines())
    assert {k: int(v, 16) & ~GLIBCS_OWN for k, v in told.items()} == {"SigBlk": 0, "SigIgn": 0}


def test_the_agent_leads_a_session_of_its_own_without_a_terminal(kept: Kept) -> None:
    status = kept.start("echo up >up; exec sleep 300")
    kept.reached("up")
    assert os.getsid(status.agent_pid) == status.agent_pid
    assert os.getsid(status.keeper_pid) == status.keeper_pid
    assert os.readlink(f"/proc/{status.keeper_pid}/cwd") == "/"
    assert psutil.Process(status.agent_pid).ppid() == status.keeper_pid


def test_files_that_segue_holds_open_are_held_by_nobody_else(kept: Kept) -> None:
    """Else whoever waits for the end of a pipe would wait for the agent."""
    end, inherited = os.pipe()
    os.set_inheritable(inherited, True)
    status = kept.start("ls /proc/self/fd | wc -l >count; exec sleep 300")
    os.close(inherited)
    assert select.select([end], [], [], 0)[0], "somebody else has it open"
    assert os.read(end, 1) == b""
    os.close(end)
    assert int(kept.reached("count")) == 4, "the three and the folder that ls reads"
    held = [os.readlink(f) for f in Path(f"/proc/{status.keeper_pid}/fd").iterdir()]
    assert str(kept.leg.stdout) not in held


def test_the_locale_that_python_sets_for_itself_does_not_reach_the_agent(kept: Kept) -> None:
    kept.start("env")  # no LANG at all
    kept.exit()
    assert "LC_CTYPE" not in kept.said()


# What cannot be started


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (("no-such-agent",), "no-such-agent: no such program"),
        (("/no/such/agent", "x"), "/no/such/agent: no such program"),
        (("/etc/passwd",), "/etc/passwd: cannot be started: Permission denied"),
        (("sh", "x" * 200_000), "sh: cannot be started: Argument list too long"),
    ],
)
def test_what_cannot_be_started_is_said_in_one_line(
    argv: tuple[str, ...], error: str, kept: Kept
) -> None:
    status = kept.leg.start(Spec(argv=argv, cwd=str(kept.work)), kept.env())
    assert status.state == "ended"
    assert status.exit is not None
    assert (status.exit.exit_code, status.exit.error) == (127, error)


def test_a_working_folder_that_is_not_there_is_said_in_one_line(kept: Kept) -> None:
    nowhere = str(kept.work / "no where")
    status = kept.leg.start(Spec(argv=("true",), cwd=nowhere), kept.env())
    assert status.exit is not None
    assert status.exit.error == (
        f"{nowhere}: the working folder cannot be entered: No such file or directory"
    )


def test_spaces_newlines_and_odd_bytes_in_paths_and_arguments(kept: Kept) -> None:
    odd = kept.work / "a folder\nwith \udcff and ü"
    odd.mkdir()
    program = odd / "my agent"
    program.write_text('#!/bin/sh\npwd; printf "%s|" "$@"\n')
    program.chmod(0o755)
    leg = kept.leg = Leg(kept.leg.folder.parent / "leg \udcfe 2")
    argv = (str(program), "a b", "\udcfd", "")
    leg.start(Spec(argv=argv, cwd=str(odd)), kept.env())
    assert kept.exit().exit_code == 0, leg.stderr.read_text()
    assert os.fsdecode(leg.stdout.read_bytes()) == f"{odd}\na b|\udcfd||"
    stored = leg.spec()
    assert stored is not None
    assert stored.argv == argv


# How it ends


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_from_elsewhere_shows_in_the_exit_code(number: int, kept: Kept) -> None:
    status = kept.start("echo up >up; exec sleep 300")
    kept.reached("up")
    os.kill(status.agent_pid, number)
    exit = kept.exit()
    assert (exit.exit_code, exit.ended_by_command, exit.lost) == (-number, "", False)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_the_last_line_of_an_agent_that_is_ended_gently_is_kept(name: str, kept: Kept) -> None:
    trap = f"trap 'sleep 0.2; echo last; exit 7' {name[3:]}"
    kept.start(f"{trap}; echo up >up; while :; do sleep 0.05; done", interrupt_signal=name)
    kept.reached("up")
    kept.leg.command("bye", "end", interrupt=name == "SIGINT", patience_s=20 * (name == "SIGINT"))
    exit = kept.exit()
    assert (exit.exit_code, exit.ended_by_command) == (7, "bye")
    assert kept.said() == "last\n"


def test_a_gentle_end_may_begin_with_a_word(kept: Kept) -> None:
    kept.start("read word; echo got $word; exit 5", stays_open=True)
    kept.leg.command("bye", "end", input=b"stop\n", patience_s=20)
    assert kept.exit().exit_code == 5
    assert kept.said() == "got stop\n"


def test_an_agent_that_hears_nothing_is_gone_after_its_grace(kept: Kept) -> None:
    kept.start(DEAF, grace_s=0.3)
    kept.reached("up")
    begun = time.monotonic()
    kept.leg.command("bye", "end", interrupt=True, patience_s=0.2)
    assert kept.exit().exit_code == -9
    assert time.monotonic() - begun >= 0.5


def test_a_stopped_agent_hears_the_end(kept: Kept) -> None:
    status = kept.start("trap 'exit 6' TERM; echo up >up; while :; do sleep 0.05; done", grace_s=20)
    kept.reached("up")
    os.kill(status.agent_pid, signal.SIGSTOP)
    kept.leg.command("bye", "end")
    assert kept.exit().exit_code == 6


def test_an_interrupt_reaches_the_agent_alone_and_it_may_continue(kept: Kept) -> None:
    tool = "trap 'echo hit >tool' INT; echo up >tool_up; while :; do sleep 0.05; done"
    kept.start(
        f"sh -c \"{tool}\" & trap 'echo hit >hit' INT; echo up >up; while :; do sleep 0.05; done"
    )
    kept.reached("up")
    kept.reached("tool_up")
    kept.leg.command("stop", "interrupt")
    kept.reached("hit")
    assert kept.leg.status().state == "running"
    kept.leg.command("bye", "kill")
    exit = kept.exit()
    assert (exit.exit_code, exit.ended_by_command) == (-9, "bye")
    assert not (kept.work / "tool").exists()


def test_a_kill_ends_agent_and_tools_at_once(kept: Kept) -> None:
    kept.start(f'setsid sh -c "{DEAF}; echo $$" & echo $! >pid; {DEAF.replace("up", "up2")}')
    pid = int(kept.reached("pid"))
    kept.reached("up")
    kept.reached("up2")
    kept.leg.command("now", "kill")
    exit = kept.exit()
    assert exit.exit_code == -9
    assert pid in [ended.pid for ended in exit.swept]
    assert {ended.by for ended in exit.swept} == {"SIGKILL"}
    assert not alive(pid)


def test_tools_in_sessions_of_their_own_are_gone_and_named(kept: Kept) -> None:
    """At two removes, their parent gone, their environment emptied."""
    hidden = "env -i setsid sh -c '(sleep 301 & echo $! >hidden; wait)' &"
    kept.start(f"({hidden}); setsid sleep 302 & echo $! >tool; while ! [ -s hidden ]; do :; done")
    exit = kept.exit()
    assert exit.exit_code == 0
    pids = [int(kept.reached(name)) for name in ("hidden", "tool")]
    swept = {ended.pid: ended for ended in exit.swept}
    assert set(pids) <= set(swept)
    assert all(swept[pid].argv for pid in pids)
    assert not any(map(alive, pids))


def test_a_tool_that_hears_nothing_is_killed_and_its_output_is_whole(kept: Kept) -> None:
    kept.start(
        f"setsid sh -c \"trap 'echo tool >&2' TERM; {DEAF.partition(';')[2]}\" & "
        "while ! [ -s up ]; do sleep 0.01; done"
    )
    exit = kept.exit()
    assert exit.exit_code == 0
    assert "SIGKILL" in [ended.by for ended in exit.swept]
    assert "tool" in kept.leg.stderr.read_text().splitlines()


def test_orphans_are_taken_leave_of_while_the_agent_runs(kept: Kept) -> None:
    status = kept.start("(sh -c 'echo up >up' &); (sh -c 'exit 1' &); exec sleep 300")
    kept.reached("up")
    keeps = psutil.Process(status.keeper_pid)
    when(lambda: [p.pid for p in keeps.children()] == [status.agent_pid], "orphans are gone")


@pytest.mark.parametrize("name", ["SIGHUP", "SIGINT", "SIGQUIT", "SIGPIPE"])
def test_a_keeper_survives_what_a_closed_terminal_sends(name: str, kept: Kept) -> None:
    status = kept.start("read word; exit 9", stays_open=True)
    os.kill(status.keeper_pid, signal.Signals[name])
    kept.leg.command("go", "input", input=b"go\n")
    assert kept.exit().exit_code == 9


def test_a_keeper_that_is_told_to_end_ends_the_agent_gently(kept: Kept) -> None:
    trap = "trap 'echo last; exit 7' INT"
    status = kept.start(f"{trap}; echo up >up; while :; do sleep 0.05; done", grace_s=20)
    kept.reached("up")
    os.kill(status.keeper_pid, signal.SIGTERM)
    exit = kept.exit()
    assert (exit.exit_code, exit.ended_by_command) == (7, "SIGTERM")
    assert kept.said() == "last\n"


# At most one, whoever is killed


def test_two_keepers_at_the_same_moment_are_one_agent(tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-S", keeper.__file__]
    for number in range(20):
        kept = Kept(tmp_path / str(number))
        kept.leg.folder.mkdir(parents=True)
        kept.leg._store(kept.spec("echo $$ >>starts; exit 3"), kept.env())
        env = kept.env()
        pair = [subprocess.Popen([*argv, str(kept.leg.folder)], env=env) for _ in range(2)]
        assert [process.wait(LIMIT_S) for process in pair] == [0, 0]
        assert kept.exit().exit_code == 3
        assert len(kept.reached("starts").split()) == 1
        when(lambda kept=kept: not kept.left(), "both keepers are gone")  # type: ignore[misc]


def test_starting_a_leg_again_and_again_is_one_agent(kept: Kept) -> None:
    def start() -> None:
        kept.start("echo $$ >>starts; read word; exit 3", stays_open=True)

    threads = [threading.Thread(target=start) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept.leg.command("go", "input", input=b"go\n")
    assert kept.exit().exit_code == 3
    assert kept.start("echo other >>starts").state == "ended"
    assert len(kept.reached("starts").split()) == 1


STARTER = """
import sys
from pathlib import Path
from segue.runs.legs.leg import Leg, Spec
leg = Leg(Path(sys.argv[1]))
spec = Spec(argv=("sh", "-c", sys.argv[2]), cwd=sys.argv[3])
print("go", flush=True)
leg.start(spec, {"PATH": sys.argv[4], "SEGUE_LEG": sys.argv[5]})
print("started", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("after_ms", [0, 2, 4, 8, 12, 16, 20, 25, 30, 40, 60, 120])
def test_after_kill_9_of_the_starter_at_any_time_nothing_is_lost_or_done_twice(
    after_ms: int, kept: Kept
) -> None:
    script = "echo $$ >>starts; for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.02; done; exit 3"
    argv = [str(kept.leg.folder), script, str(kept.work), os.environ["PATH"], kept.mark]
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"go\n"
        time.sleep(after_ms / 1000)  # the moment of the kill, not a wait for something
        os.killpg(starter.pid, signal.SIGKILL)
        starter.wait()
        kept.start(script)  # as a later segue does
        assert kept.exit().exit_code == 3
    assert kept.said().split() == list("12345678")
    assert len(kept.reached("starts").split()) == 1


def test_a_keeper_that_is_killed_before_the_agent_is_there_is_not_followed_by_another(
    kept: Kept,
) -> None:
    kept.leg.folder.mkdir(parents=True)
    kept.leg._store(kept.spec("echo x >begun"), kept.env())
    os.mkfifo(kept.leg.stdout)  # it waits there, until somebody reads
    argv = [sys.executable, "-I", "-S", keeper.__file__, str(kept.leg.folder)]
    subprocess.run(argv, env=kept.env(), check=True, timeout=LIMIT_S)
    status = when(lambda: (s := kept.leg.status()).keeper_pid and s, "it reports")
    assert status
    assert (status.state, status.agent_pid) == ("starting", 0)
    os.kill(status.keeper_pid, signal.SIGKILL)
    assert kept.leg.wait(LIMIT_S).state == "lost"
    assert kept.start("echo x >begun").state == "lost"
    subprocess.run(argv, env=kept.env(), check=True, timeout=LIMIT_S)
    when(lambda: not kept.left(), "the other keeper is gone")
    assert kept.leg.status().state == "lost"
    assert kept.leg.sweep_lost().lost
    assert not (kept.work / "begun").exists()


def test_a_killed_keeper_loses_the_leg_but_no_output_and_a_sweep_ends_all_of_it(
    kept: Kept,
) -> None:
    tool = "setsid sh -c '(setsid sleep 303 & echo $! >deep; wait)' & echo $! >tool"
    bare = "env -i setsid sleep 304 & echo $! >bare"  # no mark: found below the agent
    script = f"{tool}; {bare}; echo before; echo up >up; while ! [ -e go ]; do sleep 0.02; done; "
    status = kept.start(script + "echo after; echo done >done; exec sleep 300")
    pids = [int(kept.reached(name)) for name in ("deep", "tool", "bare")]
    kept.reached("up")
    os.kill(status.keeper_pid, signal.SIGKILL)
    assert kept.leg.wait(LIMIT_S).state == "lost"
    (kept.work / "go").touch()
    kept.reached("done")
    assert kept.said() == "before\nafter\n"
    assert kept.start("echo twice").state == "lost", "it is not begun again"
    exit = kept.leg.sweep_lost()
    assert (exit.exit_code, exit.lost, exit.error) == (None, True, "its keeper was killed")
    assert {*pids, status.agent_pid} <= {ended.pid for ended in exit.swept}
    assert not any(map(alive, [*pids, status.agent_pid]))
    assert kept.leg.status().exit == exit
    assert kept.leg.sweep_lost() == exit


def test_a_sweep_leaves_other_legs_alone(tmp_path: Path, kept: Kept) -> None:
    other = Kept(tmp_path / "other")
    other.start("read word; exit 3", stays_open=True)
    status = kept.start("exec sleep 300")
    os.kill(status.keeper_pid, signal.SIGKILL)
    assert kept.leg.wait(LIMIT_S).state == "lost"
    kept.leg.sweep_lost()
    other.leg.command("go", "input", input=b"go\n")
    assert other.exit().exit_code == 3


def test_a_leg_inside_a_leg_has_a_mark_of_its_own(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the sweep of the inner one would end the outer one."""
    monkeypatch.setenv(MARK, kept.mark)  # we are in a leg, and hand our environment down
    kept.start(f"echo ${MARK}")
    kept.exit()
    assert kept.said().strip() not in ("", kept.mark)


def test_commands_that_were_given_before_the_start_are_carried_out(kept: Kept) -> None:
    kept.leg.folder.mkdir(parents=True, mode=0o700)
    kept.leg.command("a", "input", input=b"early\n")
    kept.leg.command("b", "close_input")
    kept.start("cat", stays_open=True)
    assert kept.exit().exit_code == 0
    assert kept.said() == "early\n"


def test_each_command_is_carried_out_once_and_what_is_not_a_command_is_passed_over(
    kept: Kept,
) -> None:
    kept.start("cat", stays_open=True)
    control = kept.leg.folder / "control.jsonl"
    line = json.dumps({"key": "a", "kind": "input", "input": "b25jZQo="}) + "\n"
    odd = '\n{"key": "x"}\n[]\n7\n{"key": "y", "kind": "dance"}\n' + "[" * 100_000 + "\n"
    odd += '{"key": "z", "kind": "input", "input": "?"}\n{"key": [], "kind": "kill"}\n'
    odd += '{"key": "w", "kind": "end", "patience_s": "x"}\n\xff\x00\n'
    with control.open("a", encoding="latin-1") as file:
        file.write(line + odd + line + line + '{"key": "b", "kind": "kill')
    kept.leg.command("a", "input", input=b"not this\n")  # known: only rings
    when(lambda: whole(kept.leg.stdout), "it comes")
    kept.leg.command("c", "input", input=b"end\n")
    kept.leg.command("c", "input", input=b"end\n")
    kept.leg.command("d", "close_input")
    exit = kept.exit()
    assert (exit.exit_code, exit.ended_by_command) == (0, "")
    assert kept.said() == "once\nend\n"


def test_a_command_that_comes_in_two_pieces_is_one(kept: Kept) -> None:
    kept.start("cat", stays_open=True)
    last = json.dumps({"key": "b", "kind": "input", "input": "dHdvCg=="})
    with (kept.leg.folder / "control.jsonl").open("a") as file:
        file.write(json.dumps({"key": "a", "kind": "input", "input": "b25lCg=="}) + "\n" + last[:9])
        file.flush()
        kept.leg._ring()
        when(lambda: kept.said() == "one\n", "what is whole is carried out")
        file.write(last[9:] + "\n")
    kept.leg.command("c", "close_input")
    kept.exit()
    assert kept.said() == "one\ntwo\n"
