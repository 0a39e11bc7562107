"""What the daemon sees of sessions: real files, real processes, and no polling."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.agents.agents_alive import Agent
from support.homes import SESSION, START, OpencodeDb, claude_session, prompt, reply
from support.waiting import until
from support.watch.observing import OTHER, SWEPT_S, World, codex_file, used

from segue.core.policy import Policy
from segue.core.sessions.reading import Zone
from segue.core.sessions.types import SessionState
from segue.core.stops.reasons import StopReason
from segue.sessions.count.index import open_index
from segue.system.files import state
from segue.watch.observe import observer as observer_module
from segue.watch.observe import pace as pace_module
from segue.watch.observe import session_table
from segue.watch.observe import viewer as viewer_module
from segue.watch.observe.observer import Sighting
from segue.watch.observe.pace import FIRST_S, MAX_S, Pace

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def world(own_home: Path) -> Iterator[World]:
    made = World(own_home)
    yield made
    made.observer.close()
    for agent in made.agents:
        agent.end()


@pytest.fixture
def no_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is seen is seen because something happened, not because it was time to look."""
    monkeypatch.setattr(observer_module, "SWEEP_S", 86_400.0)


def test_the_first_step_sees_what_is_recent_and_what_is_live(world: World) -> None:
    claude_session(world.home, prompt(), reply(1, 20_000))
    old = claude_session(world.home, prompt(), reply(1, 30_000), session=OTHER)
    dead = claude_session(world.home, prompt(), session=OTHER.replace("2", "3"))
    for file in (old, dead):
        os.utime(file, (START, time.time() - 3 * 86_400))
    world.agent(OTHER, "idle")
    seen = {s.session.session_id: s for s in world.observer.step(0)}
    assert seen.keys() == {SESSION, OTHER}
    assert seen[OTHER].session.state is SessionState.WAITING_FOR_USER
    assert seen[SESSION].session.process is None
    assert all(s.before is None for s in seen.values())
    assert world.observer.sessions.keys() == {("claude", SESSION), ("claude", OTHER)}


@pytest.mark.usefixtures("no_sweeps")
def test_a_record_is_seen_soon_and_costs_one_sighting(world: World) -> None:
    file = claude_session(world.home, prompt(), reply(1, 20_000))
    world.observer.step(0)
    world.append(file, reply(2, 160_000, model="claude-haiku-4-5"))
    seen = world.until(lambda s: used(s) == 160_000)
    assert seen.before is not None
    assert used(Sighting(seen.before)) == 20_000
    assert seen.session.zone is Zone.CRITICAL
    assert [s for s in world.seen if used(s) == 160_000] == [seen]
    assert world.observer.step(0.3) == []


def test_a_new_session_in_a_new_project_is_seen(world: World) -> None:
    world.observer.step(0)
    claude_session(world.home, prompt(), reply(1, 1_000), session=OTHER, slug="-new")
    assert world.until(lambda s: s.session.session_id == OTHER).before is None


def test_a_home_that_comes_later_is_followed(world: World) -> None:
    world.observer.step(0)
    folder = world.home / ".codex" / "sessions" / "2026"
    folder.mkdir(parents=True)
    world.offset_s += SWEPT_S
    world.observer.step(0)
    meta = {"type": "session_meta", "payload": {"id": SESSION, "cwd": "/p", "source": "cli"}}
    file = folder / f"rollout-2026-11-15T18-17-41-{SESSION}.jsonl"
    file.write_text(json.dumps({"timestamp": "2026-11-15T18:17:41.000Z", **meta}) + "\n")
    assert world.until(lambda s: s.session.agent == "codex")


@pytest.mark.usefixtures("no_sweeps")
def test_an_exit_is_seen_at_once_and_how_it_ended(world: World) -> None:
    claude_session(world.home, prompt(), reply(1, 20_000, stop="tool_use"))
    agent = world.agent()
    world.until(lambda s: s.session.process is not None)
    world.observer.step(0.1)
    timer = threading.Timer(0.3, agent.end, (signal.SIGKILL,))
    timer.start()
    seen = world.until(lambda s: s.ended is not None)
    timer.join()
    assert seen.ended is not None
    assert seen.ended.pid == agent.pid
    assert seen.session.process is None
    assert not seen.session.state.is_live
    stop = world.observer.ending_of(seen)
    assert stop.reason is StopReason.CRASH
    assert world.observer.after(seen.ended).terminal == "none"
    code = world.observer.after(seen.ended).exit_code
    assert code in (-9, None)  # systems before Linux 6.15 tell only the parent


def in_a_terminal(world: World, shell: str) -> tuple["subprocess.Popen[bytes]", int, Agent]:
    """An agent in a shell in a terminal of its own; that terminal's other end."""
    near, far = os.openpty()
    agent = Agent(world.claude, started_by=["sh", "-c", shell, "sh", os.ttyname(far)])
    os.close(far)
    world.agents.append(agent)
    assert agent.shell is not None
    return agent.shell, near, agent


@pytest.mark.parametrize("closes", [True, False])
def test_a_closed_terminal_is_told_from_a_crash_in_it(world: World, closes: bool) -> None:
    claude_session(world.home, prompt(), reply(1, 20_000, stop="tool_use"))
    _, near, agent = in_a_terminal(world, 'exec 0<>"$1" 1>&0 2>&0; "$2" 600; sleep 600')
    world.until(lambda s: s.session.process is not None)
    if closes:
        os.close(near)
    else:
        os.kill(agent.pid, signal.SIGKILL)
    seen = world.until(lambda s: s.ended is not None)
    deadline = time.monotonic() + observer_module.SETTLE_S
    while closes and time.monotonic() < deadline and _left(world, seen) != "gone":
        pass
    assert _left(world, seen) == ("gone" if closes else "there")
    reason = StopReason.USER_EXIT if closes else StopReason.CRASH
    assert world.observer.ending_of(seen).reason is reason
    if not closes:
        os.close(near)


def test_a_crash_is_known_though_nobody_asks_the_system_how_the_agent_ended(world: World) -> None:
    """A tmux whose last look at its children was too early asks only when something else happens.
    The agent leads its terminal's session, as in a pane: what remains of that says nothing."""
    claude_session(world.home, prompt(), reply(1, 20_000, stop="tool_use"))
    leads = """setsid sh -c 'exec "$1" 600 0<>"$2"' sh "$2" "$1" & exec sleep 600"""
    _, near, agent = in_a_terminal(world, leads)
    world.until(lambda s: s.session.process is not None)
    os.kill(agent.pid, signal.SIGKILL)
    seen = world.until(lambda s: s.ended is not None)
    assert f"/proc/{agent.pid}/stat: Z" == _state(agent.pid)
    assert seen.ended is not None
    after = world.observer.after(seen.ended)
    assert (after.terminal, after.exit_code, after.is_final) == ("own", -signal.SIGKILL, True)
    assert world.observer.ending_of(seen).reason is StopReason.CRASH
    os.close(near)


def _state(pid: int) -> str:
    path = Path(f"/proc/{pid}/stat")
    return f"{path}: {path.read_text().rpartition(')')[2].split()[0]}"


def _left(world: World, seen: Sighting) -> str:
    assert seen.ended is not None
    return world.observer.after(seen.ended).terminal


def test_the_last_words_before_an_exit_are_part_of_it(world: World) -> None:
    file = claude_session(world.home, prompt(), reply(1, 20_000, stop="tool_use"))
    agent = world.agent()
    world.until(lambda s: s.session.process is not None)
    world.append(file, reply(2, 21_000))
    agent.end(signal.SIGTERM)
    seen = world.until(lambda s: s.ended is not None)
    assert used(seen) == 21_000
    assert seen.session.stop is not None
    assert seen.session.stop.reason is StopReason.COMPLETED


@pytest.mark.usefixtures("no_sweeps")
def test_what_an_agent_says_of_itself_is_seen_at_once(world: World) -> None:
    claude_session(world.home, prompt(), reply(1, 20_000))
    agent = world.agent(status="idle")
    assert world.observer.step(0)[0].session.state is SessionState.WAITING_FOR_USER
    agent.tells(SESSION, "busy")
    seen = world.until(lambda s: s.session.state is SessionState.WORKING)
    assert seen.ended is None


def test_a_process_that_goes_on_to_another_session_has_not_ended(world: World) -> None:
    claude_session(world.home, prompt(), reply(1, 20_000))
    claude_session(world.home, prompt(), reply(1, 1_000), session=OTHER)
    agent = world.agent(status="idle")
    world.observer.step(0)
    agent.tells(OTHER, "idle")
    seen = world.until(lambda s: s.session.session_id == SESSION)
    assert seen.session.process is None
    assert seen.ended is None
    now = world.observer.sessions["claude", OTHER]
    assert now.process is not None
    assert now.process.pid == agent.pid


@pytest.mark.usefixtures("no_sweeps")
def test_a_new_agent_is_found_by_the_file_that_it_writes(world: World) -> None:
    claude_session(world.home, prompt(), reply(1, 20_000))
    (world.claude / "sessions").mkdir()
    world.observer.step(0)
    agent = world.agent(status="idle")
    seen = world.until(lambda s: s.session.process is not None)
    assert seen.session.process is not None
    assert seen.session.process.pid == agent.pid


def test_an_old_session_that_is_resumed_is_found_though_it_does_not_grow(world: World) -> None:
    file = claude_session(world.home, prompt(), reply(1, 20_000))
    os.utime(file, (START, time.time() - 3 * 86_400))
    (world.claude / "sessions").mkdir()
    assert world.observer.step(0) == []
    world.agent(status="idle")
    assert world.until(lambda s: s.session.process is not None)


@pytest.mark.usefixtures("no_sweeps")
def test_a_growing_session_makes_it_look_for_the_process(world: World) -> None:
    """An agent that says nothing of itself is found when its session grows, and not by chance at
    the next sweep."""
    pi = world.home / ".pi" / "agent" / "sessions" / "--p--"
    pi.mkdir(parents=True)
    world.observer.step(0)
    agent = world.agent(name="pi")
    file = pi / f"2026-11-15T19-03-29-991Z_{SESSION}.jsonl"
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() + 1))
    cwd = os.path.realpath(world.claude)
    file.write_text(
        f'{{"type":"session","version":3,"id":"{SESSION}","timestamp":"{now}","cwd":"{cwd}"}}\n'
        f'{{"type":"message","id":"a","timestamp":"{now}","message":{{"role":"user",'
        '"content":[{"type":"text","text":"go"}]}}\n'
    )
    seen = world.until(lambda s: s.session.process is not None)
    assert seen.session.process is not None
    assert seen.session.process.pid == agent.pid


@pytest.mark.usefixtures("no_sweeps")
def test_sessions_in_a_database_are_seen_to_change(world: World) -> None:
    db = OpencodeDb(world.home / ".local" / "share" / "opencode" / "opencode.db")
    now = time.time()
    for number in range(3):
        db.session(f"ses_{number}", "/p", now - number)
        db.answer(number, f"ses_{number}", now - number, 10_000)
    assert len(world.observer.step(0)) == 3
    db.answer(7, "ses_1", now + 1, 44_000)
    seen = world.until(lambda s: used(s) == 44_000)
    assert seen.session.session_id == "ses_1"
    assert {s.session.session_id for s in world.seen} == {"ses_1"}


def test_the_price_list_is_asked_in_another_process() -> None:
    answered = threading.Event()
    asker = viewer_module.Asker(answered.set)
    asker.ask("gpt-4o")
    assert answered.wait(120)
    assert asker.take() == {"gpt-4o": 128_000}


def test_the_price_list_is_asked_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer_module, "_ASK", "import sys; print(123456)")
    db = OpencodeDb(world.home / ".local" / "share" / "opencode" / "opencode.db")
    db.session("ses_1", "/p", time.time())
    db.answer(1, "ses_1", time.time(), 10_000)
    (first,) = world.observer.step(0)
    assert first.session.reading is not None
    assert first.session.reading.window_tokens == 200_000
    seen = world.until(lambda s: s.session.reading is not None)
    assert seen.session.reading is not None
    assert seen.session.reading.window_tokens == 123_456
    index, _ = open_index(state.index_path())
    assert index.window("test-model") == (True, 123_456)
    index.close()


def test_nothing_heavy_is_loaded(world: World) -> None:
    claude_session(world.home, prompt(), reply(1, 20_000))
    code = (
        "import os, sys, segue.watch.log; from segue.watch.observe.observer import Observer\n"
        "assert len(Observer(env=os.environ).step(0)) == 1\n"
        "print(sorted({'rich', 'genai_prices', 'click', 'httpx', 'asyncio'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_limit_that_is_over_changes_what_the_session_waits_for(world: World) -> None:
    resets_at = int(time.time()) + 3600
    record = reply(2, 20_000, model="<synthetic>").replace(
        '"type":"assistant","uuid"',
        '"isApiErrorMessage":true,"error":"rate_limit","type":"assistant","uuid"',
    )
    text = f"Claude AI usage limit reached|{resets_at}"
    claude_session(world.home, prompt(), reply(1, 20_000), record.replace("Done.", text))
    world.agent(status="idle")
    seen = world.until(lambda s: s.session.process is not None)
    assert seen.session.state is SessionState.WAITING_FOR_LIMIT
    world.wall_offset_s += 3601
    assert world.until(lambda s: s.session.state is SessionState.WAITING_FOR_USER)


def test_sub_agents_are_counted_and_are_not_sessions_of_their_own(world: World) -> None:
    file = claude_session(world.home, prompt(), reply(1, 20_000))
    world.observer.step(0)
    below = file.parent / SESSION / "subagents"
    below.mkdir(parents=True)
    (below / "agent-1.jsonl").write_text(reply(1, 500, side=True) + "\n")
    seen = world.until(lambda s: s.session.children == 1)
    assert seen.session.session_id == SESSION
    assert world.observer.sessions.keys() == {("claude", SESSION)}


def test_a_sub_agent_that_only_its_records_reveal_is_not_a_session_either(world: World) -> None:
    folder = world.home / ".codex" / "sessions"
    folder.mkdir(parents=True)

    def write(name: str, source: object) -> None:
        meta = {"id": name, "cwd": "/p", "source": source}
        record = {
            "timestamp": "2026-11-15T18:17:41.000Z",
            "type": "session_meta",
            "payload": meta,
        }
        file = folder / f"rollout-2026-11-15T18-17-41-{name}.jsonl"
        file.write_text(json.dumps(record) + "\n")

    write(SESSION, "cli")
    world.observer.step(0)
    write(OTHER, {"subagent": {"thread_spawn": {"parent_thread_id": SESSION}}})
    assert world.until(lambda s: s.session.children == 1).session.session_id == SESSION
    world.observer.step(0.5)
    assert world.observer.sessions.keys() == {("codex", SESSION)}


def test_a_sub_agent_that_is_recorded_late_is_not_a_session_either(world: World) -> None:
    codex_file(world, SESSION, "cli")
    world.observer.step(0)
    child = codex_file(world, OTHER, None)
    for _ in range(3):
        world.observer.step(0.2)
    assert world.observer.sessions.keys() == {("codex", SESSION)}
    codex_file(world, OTHER, {"subagent": {"thread_spawn": {"parent_thread_id": SESSION}}})
    assert world.until(lambda s: s.session.children == 1).session.session_id == SESSION
    world.append(child, json.dumps({"type": "event_msg", "payload": {"type": "x"}}))
    for _ in range(3):
        assert world.observer.step(0.2) == []
    assert world.observer.sessions.keys() == {("codex", SESSION)}


def test_what_nobody_touches_is_forgotten_after_a_day_and_found_again(world: World) -> None:
    file = claude_session(world.home, prompt(at=time.time()), reply(1, 20_000, at=time.time()))
    claude_session(world.home, prompt(), reply(1, 5_000), session=OTHER)
    world.agent(OTHER, "idle")
    world.until(lambda s: s.session.session_id == OTHER)
    world.offset_s += 2 * 86_400
    world.observer.step(0)
    assert world.observer.sessions.keys() == {("claude", OTHER)}
    world.append(file, reply(2, 21_000, at=time.time() + world.offset_s))
    assert world.until(lambda s: used(s) == 21_000).before is None


def test_no_more_than_so_many_sessions_are_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_table, "MAX_SESSIONS", 3)
    for number in range(6):
        name = SESSION.replace("1", str(number + 2))
        claude_session(world.home, prompt(), reply(1, 100, at=START + number), session=name)
    world.observer.step(0)
    assert len(world.observer.sessions) == 3
    newest = SESSION.replace("1", "7")
    assert ("claude", newest) in world.observer.sessions


def test_a_removed_session_is_forgotten_and_a_moved_one_is_not(world: World) -> None:
    one = claude_session(world.home, prompt(), reply(1, 100))
    two = claude_session(world.home, prompt(), reply(1, 200), session=OTHER)
    world.observer.step(0)
    target = world.claude / "projects" / "-q"
    target.mkdir()
    two = two.rename(target / two.name)
    one.unlink()
    world.until(lambda s: s.session.path == str(two))

    def is_forgotten() -> bool:
        world.observer.step(0.1)
        return ("claude", SESSION) not in world.observer.sessions

    until(is_forgotten)
    assert world.observer.sessions["claude", OTHER].path == str(two)


def test_a_session_whose_file_has_another_name_is_seen_once(world: World) -> None:
    one = claude_session(world.home, prompt(), reply(1, 100))
    world.observer.step(0)
    one.rename(one.with_name(f"{OTHER}.jsonl"))
    world.until(lambda s: s.session.session_id == OTHER)

    def is_one() -> bool:
        world.observer.step(0.1)
        return world.observer.sessions.keys() == {("claude", OTHER)}

    until(is_one)


def test_a_file_that_tells_of_another_session_now_is_one_session(world: World) -> None:
    folder = world.home / ".pi" / "agent" / "sessions" / "--p--"
    folder.mkdir(parents=True)
    file = folder / "mine.jsonl"
    for name in (SESSION, OTHER):
        file.write_text(f'{{"type":"session","version":3,"id":"{name}","cwd":"/p"}}\n')
        world.until(lambda s: ("pi", name) in world.observer.sessions)  # noqa: B023
    assert world.observer.sessions.keys() == {("pi", OTHER)}


def test_a_nudge_is_looked_at_without_delay(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace_module, "FIRST_S", 60.0)
    file = claude_session(world.home, prompt(), reply(1, 100))
    world.observer.step(0)
    world.append(file, reply(2, 300))
    world.observer.nudge("claude", SESSION, str(file))
    world.until(lambda s: used(s) == 300)


@pytest.mark.parametrize(
    "name", ["", "/nowhere/x.jsonl", "x" * 5000, "\udcff", "\0", "~/\0", "~/x"]
)
def test_a_nudge_about_nothing_does_nothing(world: World, name: str) -> None:
    world.observer.step(0)
    path = name.replace("~", str(world.claude / "projects" / "-p")) + ".jsonl"
    world.observer.nudge("claude", "nobody", path)
    assert world.observer.step(0.05) == []


def test_another_thread_wakes_a_step_that_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.observer.step(0)
    threading.Timer(0.1, world.observer.wake).start()
    assert world.observer.step(3600.0) == []  # it returns
    waits: list[float] = []
    select = world.observer._selector.select

    def wait(at_most_s: float) -> Any:
        waits.append(at_most_s)
        return select(0)

    monkeypatch.setattr(world.observer._selector, "select", wait)
    world.observer.step(0.01)
    assert waits[0] > 0  # it was woken once


def test_other_rules_count_from_the_next_step_on(world: World) -> None:
    claude_session(world.home, prompt(), reply(1, 100_000, model="claude-haiku-4-5"))
    (first,) = world.observer.step(0)
    assert first.session.zone is Zone.WARNING
    policy = Policy(monitor_mark=0.1, warning_mark=0.2, critical_mark=0.3)
    world.observer.reload(lambda agent, model, cwd: policy)
    assert world.until(lambda s: True).session.zone is Zone.CRITICAL


def test_what_was_seen_is_in_the_index_for_the_next_start(world: World) -> None:
    file = claude_session(world.home, prompt(), reply(1, 100))
    world.observer.step(0)
    world.append(file, reply(2, 100))
    world.observer.nudge("claude", SESSION)
    world.observer.step(0.1)
    world.observer.close()
    index, _ = open_index(state.index_path())
    stamp, _ = index.looks()[str(file)]
    index.close()
    assert stamp[2] == file.stat().st_size
    world.observer = world.observe()
    (seen,) = world.observer.step(0)
    assert used(seen) == 100
    assert world.observer.step(0) == []


def test_a_file_that_grows_all_the_time_is_looked_at_once_a_second() -> None:
    pace, looks, now = Pace(), list[float](), 0.0
    for tick in range(1000):
        now = tick / 100
        pace.touch("a", now)
        while (path := pace.due(now)) is not None:
            looks.append(now)
            pace.note_look(path, now, 0.001)
    gaps = [late - early for early, late in pairwise(looks)]
    assert looks[0] == pytest.approx(FIRST_S)
    assert min(gaps) >= FIRST_S
    assert all(gap == pytest.approx(MAX_S, abs=0.02) for gap in gaps[4:])
    pace.touch("b", now)
    assert pace.next_at() <= now + FIRST_S


def test_a_pressing_file_is_looked_at_as_often_as_it_changes_and_looks_allow() -> None:
    pace, looks, now = Pace(), list[float](), 0.0
    pace.press("a", True)
    for tick in range(200):
        now = tick / 10
        pace.touch("a", now)
        while (path := pace.due(now + 0.05)) is not None:
            looks.append(now)
            pace.note_look(path, now, 0.001)
    assert len(looks) == 200
    pace.note_look("a", now, 0.5)
    pace.touch("a", now)
    assert pace.next_at() == pytest.approx(now + 1.5)
    pace.press("a", False)
    pace.note_look("a", now, 0.5)
    assert pace.due(now + 1.5) == "a"
    pace.touch("a", now + 0.5)
    assert pace.next_at() == pytest.approx(now + 2.0)


def test_a_look_that_takes_long_is_not_repeated_soon() -> None:
    pace = Pace()
    pace.note_look("a", 0.0, 1.0)
    pace.touch("a", 1.0)
    assert pace.next_at() == 3.0
    pace.hurry("a", 1.5)
    assert pace.due(1.5) == "a"
    assert pace.due(30.0) is None
