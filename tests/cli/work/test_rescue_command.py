"""`rescue` and `checkpoint` as a user runs them: what is listed, and what is refused."""

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from conftest import lines
from support.homes import OpencodeDb, call, claude_session, interruption, prompt, reply
from support.hostile.values import PATHS

from segue.agents import drives
from segue.cli import cli
from segue.core.resumes.rescues import died_of, ways
from segue.core.sessions.types import Look, Process, StopSeen
from segue.core.stops.reasons import StopReason
from segue.runs.store import open_store
from segue.system.files import tree
from segue.system.process import processes

DEAD = "11111111-2222-4333-8444-555555555555"
OTHER = "22222222-2222-4333-8444-555555555555"
KEY = "sk-ant-api03-" + "Qx7Tz9Lm4Rk2" * 7


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


def listed(*args: str) -> list[dict[str, Any]]:
    result = run("rescue", "--json", *args)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["schema"] == 1
    found: list[dict[str, Any]] = told["sessions"]
    return found


@pytest.fixture(autouse=True)
def nobodys_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another test in this process registered is not there."""
    monkeypatch.setattr(drives, "_loaded", {})


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "api"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


def killed(
    home: Path, project: Path, *more: str, session: str = DEAD, ago_s: float = 330.0
) -> Path:
    """A claude session that was killed in a tool."""
    at = time.time() - ago_s
    where: dict[str, Any] = {"session": session, "cwd": str(project)}
    return claude_session(
        home,
        prompt(f"mend the login test; the key is {KEY}", at=at, **where),
        reply(
            1, 120_000, at=at + 1, stop="tool_use", content=call("Bash", command="make"), **where
        ),
        *more,
        session=session,
        slug="-api",
    )


def test_a_session_that_died_with_work_left_is_reported_in_the_documented_form(
    own_home: Path, project: Path
) -> None:
    file = killed(own_home, project)
    (found,) = listed()
    assert found == {
        "agent": "claude",
        "session_id": DEAD,
        "path": str(file),
        "cwd": str(project),
        "task": found["task"],
        "reason": "crash",
        "stopped_at": found["stopped_at"],
        "retry_at": None,
        "context": {"used": 120_000, "window": 200_000, "percent": 60.0, "zone": "warning"},
        "ways": ["same_session", "new_session", "other_agent"],
    }
    assert found["task"].startswith("mend the login test")
    assert KEY not in json.dumps(found)
    assert listed() == [found]  # the index kept the task
    text = run("rescue").stdout
    for said in (
        "api",
        "claude 11111111",
        "crashed, or was killed",
        "5 min ago",
        "60%",
        "mend the",
    ):
        assert said in text
    assert "can resume now, in the same session" in text


def test_what_of_its_work_is_in_the_tree_is_reported(own_home: Path, project: Path) -> None:
    where: dict[str, Any] = {"session": DEAD, "cwd": str(project), "stop": "tool_use"}
    writes = [
        reply(n, 9_000, content=call("Write", file_path=str(project / name)), **where)
        for n, name in enumerate(("a.py", "b.py"), 2)
    ]
    killed(own_home, project, *writes)
    (project / "a.py").write_text("x = 1\n")
    assert "1 of 2 files it wrote still exist; 1 uncommitted change" in run("rescue").stdout


def test_the_newest_is_first_and_what_is_old_needs_since(own_home: Path, project: Path) -> None:
    old = killed(own_home, project, session=OTHER, ago_s=9 * 86_400.0)
    os.utime(old, (time.time() - 9 * 86_400.0,) * 2)
    killed(own_home, project)
    assert [each["session_id"] for each in listed()] == [DEAD]
    assert [each["session_id"] for each in listed("--since", "30d")] == [DEAD, OTHER]
    assert "is not a time; write 90m" in run("rescue", "--since", "soon").output


def test_what_finished_or_was_ended_by_the_user_is_listed_only_with_all(
    own_home: Path, project: Path
) -> None:
    at = time.time() - 60
    where: dict[str, Any] = {"cwd": str(project)}
    claude_session(
        own_home,
        prompt(at=at, session=DEAD, **where),
        reply(1, 9_000, at=at, session=DEAD, **where),
        session=DEAD,
    )
    killed(own_home, project, interruption(at=at, session=OTHER, cwd=str(project)), session=OTHER)
    assert listed() == []
    found = {each["session_id"]: each["reason"] for each in listed("--all")}
    assert found == {DEAD: "completed", OTHER: "user_exit"}
    for name, what in ((DEAD, "finished"), (OTHER, "was ended by you")):
        ended = run("rescue", name)
        assert ended.exit_code == 2
        assert (
            f"session {name} {what}; to resume it anyway: segue rescue {name} --all" in ended.output
        )


RECORDED = {
    "claude": ("e25-429-retries0", "rate_limit"),
    "codex": ("f-kill-tool", "crash"),
    "gemini": ("f-tool-sigkill", "crash"),
    "pi": ("f-tool-sigkill", "crash"),
    "qwen": ("b1-ptl-first", "context_exhausted"),
}


def test_every_agents_dead_sessions_are_listed_and_have_a_checkpoint(own_home: Path) -> None:
    for number, (agent, (name, _)) in enumerate(RECORDED.items()):
        records = next(r for r in lines(f"recordings/{agent}.jsonl") if r["name"] == name)
        file = own_home / PATHS[agent].format(id=f"{number:08x}{DEAD[8:]}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(records["transcript"])
    now = time.time()
    db = OpencodeDb(own_home / ".local/share/opencode/opencode.db")
    db.session("ses_dead", "/q", now - 50)
    db.message("msg_0", "ses_dead", now - 50, role="user")
    db.part("prt_0", "msg_0", "ses_dead", now - 50, type="text", text="paint it")
    db.message("msg_1", "ses_dead", now - 40, role="assistant", modelID="m", providerID="p")
    tool = {"callID": "c", "tool": "bash", "state": {"status": "running", "input": {}}}
    db.part("prt_1", "msg_1", "ses_dead", now - 40, type="tool", **tool)
    flow = own_home / ".opencode" / "work" / "flow.md"
    flow.parent.mkdir(parents=True)
    flow.write_text("---\nstepsCompleted: [1]\ntotalSteps: 3\n---\n# Plan\nPort 8123 is taken.\n")
    found = {each["agent"]: each for each in listed()}
    assert set(found) == {*RECORDED, "opencode", "markdown"}
    for agent, (_, reason) in RECORDED.items():
        assert found[agent]["reason"] == reason, agent
    driven = {"claude", "codex", "gemini", "pi", "opencode"}
    for agent, each in found.items():
        assert ("new_session" in each["ways"]) == (agent in driven)
        assert each["ways"][-1] == "other_agent"
        assert each["task"], agent
        made = run("checkpoint", each["session_id"])
        assert made.exit_code == 0, made.output
        assert "## Task" in made.stdout, agent
    assert "Port 8123 is taken." in run("checkpoint", found["markdown"]["session_id"]).stdout


def test_a_session_that_would_not_fit_once_it_is_resumed_continues_in_a_new_one(
    own_home: Path,
) -> None:
    """gemini sends all that tools printed twice then."""
    recorded = next(r for r in lines("recordings/gemini.jsonl") if r["name"] == "f-tool-sigkill")
    text = recorded["transcript"]
    before = json.loads(text.splitlines()[0])["sessionId"]
    for session, used in ((DEAD, 600_000), (OTHER, 400_000)):
        file = own_home / PATHS["gemini"].format(id=session)
        file.parent.mkdir(parents=True, exist_ok=True)
        sized = re.sub(r'"(input|total)": ?[0-9]+', rf'"\1": {used}', text)
        file.write_text(sized.replace(before, session))
    found = {each["session_id"]: each for each in listed()}
    assert found[DEAD]["context"]["percent"] > 50
    assert found[DEAD]["ways"] == ["new_session", "other_agent"]
    assert found[OTHER]["ways"][0] == "same_session"


# One clear line each, and nothing is started


@pytest.fixture
def refused(own_home: Path) -> Callable[..., str]:
    """What segue says, in one line; with exit code 2, without a run."""

    def refused(*words: str) -> str:
        ended = run("rescue", *words)
        assert ended.exit_code == 2, ended.output
        assert ended.stdout == ""
        (line,) = ended.stderr.splitlines()
        if (own_home / "segue" / "runs.db").exists():
            with open_store() as store:
                assert store.runs() == []
        return line

    return refused


def test_a_session_that_nobody_knows_is_refused(refused: Callable[..., str]) -> None:
    assert refused("deadbeef") == "segue: no session 'deadbeef'; `segue sessions` lists them"
    assert refused("--last").startswith("segue: no session died with unfinished work")
    assert refused("deadbeef", "--last") == "segue: SESSION and --last cannot be combined"


def test_a_session_of_an_agent_that_segue_cannot_start_needs_another(
    own_home: Path, project: Path, refused: Callable[..., str]
) -> None:
    file = own_home / PATHS["qwen"].format(id=DEAD)
    file.parent.mkdir(parents=True)
    records = next(r for r in lines("recordings/qwen.jsonl") if r["name"] == "f-tool-sigkill")
    file.write_text(records["transcript"])
    (found,) = listed()
    name = found["session_id"]
    assert refused(name) == (
        "segue: segue can read sessions of qwen, but cannot run it; continue with another agent:"
        f" segue rescue {name} --agent NAME"
    )
    assert "no such agent" in refused(name, "--agent", "nobody", "--in", str(project))


def test_a_folder_that_is_gone_or_moved_is_refused(
    own_home: Path, project: Path, refused: Callable[..., str]
) -> None:
    killed(own_home, project)
    moved = project.rename(project.with_name("moved"))
    assert refused(DEAD) == (
        f"segue: session {DEAD} worked in {project}, which no longer exists; if it moved:"
        f" segue rescue {DEAD} --in FOLDER"
    )
    assert refused(DEAD, "--in", "/nowhere") == "segue: --in /nowhere: no such folder"
    assert "its folder is gone" in run("rescue").stdout
    own_agent(own_home)
    dry = json.loads(run("rescue", DEAD, "--in", str(moved), "--dry-run", "--json").stdout)
    assert (dry["cwd"], dry["way"]) == (str(moved), "new_session")
    assert dry["prompt"].count(f"mend the login test; the key is {KEY}") == 1


def test_a_worktree_whose_repository_moved_is_refused(
    own_home: Path, project: Path, refused: Callable[..., str]
) -> None:
    git = ["git", "-C", str(project), "-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    work = project.with_name("work")
    subprocess.run([*git, "worktree", "add", "-q", str(work)], check=True)
    (work / "sub").mkdir()
    killed(own_home, work / "sub")
    assert tree.lost_repository(str(work / "sub")) is None
    project.rename(project.with_name("moved"))
    assert refused(DEAD) == (
        f"segue: session {DEAD} worked in {work / 'sub'}, a worktree of a repository that moved:"
        f" {project}/.git/worktrees/work is not there; from the repository: git worktree repair"
        " FOLDER"
    )


def test_a_session_that_is_open_is_refused_with_who_has_it(
    own_home: Path,
    project: Path,
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed(own_home, project)
    there = Process(
        agent="claude", pid=4242, started_at=1.0, session_id=DEAD, cwd=str(project), certain=True
    )
    monkeypatch.setattr(processes, "living", lambda homes: [there])
    assert refused(DEAD) == (
        f"segue: session {DEAD} is open in claude (process 4242): quit it there first, or continue"
        " there"
    )
    assert listed() == []


def test_an_agent_that_is_not_installed_is_reported_in_one_line(
    own_home: Path, project: Path, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    killed(own_home, project)
    assert refused(DEAD).startswith("segue: claude is not installed: ")
    assert refused(DEAD, "--agent", "codex").startswith("segue: codex is not installed: ")


def test_a_session_in_a_home_that_the_agent_would_not_look_into_continues_in_a_new_one(
    own_home: Path, project: Path
) -> None:
    own_agent(own_home)
    killed(own_home / "elsewhere", project)
    config = own_home / "segue" / "config.toml"
    more = f'[homes]\nclaude = ["{own_home / "elsewhere" / ".claude"}"]\n'
    config.write_text(config.read_text() + more)
    assert json.loads(run("rescue", DEAD, "--dry-run", "--json").stdout)["way"] == "new_session"
    killed(own_home, project)
    assert json.loads(run("rescue", DEAD, "--dry-run", "--json").stdout)["way"] == "same_session"


def test_on_a_terminal_it_asks_which_one_continues(own_home: Path, project: Path) -> None:
    killed(own_home, project)
    assert "Which one do you want to resume?" in at_terminal(own_home, "\n", 0)
    assert "is not installed" in at_terminal(own_home, "1\n", 2)


def at_terminal(home: Path, typed: str, code: int) -> str:
    """What `segue rescue` shows whoever types this."""
    ours, theirs = pty.openpty()
    env = {
        "HOME": str(home),
        "SEGUE_HOME": str(home / "segue"),
        "PATH": "/nowhere",
        "TERM": "xterm",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "segue", "rescue"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = b""
        with suppress(OSError):  # it is over
            while data := os.read(ours, 4096):
                shown += data
        assert process.wait(60) == code, shown
    os.close(ours)
    return shown.decode()


def own_agent(home: Path) -> None:
    """A claude that is installed, and would fail."""
    (home / "segue").mkdir(exist_ok=True)
    text = '[agents.claude]\ncommand = ["/bin/false"]\nlike = "claude"\n'
    (home / "segue" / "config.toml").write_text(text)


def test_a_tree_that_changed_since_is_reported_and_not_refused(
    own_home: Path, project: Path
) -> None:
    killed(own_home, project)
    own_agent(own_home)
    os.utime(project / ".git")  # of no concern
    before = run("rescue", DEAD, "--dry-run", "--json")
    assert (before.exit_code, before.stderr) == (0, "")
    (project / "later.py").write_text("x = 1\n")
    dry = run("rescue", DEAD, "--dry-run", "--json")
    assert dry.exit_code == 0, dry.output
    assert dry.stderr == f"segue: {project} changed since the session stopped: later.py\n"
    told = json.loads(dry.stdout)
    assert told["origin"]["changed"] == "later.py"
    assert "changed after that work stopped: later.py." in told["prompt"]
    assert (project / "later.py").read_text() == "x = 1\n"


def test_the_files_that_changed_since_a_time_are_found(tmp_path: Path) -> None:
    for name, age_s in (("old", 100.0), ("new", 0.0)):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)
    assert tree.changed_since(str(tmp_path), time.time() - 50) == ["new"]


# The checkpoint


def test_a_checkpoint_has_the_users_words_and_no_secrets(own_home: Path, project: Path) -> None:
    at = time.time()
    more = prompt(f"leave billing.py alone, {KEY}", at=at, session=DEAD, cwd=str(project))
    file = killed(own_home, project, more)
    data = file.read_bytes()
    file.write_bytes(data[:-40] + b"\x00\xff")  # damaged
    ended = run("checkpoint", DEAD)
    assert ended.exit_code == 0, ended.output
    assert "mend the login test" in ended.stdout
    assert "make (no result seen)" in ended.stdout
    assert "## Last tool call, in doubt" in ended.stdout
    assert KEY not in ended.stdout
    file.write_bytes(data)
    told = json.loads(run("checkpoint", DEAD, "--json").stdout)
    assert (told["schema"], told["agent"], told["session_id"]) == (1, "claude", DEAD)
    assert "leave billing.py alone" in told["markdown"]
    assert told["in_doubt"] == "make"
    assert KEY not in told["markdown"]


def test_a_checkpoint_of_something_else_than_a_session_is_one_line(own_home: Path) -> None:
    for name, said in (("nobody", "no session 'nobody'"), ("run-1", "run-1 is a run: segue show")):
        ended = run("checkpoint", name)
        assert ended.exit_code == 2
        assert said in ended.output


# The rules


def test_records_that_end_in_a_turn_are_those_of_a_killed_process() -> None:
    unknown = StopSeen(StopReason.UNKNOWN, 0.5)
    assert died_of(Look(stop=unknown)) is StopReason.CRASH
    assert died_of(Look(stop=unknown, awaits_user=True)) is StopReason.UNKNOWN
    assert died_of(Look()) is None


def test_the_best_way_is_first() -> None:
    crash, full = StopReason.CRASH, StopReason.CONTEXT_EXHAUSTED
    both = {"is_driven": True, "resumes": True}
    assert ways(crash, **both) == ("same_session", "new_session", "other_agent")
    assert ways(full, **both) == ("new_session", "other_agent")
    assert ways(crash, is_cut=True, **both) == ("new_session", "other_agent")
    assert ways(crash, is_driven=True, resumes=False) == ("new_session", "other_agent")
    assert ways(crash, is_driven=False, resumes=False) == ("other_agent",)
