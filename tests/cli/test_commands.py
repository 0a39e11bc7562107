"""The commands as a whole: help, hints, the newest run, leaving a view, the task in a file,
completion."""

import json
import os
import pty
import re
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from support.running import LONG_S, Staged, stage

from segue.cli import COMMANDS, GROUPS

SEGUE = (sys.executable, "-m", "segue")


def segue(*words: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SEGUE, *words],
        cwd=cwd,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )


def test_help_tells_every_command_once_in_one_line_and_in_a_group() -> None:
    said = segue("--help", COLUMNS="80").stdout
    titles = re.findall(r"^(\w[\w ]*):$", said, re.M)
    assert titles == ["Options", *GROUPS]
    told = [name for names in GROUPS.values() for name in names]
    assert sorted(told) == sorted(COMMANDS)
    for name, what in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(what)}$", said, re.M), name


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["stats"], "status"),
        (["sess"], "sessions"),
        (["Run", "x"], "run"),
        (["config", "shwo"], "show"),
        (["service", "instal"], "install"),
        (["run", "--agent", "cluade", "x"], "claude"),
        (["sessions", "--agent", "cdex"], "codex"),
        (["drill", "--agent", "opncode"], "opencode"),
        (["drill", "--scenario", "plan-limt"], "plan-limit"),
        (["run", "x", "--set", "hard-mrk=0.5"], "hard_mark"),
        (["runs", "--jsn"], "--json"),
        (["run", "--polcy", "early", "x"], "--policy"),
        (["resume", "--detatch"], "--detach"),
        (["setup", "cluade"], "claude"),
        (["completion", "zhs"], "zsh"),
        (["wordings", "list", "--reason", "rate_limt"], "rate_limit"),
    ],
)
def test_what_was_meant_is_said_in_one_line(words: list[str], meant: str) -> None:
    done = segue(*words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"did you mean {meant}?" in line.lower()


@pytest.mark.parametrize("command", ["run", "resume", "rerun"])
def test_an_option_of_the_agents_is_told_where_it_belongs(command: str) -> None:
    takes = '"TASK"' if command == "run" else "RUN"
    done = segue(command, "--yolo", "x")
    assert (done.returncode, done.stderr) == (
        2,
        f"segue: --yolo is not an option of segue {command}. The agent's own options go after --:"
        f" segue {command} {takes} -- --yolo …\n",
    )


@pytest.mark.parametrize(
    ("command", "among"),
    [("setup", "claude, codex or opencode"), ("completion", "bash, zsh or fish")],
)
def test_what_can_be_named_is_said_if_nothing_is(command: str, among: str) -> None:
    done = segue(command)
    assert (done.returncode, done.stderr) == (
        2,
        f"segue: choose {among}. See: segue {command} --help\n",
    )


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["resume", "--say"], "resume"),
        (["logs", "--leg"], "logs"),
        (["scan", "--json=yes"], "scan"),
        (["wordings", "list", "--reason"], "wordings list"),
    ],
)
def test_a_usage_error_names_the_help_of_its_command(words: list[str], command: str) -> None:
    done = segue(*words)
    assert done.returncode == 2
    assert done.stderr.endswith(f" See: segue {command} --help\n")


@pytest.mark.parametrize("command", ["runs", "sessions", "status", "scan", "notes"])
def test_a_list_of_nothing_is_not_an_error(command: str) -> None:
    done = segue(command)
    assert done.returncode == 0
    assert (done.stdout + done.stderr).strip()
    done = segue(command, "--json")
    assert done.returncode == 0
    assert command == "notes" or json.loads(done.stdout)["schema"] == 1


def test_what_looks_like_nothing_is_not_guessed() -> None:
    done = segue("xyzzy")
    assert (done.returncode, done.stderr) == (
        2,
        "segue: unknown command 'xyzzy'. See: segue --help\n",
    )


def test_a_run_that_nobody_names_is_the_newest_here(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        for command in ("logs", "show", "cancel", "attach", "rerun"):
            ended = s.segue(command)
            assert ended.code == 2, command
            assert "no run" in ended.stderr
        assert s.run().code == 0
        (first,) = s.run_ids()
        typo = first[:-1] + ("x" if first[-1] != "x" else "y")
        assert f"did you mean {first}?" in s.segue("logs", typo).stderr
        assert s.segue("logs").stdout.startswith(s.segue("logs", first).stdout[:60])
        assert first in s.segue("logs").stderr
        assert json.loads(s.segue("show", "--json").stdout)["run"] == first
        assert f"segue show {first}" not in s.segue("show").stdout  # which was just typed
        ended = s.segue("cancel")  # all are over
        assert ended.code == 2
        assert s.segue("rerun").code == 0
        assert len(s.run_ids()) == 2
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        assert s.segue("show", cwd=elsewhere).code == 2


def test_cancel_takes_the_only_live_run_here_and_asks_which_of_several(tmp_path: Path) -> None:
    sleeper = '[agents.sleeper]\ncommand = ["sleep", "600"]\n'
    with stage("success", within=tmp_path, more=sleeper) as s:
        for number in (1, 2):
            s.start("run", "--agent", "sleeper", "--share-tree", f"task {number}")
            s.until(lambda many=number: len(s.run_ids()) == many)  # type: ignore[misc]
        second, first = s.run_ids()
        ended = s.segue("cancel")
        assert ended.code == 2
        assert {first, second} == set(re.findall(r"segue cancel (run-\w+)", ended.stderr))
        assert s.segue("cancel", first).code == 0
        ended = s.segue("cancel")
        assert ended.code == 0
        assert f"cancelling {second}" in ended.stderr
        assert s.state(second) == "cancelled"


def read_until(terminal: int, holds: str) -> str:
    said, deadline = "", time.monotonic() + LONG_S
    while holds not in said:
        assert time.monotonic() < deadline, said
        said += os.read(terminal, 4096).decode("utf-8", "replace")
    return said


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_q_leaves_a_view_that_stays_and_the_terminal_is_as_before(
    key: bytes, own_home: Path
) -> None:
    from support.homes import claude_session, reply

    claude_session(own_home, reply(1, 20_000, at=time.time()))
    terminal, inside = pty.openpty()
    before = termios.tcgetattr(inside)
    process = subprocess.Popen(
        [*SEGUE, "status", "--watch"],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        preexec_fn=lambda: os.login_tty(inside) if hasattr(os, "login_tty") else _own(inside),
    )
    try:
        read_until(terminal, "project")
        os.write(terminal, b"x")  # another key does nothing
        os.write(terminal, key)
        deadline = time.monotonic() + LONG_S
        while process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert process.returncode == 0
        assert termios.tcgetattr(inside) == before
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
        os.close(inside)


def _own(inside: int) -> None:
    import fcntl

    os.setsid()
    fcntl.ioctl(inside, termios.TIOCSCTTY, 0)


def last_task(s: Staged) -> str:
    with s.store() as store:
        return store.runs(limit=1)[0].task


def test_a_task_may_stand_in_a_file_and_a_files_name_is_said_to_be_one(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        spec = s.project / "spec.md"
        spec.write_text(s.task)
        own = ["--agent", s.agent]
        ended = s.segue("run", *own, "--task-file", "spec.md")
        assert ended.code == 0, ended.stderr
        assert last_task(s) == s.task
        ended = s.segue("run", *own, "--task-file", "-", "--dry-run", "--json", stdin="do it")
        assert json.loads(ended.stdout)["task"] == "do it"

        ended = s.segue("run", *own, "--dry-run", "--json", "spec.md")
        assert json.loads(ended.stdout)["task"] == "spec.md"
        assert "segue run --task-file spec.md" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1
        ended = s.segue("run", *own, "--dry-run", "read spec.md and do it")
        assert "--task-file" not in ended.stderr
        for words, said in (
            (["--task-file", "nothing.md"], "nothing.md: cannot be read"),
            (["--task-file", "."], "cannot be read"),
            (["--task-file", "spec.md", "task"], "cannot be combined"),
            ([], "what is the task?"),
        ):
            ended = s.segue("run", *own, *words)
            assert ended.code == 2
            assert said in ended.stderr
            assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(("answer", "task"), [(b"y\n", "write a poem"), (b"n\n", "spec.md")])
def test_on_a_terminal_it_asks_whether_the_file_is_meant(
    answer: bytes, task: str, tmp_path: Path
) -> None:
    with stage("success", within=tmp_path) as s:
        (s.project / "spec.md").write_text("write a poem")
        terminal, inside = pty.openpty()
        process = subprocess.Popen(
            [*SEGUE, "run", "--agent", s.agent, "--dry-run", "--json", "spec.md"],
            cwd=s.project,
            env=s.env,
            stdin=inside,
            stdout=subprocess.PIPE,
            stderr=inside,
        )
        try:
            read_until(terminal, "?")
            os.write(terminal, answer)
            out, _ = process.communicate(timeout=LONG_S)
            assert json.loads(out)["task"] == task
        finally:
            process.kill()
            process.wait()
            os.close(terminal)
            os.close(inside)


def complete(s: Staged, *words: str, shell: str = "bash") -> list[str]:
    ended = s.segue(
        _SEGUE_COMPLETE=f"{shell}_complete",
        COMP_WORDS=" ".join(words),
        COMP_CWORD=str(len(words) - 1),
    )
    assert ended.code == 0, ended.stderr
    assert not ended.stderr
    return [line.partition(",")[2].partition("\t")[0] for line in ended.lines]


def test_commands_options_runs_and_agents_are_completed(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        assert complete(s, "segue", "logs", "") == []
        assert s.run().code == 0
        (run_id,) = s.run_ids()
        assert complete(s, "segue", "sta") == ["status", "statusline"]
        for command in ("logs", "resume", "attach", "cancel", "rerun", "forget", "show"):
            assert complete(s, "segue", command, "run-") == [run_id]
        assert complete(s, "segue", "rescue", "") == []
        with s.store() as store:
            (session, _), *_ = store.sessions()
        assert s.segue("checkpoint", session).code == 0  # by now its task is known
        for command in ("rescue", "checkpoint"):
            assert complete(s, "segue", command, session[:4]) == [session]
        s.config('[agents.mine]\ncommand = ["true"]\n')
        assert "mine" in complete(s, "segue", "run", "--agent", "")
        assert complete(s, "segue", "run", "--agent", "cla") == ["claude"]
        assert complete(s, "segue", "drill", "--scenario", "plan") == ["plan-limit"]
        assert "--follow" in complete(s, "segue", "logs", "--")


def test_completion_imports_no_command_and_no_library() -> None:
    code = (
        "import os, sys; os.environ |= {'_SEGUE_COMPLETE': 'bash_complete',"
        " 'COMP_WORDS': 'segue logs ', 'COMP_CWORD': '2'}\n"
        "from segue.cli import main; main()\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "segue.cli.support.completing" in loaded
    assert not loaded & {"msgspec", "rich", "re2", "segue.cli.work.logs", "segue.runs.store.sqlite"}


def test_help_of_a_run_imports_nothing_that_drives_one() -> None:
    code = (
        "import sys; sys.argv = ['segue', 'run', '--help']\n"
        "from segue.cli import main\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    slow = {
        "segue.runs.loop",
        "segue.runs.executor",
        "segue.core.stops.text.reader",
        "genai_prices",
    }
    assert set(done.stderr.split()) & {*slow, "segue.cli.support.run.stage"} == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(shell: str) -> None:
    done = segue("completion", shell)
    assert done.returncode == 0
    assert f"_SEGUE_COMPLETE={shell}_complete" in done.stdout
    assert segue("completion", "csh").returncode == 2


def test_bash_completes_a_run_with_it(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        assert s.run().code == 0
        (run_id,) = s.run_ids()
        tool = tmp_path / "segue"
        tool.write_text(f'#!/bin/sh\nexec {sys.executable} -m segue "$@"\n')
        tool.chmod(0o755)
        script = (
            'eval "$(segue completion bash)"; COMP_WORDS=(segue logs run-); COMP_CWORD=2;'
            ' _segue_completion segue; echo "${COMPREPLY[@]}"'
        )
        done = subprocess.run(
            ["bash", "-c", script],
            env={**s.env, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=True,
        )
        assert done.stdout.split() == [run_id], done.stderr
