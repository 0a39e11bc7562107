"""What the daemon sees of sessions when files, processes, the index or the system give trouble."""

import os
import selectors
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.homes import SESSION, claude_session, prompt, reply
from support.waiting import until
from support.watch.observing import OTHER, SWEPT_S, World, codex_file, used

from segue.core.sessions.types import Session, SessionState
from segue.core.stops.reasons import StopReason
from segue.errors import StateError
from segue.sessions.count.index import open_index
from segue.sessions.follow.follow import FileFollower
from segue.system.files import state
from segue.system.process.procfs import Procfs
from segue.watch.observe import observer as observer_module
from segue.watch.observe import viewer as viewer_module
from segue.watch.observe.folders import Folders
from segue.watch.observe.processes import Changes, ProcessTracker
from segue.watch.observe.wakeup import Wakeup

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def world(own_home: Path) -> Iterator[World]:
    made = World(own_home)
    yield made
    made.observer.close()
    for agent in made.agents:
        agent.end()


def test_an_agent_that_ends_before_its_session_is_seen_has_ended_all_the_same(
    world: World,
) -> None:
    (world.claude / "projects" / "-p").mkdir(parents=True)
    agent = world.agent()
    world.observer.step(0)
    claude_session(world.home, prompt(), reply(1, 20_000, stop="tool_use"))
    agent.end()
    seen = world.until(lambda s: s.ended is not None)
    assert (seen.session.session_id, seen.before) == (SESSION, None)
    assert world.observer.ending_of(seen).reason is StopReason.CRASH


def test_a_pid_that_another_agent_has_now_is_the_end_of_the_one_before(world: World) -> None:
    claude_session(world.home, prompt(), reply(1, 20_000))
    claude_session(world.home, prompt(), reply(1, 1_000), session=OTHER)
    world.agent(status="idle")
    world.observer.step(0)
    old = world.observer.sessions["claude", SESSION].process
    assert old is not None
    new = msgspec.structs.replace(old, start_ticks=old.start_ticks + 5, session_id=OTHER)
    seen = world.observer._take(Changes([new], [old], []))
    assert [s.session.session_id for s in seen if s.ended == old] == [SESSION]
    assert world.observer.sessions["claude", SESSION].process is None
    assert world.observer.sessions["claude", OTHER].process == new


def test_an_agent_that_lets_go_of_its_files_and_then_ends_has_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = codex_file(world, SESSION, "cli")
    agent = world.agent(name="codex")
    monkeypatch.setattr(
        Procfs, "open_files", lambda on, pid: [str(file)] if pid == agent.pid else []
    )
    (seen,) = world.observer.step(0)
    assert seen.session.process is not None
    monkeypatch.setattr(Procfs, "open_files", lambda on, pid: [])
    world.offset_s += SWEPT_S
    world.observer.step(0)
    agent.end()
    assert world.until(lambda s: s.ended is not None).session.session_id == SESSION


def test_an_agent_that_has_let_go_of_its_files_for_long_is_at_work_on_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = codex_file(world, SESSION, "cli")
    agent = world.agent(name="codex")
    monkeypatch.setattr(
        Procfs, "open_files", lambda on, pid: [str(file)] if pid == agent.pid else []
    )
    world.observer.step(0)
    monkeypatch.setattr(Procfs, "open_files", lambda on, pid: [])
    for _ in range(2):
        world.offset_s += SWEPT_S
        world.seen += world.observer.step(0)
    (seen,) = world.seen
    assert (seen.session.process, seen.ended) == (None, None)


MANY = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from segue.watch.observe.observer import Observer
observer = Observer(env={"HOME": sys.argv[1]})
observer.step(0)
print(sum(s.process is not None for s in observer.sessions.values()), flush=True)
input()
ended = set()
while len(ended) < 2:
    ended |= {s.ended.pid for s in observer.step(1.0) if s.ended}
print(*sorted(ended))
"""


def test_more_agents_than_files_may_be_open_are_seen_and_their_ends_too(world: World) -> None:
    names = [f"{SESSION[:-2]}{number}" for number in range(10, 75)]
    for name in names:
        claude_session(world.home, prompt(), reply(1, 100), session=name)
        world.agent(name, "idle")
    with subprocess.Popen(
        [sys.executable, "-c", MANY, str(world.home)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as observing:
        assert observing.stdout is not None
        assert int(observing.stdout.readline()) == len(names)
        first, last = world.agents[0], world.agents[-1]
        first.end()
        last.end()
        told, _ = observing.communicate("\n", timeout=30)
    assert {int(pid) for pid in told.split()} == {first.pid, last.pid}


def test_a_clock_that_was_set_is_the_one_that_processes_began_by() -> None:
    with selectors.DefaultSelector() as selector:
        lives = ProcessTracker(selector)
        started_at = _began(lives)
        wrong = Procfs(booted_at=lives._booted_at - 3600)
        lives.on, lives._booted_at = wrong, lives._booted_at - 3600
        assert _began(lives) == pytest.approx(started_at - 3600, abs=1)
        lives.look([], 0.0)
        assert _began(lives) == pytest.approx(started_at, abs=1)


def _began(lives: ProcessTracker) -> float:
    facts = lives.on.facts(os.getpid())
    assert facts is not None
    return facts.started_at


def test_nobody_has_ended_because_nothing_can_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")  # so that a look must tell of ends
    claude_session(world.home, prompt(), reply(1, 100))
    world.agent(status="idle")
    world.observer.step(0)
    with monkeypatch.context() as blind:
        blind.setattr(Procfs, "_read", lambda *_, **__: b"")  # as if no file could be opened
        world.offset_s += SWEPT_S
        assert world.observer.step(0) == []
    assert world.observer.sessions["claude", SESSION].process is not None


def test_a_file_with_any_content_raises_nothing(world: World) -> None:
    (world.claude / "sessions").mkdir()
    world.observer.step(0)
    junk = (b"", b"\xff\xfe\0", b"{}\n[1]\nnull\n", b'{"type":7}\n' * 50)
    for number, data in enumerate(junk):
        claude_session(world.home, session=f"junk-{number}").write_bytes(data)
        (world.claude / "sessions" / f"{number + 2}.json").write_bytes(data)
    good = claude_session(world.home, prompt(), reply(1, 100), session=OTHER)
    world.until(lambda s: s.session.path == str(good))
    assert all(session.reading is None or name[1] == OTHER for name, session in _all(world))


def _all(world: World) -> list[tuple[tuple[str, str], Session]]:
    return [*world.observer.sessions.items()]


def test_a_name_that_is_not_text_is_not_an_error(world: World) -> None:
    world.observer.step(0)
    good = claude_session(world.home, prompt(), reply(1, 100))
    bad = os.path.join(os.fsencode(good.parent), b"a\xff.jsonl")
    with open(bad, "w") as file:
        file.write(prompt() + "\n" + reply(1, 100) + "\n")
    world.observer.nudge("claude", "x", os.fsdecode(bad))
    world.until(lambda s: s.session.path == str(good))
    world.observer.step(0.5)
    assert world.observer.sessions.keys() == {("claude", SESSION)}


def test_a_look_that_breaks_down_is_said_and_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = claude_session(world.home, prompt(), reply(1, 100))
    world.observer.step(0)
    with monkeypatch.context() as broken:
        broken.setattr(viewer_module.Viewer, "look_at", lambda *_: 1 / 0)
        world.observer.nudge("claude", SESSION)
        assert world.observer.step(0.05) == []
    assert "division by zero" in world.observer.notes[0]
    world.append(file, reply(2, 300))
    assert world.until(lambda s: used(s) == 300)


def test_an_index_that_another_writes_to_is_not_waited_for(world: World) -> None:
    file = claude_session(world.home, prompt(), reply(1, 100))
    world.observer.step(0)
    other = sqlite3.connect(state.index_path(), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    world.append(file, reply(2, 300))
    world.until(lambda s: used(s) == 300)
    world.offset_s += SWEPT_S
    world.observer.step(0)  # it would be for ever
    other.close()
    world.offset_s += SWEPT_S
    world.observer.step(0)
    index, _ = open_index(state.index_path())
    found = index.look(str(file))
    index.close()
    assert found is not None
    assert found[0][2] == file.stat().st_size


def test_an_index_that_breaks_and_cannot_be_fixed_costs_no_sighting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(*_: object) -> None:
        raise StateError("no room")

    file = claude_session(world.home, prompt(), reply(1, 100))
    agent = world.agent()
    world.observer.step(0)
    with monkeypatch.context() as full:
        full.setattr(viewer_module, "set_aside", no)
        world.observer._view()._cache.db.execute("DROP TABLE look")
        claude_session(world.home, prompt(), reply(1, 200), session=OTHER)
        world.until(lambda s: s.session.session_id == OTHER)
        world.append(file, reply(2, 300))
        agent.end()
        assert used(world.until(lambda s: s.ended is not None)) == 300
    assert [note for note in world.observer.notes if "no room" in note]
    claude_session(world.home, prompt(), reply(1, 200), session=OTHER.replace("2", "3"))
    world.until(lambda s: s.before is None)
    assert "kept it as" in world.observer.notes[-1]


def test_a_state_that_cannot_be_kept_for_a_while_starts_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(place: str) -> None:
        raise StateError("no room")

    world.observer.step(0)
    codex_file(world, SESSION, "cli")
    world.offset_s += SWEPT_S
    with monkeypatch.context() as full:
        full.setattr(viewer_module, "open_index", no)
        for _ in range(2):
            with pytest.raises(StateError):
                world.observer.step(0)
    assert world.until(lambda s: s.session.agent == "codex")
    assert not world.observer.notes


def test_without_watches_folders_are_looked_into(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Folders, "add", lambda *_: False)
    monkeypatch.setattr(observer_module, "SWEEP_S", 86_400.0)  # else that would find it, too
    claude_session(world.home, prompt(), reply(1, 100))
    agent = world.agent(status="busy")
    world.observer.step(0)
    agent.tells(SESSION, "idle")
    world.offset_s += observer_module.BLIND_S
    world.until(lambda s: s.session.state is SessionState.WAITING_FOR_USER)


def test_a_bell_that_was_closed_writes_into_nobodys_file(tmp_path: Path) -> None:
    bell = Wakeup()
    bell.ring()
    bell.close()
    files = [(tmp_path / str(number)).open("wb") for number in range(8)]
    bell.ring()
    bell.close()
    for file in files:
        file.close()
        assert Path(file.name).read_bytes() == b""


def test_following_that_breaks_down_starts_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = claude_session(world.home, prompt(), reply(1, 100))
    world.observer.step(0)
    with monkeypatch.context() as broken:
        broken.setattr(FileFollower, "_look_at_due", lambda self: 1 / 0)
        world.append(file, reply(2, 300))

        def is_noted() -> bool:
            world.observer.step(0.1)
            return bool(world.observer.notes)

        until(is_noted)
    assert "division by zero" in world.observer.notes[0]
    world.append(file, reply(3, 400))
    world.offset_s += SWEPT_S
    assert world.until(lambda s: used(s) == 400)
    world.append(file, reply(4, 500))
    assert world.until(lambda s: used(s) == 500)


def test_what_is_odd_is_said_once(world: World) -> None:
    (world.home / ".local" / "share" / "opencode").mkdir(parents=True)
    file = world.home / ".local" / "share" / "opencode" / "opencode.db"
    file.write_bytes(b"no database" * 100)
    world.observer.step(0)
    world.observer.nudge("opencode", "x", str(file))
    world.observer.step(0.05)
    world.observer.nudge("opencode", "x", str(file))
    world.observer.step(0.05)
    (note,) = world.observer.notes
    assert str(file) in note


def test_a_folder_whose_name_another_has_now_is_watched_again(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    folders = Folders()
    assert folders.add(str(folder))
    folder.rename(tmp_path / "b")
    folder.mkdir()
    folders.drain()
    assert not folders.has(str(folder))
    assert folders.add(str(folder))
    (tmp_path / "b" / "old").touch()
    (folder / "new").touch()
    assert folders.drain() == ({str(folder / "new")}, False)
    folders.close()
