"""What running agents write about themselves, from a made-up /proc."""

import os
from pathlib import Path
from typing import Any

import pytest
from support.files.proc_world import HERE, HZ, ID, World, pids, watch

from segue.core.sessions.types import Process


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_pid_file_of_a_living_process_names_its_session(world: World) -> None:
    world.runs(10, "claude", cwd="/project")
    world.pid_file(10)
    assert world.living() == [
        Process(
            agent="claude",
            pid=10,
            started_at=round(1000 + 512 / HZ, 2),
            start_ticks=512,
            cwd="/project",
            session_id=ID,
            certain=True,
            status="busy",
        )
    ]


def test_a_pid_file_counts_whatever_its_process_is_called(world: World) -> None:
    world.runs(10, "my-wrapper")
    world.pid_file(10)
    world.runs(11, "pi")
    world.pid_file(11)
    for order in (("claude", "pi"), ("pi", "claude")):
        assert [(p.agent, p.pid) for p in world.living(*order)] == [("claude", 10), ("claude", 11)]


@pytest.mark.parametrize(
    ("said", "status", "waiting_for"),
    [
        ({"status": "shell"}, "busy", ""),
        ({"status": "idle"}, "idle", ""),
        ({"status": "waiting", "waitingFor": "dialog open"}, "waiting", "dialog open"),
        ({"status": None}, "", ""),
        ({"status": "of a later version"}, "", ""),
        ({"status": ["busy"], "waitingFor": 7}, "", ""),
    ],
)
def test_what_an_agent_says_it_does_is_told_in_three_words(
    world: World, said: dict[str, Any], status: str, waiting_for: str
) -> None:
    world.runs(10, "claude")
    world.pid_file(10, **said)
    (process,) = world.living()
    assert (process.status, process.waiting_for) == (status, waiting_for)


def test_the_file_of_a_killed_process_is_not_a_sign_of_life(world: World) -> None:
    world.pid_file(10)
    assert world.living() == []


@pytest.mark.parametrize("name", ["claude", "postgres"])
def test_a_pid_that_was_given_to_another_process_is_not_a_sign_of_life(
    world: World, name: str
) -> None:
    world.runs(10, name, ticks=513)
    world.pid_file(10)
    assert world.living() == []


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_process_that_is_dead_but_not_buried_does_not_live(world: World, state: str) -> None:
    world.runs(10, "claude", state=state)
    world.pid_file(10)
    assert world.living() == []


@pytest.mark.parametrize(
    ("machine_id", "domain", "lives"),
    [
        ("m1", HERE, True),
        ("m1", "linux:m1:pid:[2]", False),  # a container with the same home
        ("m1", "linux:m2:pid:[1]", False),  # another machine: the number is the same on all
        ("m1", "darwin:m1", False),
        ("m1", None, True),
        ("m1", 7, True),
        ("", "linux::pid:[1]", True),
        ("", "linux:m2:pid:[1]", True),
        ("", "linux:m2:pid:[2]", False),
    ],
)
def test_a_pid_means_something_only_where_it_was_given(
    world: World, machine_id: str, domain: str | None, lives: bool
) -> None:
    (world.folder / "machine-id").write_text(machine_id)
    world.runs(10, "claude")
    world.pid_file(10, pidDomain=domain)
    assert bool(world.living()) is lives


@pytest.mark.parametrize(("domain", "lives"), [(HERE, False), ("darwin:m1", True), (None, True)])
def test_where_domains_have_no_name_those_of_linux_are_elsewhere(
    world: World, domain: str | None, lives: bool
) -> None:
    (world.root / "self/ns/pid").unlink()
    world.runs(10, "claude")
    world.pid_file(10, pidDomain=domain)
    assert bool(world.living()) is lives


@pytest.mark.parametrize(
    ("name", "started_ms", "lives"),
    [
        ("claude", 1_005_400, True),
        ("claude", 900_000, False),  # written before the process began: by an earlier one
        ("claude", 2_000_000, False),
        ("claude", 10**200, False),
        ("claude", "soon", False),
        ("postgres", 1_005_400, False),
    ],
)
def test_without_ticks_name_and_clock_decide(
    world: World, name: str, started_ms: object, lives: bool
) -> None:
    world.runs(10, name, ticks=5 * HZ)
    world.pid_file(10, procStart=None, startedAt=started_ms)
    assert bool(world.living()) is lives


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"sessionId": "a"}', b"\xff\xfe", b"[" * 5000, b'"' + b"a" * 99],
)
def test_a_broken_pid_file_is_passed_over(world: World, content: bytes) -> None:
    world.runs(10, "claude")
    world.pid_file(10).write_bytes(content)
    world.runs(11, "claude")
    world.pid_file(11)
    assert pids(world.living()) == [11]


def test_what_is_not_a_file_is_passed_over(world: World) -> None:
    for pid in (10, 11, 12):
        world.runs(pid, "claude")
    file = world.pid_file(10)
    file.unlink()
    os.mkfifo(file)  # would be waited for
    (file.parent / "11.json").mkdir()
    (file.parent / "12.json").symlink_to("nowhere")
    assert world.living() == []


def test_keys_and_environments_are_never_opened(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.runs(10, "claude")
    file = world.pid_file(10)
    (file.parent / f"10.{'a' * 64}.key").write_text("secret")
    touched = watch(monkeypatch)
    assert pids(world.living()) == [10]
    assert str(file) in touched
    assert not [path for path in touched if path.endswith((".key", "environ"))]


def test_a_claude_without_a_pid_file_works_on_nothing_where_they_are_written(
    world: World,
) -> None:
    world.runs(10, "claude")
    assert pids(world.living()) == [10]  # a version that wrote none: by its folder
    assert not world.living()[0].certain
    (world.home("claude") / "sessions").mkdir()
    assert world.living() == []
