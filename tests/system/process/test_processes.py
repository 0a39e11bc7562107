"""Agents that run, from a made-up /proc."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.files.proc_world import ID, OTHER_ID, World, pids, watch

from segue.agents.places import STORES
from segue.agents.signs import SIGNS
from segue.core.sessions.types import Hold
from segue.sessions.find import Home
from segue.system.process import processes
from segue.system.process.procfs import Procfs


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# The newest session of a folder


@pytest.mark.parametrize(
    ("agent", "words", "goes_on"),
    [
        ("gemini", ("-r", "latest"), True),
        ("gemini", ("--resume", "latest", "-m", "x"), True),
        ("gemini", ("--resume=latest",), True),
        ("gemini", ("-r",), True),
        ("gemini", ("-r", "2"), True),
        ("gemini", ("-r", ID), False),
        ("gemini", ("-p", "hello"), False),
        ("pi", ("-c",), True),
        ("pi", ("--continue", "go on"), True),
        ("pi", ("--session", ID), False),
        ("claude", ("-c",), True),
        ("claude", ("--continue", "--fork-session"), False),
        ("claude", ("-c", "--resume", ID), False),
        ("qwen", ("--continue",), True),
    ],
)
def test_arguments_say_that_an_agent_continues_with_the_newest_session(
    agent: str, words: tuple[str, ...], goes_on: bool, world: World
) -> None:
    world.home(agent)
    world.runs(20, agent, agent, *words)
    (process,) = world.living()
    assert process.goes_on == goes_on
    assert process.certain == (ID in words and process.session_id == ID)


def test_codex_and_opencode_continue_with_the_newest_too(world: World) -> None:
    world.runs(20, "codex", "codex", "resume", "--last")
    world.locked(20, world.lock_file(ID))
    (process,) = world.living()
    assert not process.goes_on  # it shows which
    assert process.holds
    assert SIGNS["opencode"].latest_flags == ("--continue", "-c")


# Locks and open files


def test_a_locked_file_shows_the_session(world: World) -> None:
    world.runs(20, "codex", "codex", "exec", "hello")
    world.locked(20, world.lock_file(ID))
    (process,) = world.living()
    assert process.holds == (Hold(session_id=ID, since=1010.0),)
    assert process.certain


def test_who_has_the_lock_is_the_agent_whatever_it_is_called(world: World) -> None:
    world.runs(20, "codex-nightly")
    world.locked(20, world.lock_file(ID))
    assert pids(world.living()) == [20]


def test_a_lock_file_without_a_lock_is_not_a_sign_of_life(world: World) -> None:
    world.runs(20, "codex")
    world.lock_file(ID)
    world.locked(20, world.lock_file(".coordination"))
    assert world.living() == []


@pytest.mark.parametrize(("kind", "mode"), [("POSIX", "WRITE"), ("FLOCK", "READ"), ("->", "FLOCK")])
def test_another_kind_of_lock_is_not_the_writers(world: World, kind: str, mode: str) -> None:
    world.runs(20, "codex")
    world.locked(20, world.lock_file(ID), kind=kind, mode=mode)
    assert world.living() == []


@pytest.mark.parametrize(("name", "lives"), [("codex", True), ("postgres", False)])
def test_where_devices_are_shown_differently_the_name_decides(
    world: World, name: str, lives: bool
) -> None:
    world.runs(20, name)
    world.locked(20, world.lock_file(ID), device="ff:7f")
    assert bool(world.living()) is lives


def test_without_a_list_of_locks_open_files_show_the_session(world: World) -> None:
    lock = world.lock_file(ID)
    world.runs(20, "codex", opened=("/dev/null", "socket:[7]", str(lock)))
    rollout = world.home("codex") / "sessions/2026/11/15" / f"rollout-2026-11-15T1-{OTHER_ID}.jsonl"
    world.runs(21, "codex", opened=(str(rollout),))
    elsewhere = "/" + "x" * (len(str(world.home("codex"))) - 1) + "/sessions/1/2.jsonl"
    world.runs(22, "codex", opened=(f"{lock} (deleted)", elsewhere))
    found = world.living()
    assert {p.pid: p.holds for p in found} == {
        20: (Hold(session_id=ID, since=1010.0),),
        21: (Hold(session_id=OTHER_ID, path=str(rollout)),),
    }


def test_a_terminal_that_began_a_new_session_holds_both(world: World) -> None:
    world.runs(20, "codex")
    world.locked(20, world.lock_file(ID, 1010.0))
    world.locked(20, world.lock_file(OTHER_ID, 1020.0))
    (process,) = world.living()
    assert [(hold.session_id, hold.since) for hold in process.holds] == [
        (ID, 1010.0),
        (OTHER_ID, 1020.0),
    ]


def test_what_a_process_holds_says_more_than_its_arguments(world: World) -> None:
    world.runs(20, "codex", "codex", "resume", ID)
    world.locked(20, world.lock_file(OTHER_ID))
    (process,) = world.living()
    assert (process.session_id, process.holds[0].session_id) == ("", OTHER_ID)


def test_a_server_has_no_folder_and_its_clients_are_kept(world: World) -> None:
    world.runs(20, "codex", "codex", cwd="/first")
    world.runs(21, "codex", "codex", "app-server", "--listen", "unix://", parent=20, cwd="/first")
    world.runs(22, "codex", "codex", "-C", "sub", "resume", ID, cwd="/second")
    world.locked(21, world.lock_file(OTHER_ID))
    first, server, second = world.living()
    assert (first.pid, first.cwd, first.certain, first.serves) == (20, "/first", False, False)
    assert (server.pid, server.cwd, server.serves) == (21, "", True)
    assert (second.cwd, second.session_id, second.certain) == ("/second/sub", ID, True)


def test_a_codex_that_holds_nothing_and_has_no_server_works_on_nothing(world: World) -> None:
    world.runs(20, "codex", "codex", "login")
    assert world.living() == []


def test_an_open_database_shows_that_the_agent_works_in_it(world: World) -> None:
    database = str(world.home("opencode") / "opencode.db")
    world.runs(30, "opencode", opened=(f"{database}-wal", database))
    world.runs(31, "opencode", opened=("/elsewhere/opencode.db",))
    world.runs(32, "opencode", "opencode", "upgrade")
    (process,) = world.living()
    assert (process.pid, process.database, process.certain) == (30, database, False)


# Names and arguments


def test_of_a_launcher_and_its_child_the_child_counts(world: World) -> None:
    script = "/lib/node_modules/@google/gemini-cli/bundle/gemini.js"
    world.runs(40, "node", "node", "/usr/bin/gemini", "-p", "hi")
    assert pids(world.living()) == [40]
    child = ("/usr/bin/node", "--max-old-space-size=9000", script, "-p", "hi")
    world.runs(41, "node", *child, parent=40)
    assert pids(world.living()) == [41]


@pytest.mark.parametrize(
    ("name", "arguments", "agent"),
    [
        ("node", ("node", "/usr/bin/gemini"), "gemini"),
        ("node", ("node", "-r", "hook.js", "--import", "x", "/a/gemini.js"), "gemini"),
        ("node-MainThread", ("node", "/usr/bin/qwen"), "qwen"),
        ("MainThread", ("node", "--expose-gc", "/a/@qwen-code/qwen-code/cli.js"), "qwen"),
        ("bun", ("bun", "/a/pi-coding-agent/dist/cli.js"), "pi"),
        ("node", ("node", "server.js", "gemini"), None),
        ("node", ("node", "/a/other/cli.js"), None),
        ("node", ("node", "/a/notgemini"), None),
        ("node", ("node",), None),
        ("node", ("",), None),
        ("vim", ("vim", "/usr/bin/gemini"), None),
    ],
)
def test_a_runtime_is_recognised_by_its_script(
    world: World, name: str, arguments: tuple[str, ...], agent: str | None
) -> None:
    world.runs(40, name, *arguments)
    assert [process.agent for process in world.living()] == ([agent] if agent else [])


@pytest.mark.parametrize(
    ("program", "lives"), [("/usr/bin/node", True), ("/opt/pi", True), ("/usr/bin/python3", False)]
)
def test_a_name_that_others_have_too_needs_the_right_program(
    world: World, program: str, lives: bool
) -> None:
    world.runs(50, "pi", "pi", "", "", program=program)
    assert bool(world.living()) is lives


@pytest.mark.parametrize(
    ("arguments", "session_id"),
    [
        (("--resume", ID), ID),
        ((f"--session-id={ID}", "-p", "hello"), ID),
        (("-r", OTHER_ID, "-r", ID), ID),
        (("--resume", "latest"), ""),
        (("--resume", "5"), ""),
        (("-p", ID), ""),
        (("--resume",), ""),
        (("--resume", ID, "--fork-session"), ""),
    ],
)
def test_arguments_may_name_the_session(
    world: World, arguments: tuple[str, ...], session_id: str
) -> None:
    world.runs(40, "node", "node", "/usr/bin/qwen", *arguments)
    (process,) = world.living()
    assert (process.session_id, process.certain) == (session_id, bool(session_id))


def test_a_removed_folder_is_still_the_sessions(world: World) -> None:
    world.runs(50, "pi", cwd="/worktree (deleted)")
    assert world.living()[0].cwd == "/worktree"


# What cannot be read


def test_processes_that_vanish_or_are_others_are_passed_over(world: World) -> None:
    for pid, missing in enumerate(("comm", "stat", "cmdline", "cwd", "exe"), start=60):
        entry = world.runs(pid, "pi")
        (entry / missing).unlink()
    hidden = world.runs(70, "codex")
    (hidden / "fd").rmdir()
    (world.root / "80").mkdir()
    (world.root / "90").write_text("no folder")
    (world.root / "²").mkdir()
    found = {process.pid: process for process in world.living()}
    assert set(found) == {62, 63}
    assert found[63].cwd == ""


def test_a_name_with_brackets_and_spaces_is_not_a_state(world: World) -> None:
    world.runs(10, "x) Z 1 (y")
    world.pid_file(10)
    assert pids(world.living()) == [10]


def test_without_proc_nothing_lives(tmp_path: Path) -> None:
    home = Home("claude", str(tmp_path), STORES["claude"])
    assert processes.living([home], Procfs(str(tmp_path / "nowhere"))) == []


def test_agents_without_a_home_are_not_looked_for(world: World) -> None:
    world.runs(50, "pi")
    assert world.living("claude", "gemini") == []
    assert processes.living([Home("markdown", str(world.folder), STORES["pi"])]) == []


@settings(max_examples=40)  # each is a folder
@given(
    st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80), st.binary(max_size=80)
)
def test_no_content_of_proc_or_pid_files_raises(
    tmp_path_factory: pytest.TempPathFactory, stat: bytes, line: bytes, lock: bytes, told: bytes
) -> None:
    world = World(tmp_path_factory.mktemp("any"))
    for pid, name in enumerate(("claude", "codex", "pi", "node", "opencode"), start=10):
        entry = world.runs(pid, name)
        (entry / "cmdline").write_bytes(line)
        (entry / "stat").write_bytes(stat + (entry / "stat").read_bytes()[pid % 2 * 40 :])
        world.pid_file(pid).write_bytes(told)
    world.locks = lock.decode("latin-1") + "\n1: FLOCK ADVISORY WRITE x fe:00:y 0 EOF\n"
    world.lock_file(ID)
    world.living()


def test_only_agents_are_looked_at_closer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost: one small file for each process that is no agent."""
    for pid in range(1000, 1300):
        world.runs(pid, "bash")
    world.runs(20, "codex")
    world.locked(20, world.lock_file(ID))
    touched = watch(monkeypatch)
    assert pids(world.living()) == [20]
    assert len([path for path in touched if re.search(r"/1\d\d\d/", path)]) == 300
    assert len(touched) < 320
    assert not [path for path in touched if path.endswith("/fd")]  # the lock has told enough


def test_psutil_is_not_loaded_where_proc_does_the_job() -> None:
    code = (
        "import sys\nfrom segue.system.process.processes import living\nliving([])\n"
        "print('psutil' in sys.modules, 'segue.agents.claude.profile' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(sys.platform != "linux"), "False"]


def test_every_agent_that_keeps_sessions_has_signs() -> None:
    assert set(SIGNS) == set(STORES)
    assert all(len(name) <= 15 for signs in SIGNS.values() for name in signs.names)
