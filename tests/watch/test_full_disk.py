"""What a daemon sees while its disk is full: it is logged and decided once there is room."""

from collections import deque
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from support.watch.stops import NOON, FakeRules

from segue.core.resumes import decisions as wake
from segue.core.sessions.reading import Reading, Zone
from segue.core.sessions.types import Process, Session, SessionState, StopSeen
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.core.terminals.screen import Screen
from segue.runs.clock import Clock
from segue.system.tmux.panes import AgentPane
from segue.testing.simulation.terminals.log import MemoryLog
from segue.watch.daemon import Watch
from segue.watch.observe import endings
from segue.watch.observe.observer import SETTLE_S, Sighting
from segue.watch.resumes.pending import Pending

HOUR = 3_600.0
AGENT = Process(agent="claude", pid=7, started_at=1.0)
SEAT = AgentPane(socket="/s", pane="%1", tty="/dev/pts/9", pid=7, start_ticks=1, agent="claude")
LIMITED = Session(
    agent="claude",
    session_id="s",
    path="/p/s.jsonl",
    cwd="/p",
    last_at=NOON,
    reading=Reading(input_tokens=50_000, window_tokens=200_000, at=NOON),
    zone=Zone.NORMAL,
    state=SessionState.WAITING_FOR_LIMIT,
    stop=StopSeen(StopReason.RATE_LIMIT, 0.99, NOON + HOUR, "limit"),
    process=AGENT,
)
LEFT = replace(LIMITED, process=None, state=SessionState.GONE)


class SetClock(Clock):
    at = NOON

    def now(self) -> float:
        return self.at

    def awake(self) -> float:
        return self.at

    def elapsed(self) -> float:
        return 10 * HOUR + self.at - NOON


class Told:
    """An observer that sees what the test says."""

    def __init__(self) -> None:
        self.coming: list[Sighting] = []
        self.notes: deque[str] = deque()
        self.sessions: dict[tuple[str, str], Session] = {}

    def step(self, timeout_s: float) -> list[Sighting]:
        found, self.coming = self.coming, []
        return found

    def ending_of(self, sighting: Sighting, **_: Any) -> Stop:
        return endings.ending_of(sighting.session, sighting.ended, self.after())

    def after(self, ended: Process | None = None) -> endings.After:
        return endings.After(terminal="gone")

    def nudge(self, *_: str) -> None: ...

    def wake(self) -> None: ...


class Seats:
    """The agent has a pane, until its terminal is closed."""

    def learn(self, kept: Any, process: Process) -> bool:
        if kept.seen_pid == process.pid:
            return False
        kept.seen_pid, kept.seat = process.pid, SEAT
        return True

    def shell_of(self, kept: Any) -> tuple[bool, str | None, bool]:
        return True, None, False


class Scene:
    def __init__(self) -> None:
        self.is_full = False
        self.said: list[str] = []
        self.resumed: list[Pending] = []
        self.clock, self.observer = SetClock(), Told()
        rules = FakeRules()
        rules.notes = deque()  # type: ignore[attr-defined]
        self.watch = Watch(
            env={},
            log=MemoryLog(lambda: self.is_full, lambda *_: None),
            rules=rules,  # type: ignore[arg-type]
            say=self.said.append,
            clock=self.clock,
            notices=self,  # type: ignore[arg-type]
            observer=self.observer,  # type: ignore[arg-type]
            typist=self,  # type: ignore[arg-type]
            seating=Seats(),  # type: ignore[arg-type]
        )
        self.watch.stops.carrier = self
        self.watch.takeups.tick = lambda now: None  # type: ignore[method-assign]

    # In place of notices, of tmux, and of who carries out

    def tell(self, *_: Any, **__: Any) -> None: ...

    def look(self, *_: Any) -> Screen:
        return Screen("idle")

    def resume(self, pending: Pending, verdict: wake.Resume | wake.Relay) -> None:
        self.resumed.append(pending)

    # What happens

    def see(self, session: Session, ended: Process | None = None) -> None:
        name = (session.agent, session.session_id)
        self.observer.coming.append(Sighting(session, self.observer.sessions.get(name), ended))
        self.observer.sessions[name] = session
        self.watch.turn()

    def later(self, seconds: float = SETTLE_S) -> None:
        self.clock.at += seconds
        self.watch.turn()

    def notes(self, *kinds: str) -> list[dict[str, Any]]:
        return [note.data for note in self.watch.state.log.since(0, kinds)]


@pytest.fixture
def scene(own_home: Path) -> Scene:
    return Scene()


def test_a_stop_that_could_not_be_logged_is_logged_once_there_is_room(scene: Scene) -> None:
    scene.is_full = True
    scene.see(LIMITED)
    assert scene.watch.pause_s() <= 1.0
    scene.is_full = False
    scene.later()
    scene.later()
    assert [note["state"] for note in scene.notes("stop")] == ["at_prompt"]
    assert [note["verdict"] for note in scene.notes("wake")] == ["wait"]
    assert len(scene.notes("live")) == 1
    assert not any("internal" in line for line in scene.said)


@pytest.mark.parametrize("room", ["before its end", "after its end"])
def test_a_session_that_stopped_on_a_full_disk_and_is_left_by_its_user_stays_ended(
    scene: Scene, room: str
) -> None:
    scene.is_full = True
    scene.see(LIMITED)
    if room == "before its end":
        scene.is_full = False
        scene.later()
    scene.see(LEFT, AGENT)
    scene.later()
    scene.is_full = False
    scene.later()
    scene.later(9 * HOUR)
    ends = [note for note in scene.notes("stop") if note["state"] == "exited"]
    assert [end["ended_by"] for end in ends] == ["user"]
    assert scene.notes("wake")[-1]["verdict"] == "leave"
    assert not scene.resumed


def test_a_resume_that_cannot_be_logged_is_made_once_there_is_room(scene: Scene) -> None:
    scene.see(LIMITED)
    scene.is_full = True
    scene.later(2 * HOUR)
    scene.later()
    assert not scene.resumed
    scene.is_full = False
    scene.later()
    assert [pending.resumes for pending in scene.resumed] == [1]
    assert scene.notes("wake")[-1]["verdict"] == "resume"
