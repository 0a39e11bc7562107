"""`segue run` and `resume` as users see them: output, exit codes, and one line for a mistake."""

import json
import os
import pty
import sqlite3
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.running import QUICK, Ended, Staged, stage

from segue.errors import ConfigError
from segue.runs.starting.run_request import policy_for
from segue.system.config import config
from segue.system.config import settings as layered


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Staged]:
    """For mistakes: none of them gets as far as the agent."""
    with stage("success", within=tmp_path_factory.mktemp("place")) as s:
        yield s
        assert s.server.requests == []


def is_refused(ended: Ended, *words: str) -> None:
    """One line, exit code 2, and nothing on stdout."""
    assert ended.code == 2, ended
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith("segue: ")
    for word in words:
        assert word in lines[0]


# Outputs


def test_the_answer_is_on_stdout_and_all_else_on_stderr(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        ended = s.run()
        assert (ended.code, ended.stdout) == (0, "All 6 steps are done.\n")
        assert "✓ done: 1 leg" in ended.stderr
        assert s.continuity().is_whole


def test_raw_is_the_agents_own_output(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        ended = s.run("--raw")
        (run,) = s.run_ids()
        assert ended.stdout == (s.leg(run) / "stdout").read_text()


@pytest.mark.parametrize("how", ["--json", "--raw"])
def test_a_reader_that_goes_away_does_not_end_the_run(how: str, tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        process = s.start_run(how)
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
        assert s.continuity().is_whole


def test_the_task_may_come_on_stdin(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        assert s.segue("run", "--agent", s.agent, "-", stdin=s.task).code == 0
        assert s.continuity().is_whole


def test_a_check_of_the_projects_file_is_announced_with_its_file(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        (s.project / ".segue.toml").write_text('[run]\ncheck = "test -d steps"\n')
        for how in ("--share-tree", "--json", "--raw"):
            ended = s.run(how, "--trust-check")
            told = f"segue runs the check of {s.project / '.segue.toml'}:2: test -d steps"
            assert ended.code == 0
            assert told in ended.stderr


# Exit codes


@pytest.mark.parametrize(
    ("scenario", "more", "code"),
    [
        ("auth-failure", (), 1),
        ("plan-limit", ("--set", "max_limited_s=1"), 75),
        ("silent-hang", ("--set", "stall_s=60", "--set", "max_wall_s=2"), 124),
        ("success", ("--check", "exit 9", "--set", "max_checks=0"), 1),
        ("success", ("--set", "max_legs=1"), 0),
    ],
)
def test_exit_codes(scenario: str, more: tuple[str, ...], code: int, tmp_path: Path) -> None:
    with stage(scenario, within=tmp_path) as s:
        ended = s.run(*more)
        assert ended.code == code, ended.stderr
        if code:
            assert ended.stdout == ""
            assert f"(exit code {code})" in ended.stderr
            (run,) = s.run_ids()
            assert f"segue resume {run}" in ended.stderr


# Mistakes


@pytest.mark.parametrize("command", ["resume", "logs", "show", "cancel", "rerun"])
def test_an_unknown_run(command: str, place: Staged) -> None:
    is_refused(place.segue(command, "run-nothing"), "no run is called", "segue runs")


@pytest.mark.parametrize("command", ["resume", "logs", "cancel", "rerun"])
def test_an_ambiguous_beginning(command: str, tmp_path: Path) -> None:
    from segue.core.runs.types import Run

    with stage("success", within=tmp_path) as s:
        with s.store() as store:
            for name in ("run-aa01", "run-aa02"):
                policy = config.policy()
                store.create(
                    Run(id=name, task="x", agent="claude", cwd="/", created_at=1.0, policy=policy)
                )
        is_refused(s.segue(command, "run-aa"), "run-aa01, run-aa02")
        is_refused(s.segue(command, "aa"), "2 runs")


def test_no_run_to_resume_in_this_folder(place: Staged) -> None:
    is_refused(place.segue("resume"), "no unfinished run")


def test_a_task_that_is_missing_empty_or_not_quoted(place: Staged) -> None:
    is_refused(place.segue("run"), "TASK")
    is_refused(place.segue("run", "--agent", "claude", "  "), "empty")
    is_refused(place.segue("run", "fix", "the", "tests"), "quote it", "'fix the tests'")
    is_refused(place.segue("run", "-", stdin=""), "empty")
    is_refused(place.segue("run", "-", stdin="a\0b"), "NUL")


def test_an_option_of_the_agents_before_the_dashes(place: Staged) -> None:
    is_refused(place.segue("run", "x y", "--model", "opus"), "--model", "after --")


def test_a_flag_that_the_agent_cannot_be_given_is_refused_by_name(place: Staged) -> None:
    words = ["run", "--agent", "claude", "x y", "--"]
    is_refused(place.segue(*words, "--resume", "abc"), "--resume cannot be passed on")
    is_refused(place.segue(*words, "more words"), "is not a flag")


def test_json_and_raw_exclude_each_other(place: Staged) -> None:
    for words in (("run", "--agent", "claude", "x"), ("logs", "run-x")):
        more = ("--json", "--raw") if words[0] == "run" else ("--json", "--agent-output")
        is_refused(place.segue(*words, *more), "cannot be combined")


def test_an_unknown_agent_and_one_that_is_not_installed(place: Staged) -> None:
    is_refused(place.segue("run", "--agent", "nobody", "x"), "nobody", "claude, codex")
    bare = str(place.root / "bin")
    ended = place.segue("run", "--agent", "codex", "x", PATH=bare, SEGUE_AGENTS=bare)
    is_refused(ended, "codex is not installed", "npm install")


def test_no_agent_at_all_tells_how_to_get_one(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        (s.home / "config.toml").unlink()
        ended = s.segue("run", "x", PATH=str(s.root), SEGUE_AGENTS=str(s.root))
        assert ended.code == 2
        for words in ("no agent is installed", "claude: npm install", "segue drill"):
            assert words in ended.stderr


def test_a_broken_config_and_a_preset_that_is_not_there(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        is_refused(s.run("--policy", "wild"), "wild")
        is_refused(s.run("--set", "hard_mrak=1"), "did you mean hard_mark?")
        s.config(policy={"hard_mark": "high"})
        is_refused(s.run(), "config.toml", "hard_mark")
        (s.home / "config.toml").write_text("[policy")
        is_refused(s.run(), "not TOML")
        assert s.run_ids() == []


def test_a_prompt_with_an_unknown_placeholder_is_refused_before_anything(tmp_path: Path) -> None:
    with stage("success", within=tmp_path, more='[prompts]\nresume = "own.md"\n') as s:
        (s.home / "own.md").write_text("go on, {nobody}")
        is_refused(s.run(), "own.md", "nobody")
        is_refused(s.run("--dry-run"), "own.md")
        assert s.run_ids() == []


def test_two_runs_in_one_tree_and_two_for_one_run(tmp_path: Path) -> None:
    with stage("silent-hang", within=tmp_path, policy={**QUICK, "stall_s": 100.0}) as s:
        process, run = s.new_run()
        is_refused(s.run("--check", "true"), "another run works in", run, "--share-tree")
        is_refused(s.segue("resume", run), f"process {process.pid}", f"segue cancel {run}")


def test_a_working_folder_that_is_gone(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        gone = s.root / "gone"
        gone.mkdir()
        code = (
            f"import os, sys; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})\n"
            "from segue.start import main; sys.argv = ['segue', *sys.argv[1:]]; main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, "run", "--agent", "claude", "x"],
            env=s.env,
            capture_output=True,
            text=True,
        )
        is_refused(Ended(done.returncode, done.stdout, done.stderr), "working folder is gone")


def test_a_run_whose_folder_is_gone_cannot_continue_but_can_be_shown(tmp_path: Path) -> None:
    with stage("auth-failure", within=tmp_path) as s:
        assert s.run().code == 1
        (run,) = s.run_ids()
        s.project.rename(s.root / "elsewhere")
        for command in ("resume", "rerun"):
            is_refused(s.segue(command, run, cwd=s.root), str(s.project), "no longer exists")
        for command in ("show", "logs", "cancel"):
            assert s.segue(command, run, cwd=s.root).code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="a folder that even root cannot write to")
def test_a_state_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        folders = {"SEGUE_HOME": "", "XDG_CONFIG_HOME": str(s.root), "XDG_STATE_HOME": "/proc"}
        is_refused(s.run(**folders), "/proc/segue")
        is_refused(s.segue("runs", cwd=None, max_s=60, **folders), "/proc/segue")


def test_a_state_folder_that_is_a_file(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        (s.home / "runs.db").mkdir()
        is_refused(s.run(), "runs.db")


def test_a_database_of_a_newer_segue(tmp_path: Path) -> None:
    with stage("success", within=tmp_path) as s:
        with sqlite3.connect(s.home / "runs.db") as db:
            db.execute("PRAGMA user_version = 9999")
        db.close()
        for words in (s.words(), ["runs"], ["resume"], ["logs", "run-x"], ["cancel", "run-x"]):
            is_refused(s.segue(*words), "newer segue", "update segue")


# Choosing an agent


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Staged]:
    """Two agents are installed, and none is chosen."""
    with stage("success", within=tmp_path) as s:
        folder = s.root / "bin"
        folder.mkdir()
        for name in ("claude", "codex"):
            (folder / name).write_text("#!/bin/sh\nexit 0\n")
            (folder / name).chmod(0o755)
        (s.home / "config.toml").write_text("# mine\n[policy]\nmax_legs = 5 # few\n")
        s.env["PATH"] = f"{folder}:/usr/bin:/bin"
        s.env["SEGUE_AGENTS"] = str(s.root / "none")
        yield s


def test_the_only_agent_is_taken(two: Staged) -> None:
    (two.root / "bin/claude").unlink()
    found = json.loads(two.segue("run", "--dry-run", "--json", "x").stdout)
    assert found["agent"] == "codex"


def test_of_several_agents_one_must_be_named_where_nobody_can_be_asked(two: Staged) -> None:
    is_refused(two.segue("run", "x"), "claude, codex", "--agent NAME", "config.toml")


def test_of_several_agents_the_user_is_asked_once(two: Staged) -> None:
    ours, theirs = pty.openpty()
    with open(ours, "r+b", buffering=0) as terminal:
        process = subprocess.Popen(
            [sys.executable, "-c", "from segue.start import main; main()", "run", "--dry-run", "x"],
            env={**two.env, "TERM": "dumb"},
            cwd=two.project,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=theirs,
            encoding="utf-8",
        )
        os.close(theirs)
        asked = b""
        while b"Which agent? (claude, codex)" not in asked:
            asked += terminal.read(1024)
        terminal.write(b"codex\n")
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "codex" in out
    text = (two.home / "config.toml").read_text()
    assert text.startswith("# mine\n[policy]\nmax_legs = 5 # few\n")
    assert tomllib.loads(text)["run"] == {"agent": "codex"}
    assert json.loads(two.segue("run", "--dry-run", "--json", "x").stdout)["agent"] == "codex"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing but this",
        '[run]\ncheck = "make"  # mine\n',
        '[policy]\nmax_legs = 3\n\n  [ run ] # here\n\tcheck = "x"\n[homes]\n',
        '[run.flags]\nclaude = ["--x"]\n',
        'run.check = "x"\n[policy]\n',
        '[prompts]\nresume = """\n[run]\n"""\n',
        '[policy]\r\nname = "early"\r\n',
        "[run]",
    ],
)
def test_remembering_an_agent_harms_nothing_in_the_file(text: str) -> None:
    path = config.user_file()
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode())
    before = tomllib.loads(text)
    said = config.remember_agent("codex")
    after = path.read_bytes().decode()
    assert tomllib.loads(after) == {**before, "run": {**before.get("run", {}), "agent": "codex"}}
    assert "from now on" in said
    assert str(path) in said
    left = after.splitlines()
    for line in text.splitlines():
        assert line in left
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["config.toml"]


def test_an_agent_is_remembered_in_a_file_that_was_not_there_and_through_a_link(
    tmp_path: Path,
) -> None:
    path = config.user_file()
    config.remember_agent("pi")
    assert tomllib.loads(path.read_text()) == {"run": {"agent": "pi"}}
    real = tmp_path / "dotfiles.toml"
    real.write_text("[policy]\n")
    path.unlink()
    path.symlink_to(real)
    config.remember_agent("pi")
    assert path.is_symlink()
    assert tomllib.loads(real.read_text())["run"] == {"agent": "pi"}


@pytest.mark.parametrize("text", ['run = {check = "x"}\n', '[run]\nagent = ""\n'])
def test_what_cannot_be_remembered_is_reported_and_changes_nothing(text: str) -> None:
    path = config.user_file()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert "under [run]" in config.remember_agent("pi")
    assert path.read_text() == text


def test_a_broken_file_is_left_as_it_is() -> None:
    path = config.user_file()
    path.parent.mkdir(parents=True)
    path.write_text("[run")
    with pytest.raises(ConfigError):
        config.remember_agent("pi")
    assert path.read_text() == "[run"


@pytest.mark.parametrize(
    ("flags", "mark"),
    [
        (("--model", "claude-opus-9"), 0.6),
        (("--model=claude-opus-9",), 0.6),
        (("-m", "anthropic/claude-opus-9"), 0.6),
        (("--model", "other"), 0.85),
        (("--model",), 0.85),
        ((), 0.85),
    ],
)
def test_what_is_set_for_a_model_counts_if_the_flags_name_it(
    flags: tuple[str, ...], mark: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGUE_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text(
        '[policy.models."claude-opus"]\nhard_mark = 0.6\nsoft_mark = 0.6\ncritical_mark = 0.5\n'
    )
    settings = layered.load(tmp_path, {"HOME": str(tmp_path)})
    assert policy_for(settings, "claude", flags).hard_mark == mark
