"""What is done about sessions that stopped: the daemon's own bookkeeping, by a clock of the test's
own and without terminals."""

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from support.watch.stops import NOON, FakeRules

from segue.agents import terminals
from segue.core.policy import Policy
from segue.core.resumes import decisions as wake
from segue.core.runs.types import Origin, Run
from segue.core.sessions.reading import Reading
from segue.core.sessions.remarks import LimitSeen
from segue.core.sessions.types import Process, Session, SessionState, StopSeen
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop
from segue.core.terminals.screen import Screen
from segue.runs.clock import Clock
from segue.runs.store import open_store
from segue.system.tmux.panes import AgentPane
from segue.system.tmux.typist import TypingRefused
from segue.watch.log import Log, Note
from segue.watch.resumes import relaying
from segue.watch.resumes.pending import Pending
from segue.watch.resumes.prompt_stops import AGAIN_S
from segue.watch.resumes.stops import MAX_RETRIES, RETRY_S, Stops
from segue.watch.state import DaemonState, TrackedSession

R = StopReason
HOUR, DAY = 3600.0, 86_400.0
LIMIT = StopSeen(R.RATE_LIMIT, 0.99, NOON + HOUR, "limit")
SEAT = AgentPane(socket="/s", pane="%1", tty="/dev/pts/9", pid=7, start_ticks=1, agent="claude")


class FakeClock(Clock):
    def __init__(self) -> None:
        self.at = NOON
        self.booted_at = NOON - 10 * DAY

    def now(self) -> float:
        return self.at

    def elapsed(self) -> float:
        return self.at - self.booted_at


class FakeTypist:
    def __init__(self) -> None:
        self.screen: Screen | TypingRefused = Screen("idle")

    def look(self, seat: AgentPane, terminal: Any) -> Screen | TypingRefused:
        return self.screen


class Scene:
    """Stops in a world without machines; `again`: what the user of a killed daemon does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.typist = folder, FakeClock(), FakeTypist()
        self.rules = FakeRules()
        self.said: list[str] = []
        self.carried: list[tuple[Pending, Any]] = []
        self.tracked: dict[tuple[str, str], TrackedSession] = {}
        self.begin()

    def begin(self) -> None:
        self.log = Log(self.folder / "watch.db")
        self.told: list[tuple[str, str]] = []
        self.world = DaemonState(
            env={},
            clock=self.clock,
            log=self.log,
            rules=self.rules,  # type: ignore[arg-type]
            typist=self.typist,  # type: ignore[arg-type]
            notices=self,  # type: ignore[arg-type]
            say=self.said.append,
            tracked=self.tracked,
        )
        self.stops = Stops(self.world, self, draw=lambda: 0.0)

    def again(self) -> None:
        self.log.close()
        self.tracked = {name: TrackedSession(kept.session) for name, kept in self.tracked.items()}
        self.begin()
        self.stops.restore()

    # In place of notices, and of who carries out

    def tell(self, kind: str, key: str, title: str, body: str = "", **_: Any) -> None:
        self.told.append((kind, f"{title}: {body}"))

    def resume(self, pending: Pending, verdict: wake.Resume | wake.Relay) -> None:
        self.carried.append((pending, verdict))

    # What happens

    def session(self, name: str = "s", **fields: Any) -> TrackedSession:
        path = self.folder / f"{name}.jsonl"
        path.touch()
        given: dict[str, Any] = {
            "agent": "claude",
            "session_id": name,
            "path": str(path),
            "cwd": "/p",
            "last_at": self.clock.at - 1,
            "reading": Reading(input_tokens=50_000, at=self.clock.at - 1),
            "state": SessionState.WORKING,
            "process": Process(agent="claude", pid=7, started_at=1.0),
        }
        kept = self.tracked.get(("claude", name)) or TrackedSession(Session(**(given | fields)))
        kept.session = Session(**(given | fields))
        kept.seat, kept.terminal, kept.seen_pid = SEAT, terminals.find("claude"), 7
        self.tracked["claude", name] = kept
        return kept

    def crash(self, name: str = "s", **fields: Any) -> TrackedSession:
        kept = self.session(name, process=None, state=SessionState.GONE, **fields)
        kept.shell_line = "$"
        stop = Stop(reason=R.CRASH, confidence=0.9, resume="same_session")
        self.stops.ended(kept, stop, mid_turn=True, has_tmux=True, exit_code=-9)
        return kept

    def limit(self, name: str = "s", stop: StopSeen = LIMIT, **fields: Any) -> TrackedSession:
        fields = {"state": SessionState.WAITING_FOR_LIMIT, "stop": stop} | fields
        kept = self.session(name, **fields)
        self.stops.at_prompt(kept)
        return kept

    def pass_to(self, at: float) -> None:
        """Time goes by, and the daemon ticks whenever it is due."""
        while (due := self.stops.next_at()) is not None and due <= at:
            self.clock.at = max(self.clock.at, due)
            before = self.notes()
            self.stops.tick(self.clock.at)
            if self.stops.next_at() == due and self.notes() == before:
                break
        self.clock.at = at
        self.stops.tick(at)

    def notes(self, kind: str = "wake") -> list[Note]:
        return self.log.since(0, (kind,))

    def verdicts(self) -> list[str]:
        return [note.data["verdict"] for note in self.notes()]

    @property
    def resumed(self) -> list[str]:
        return [pending.ending.session_id for pending, _ in self.carried]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.log.close()


# Whose doing it was


@pytest.mark.parametrize(
    ("code", "by"), [(0, "user"), (None, "user"), (130, "user"), (-1, "user"), (-9, "unknown")]
)
def test_an_agent_that_leaves_its_prompt_was_left_by_its_user(
    scene: Scene, code: int | None, by: str
) -> None:
    kept = scene.limit()
    kept.session = msgspec.structs.replace(kept.session, process=None, state=SessionState.STOPPED)
    stop = Stop(reason=R.RATE_LIMIT, confidence=0.99, resume="same_session", retry_at=NOON + HOUR)
    scene.stops.ended(kept, stop, mid_turn=False, has_tmux=True, exit_code=code)
    assert scene.notes("stop")[-1].data["ended_by"] == by
    last = scene.notes()[-1].data
    assert (last.get("why") == wake.NOT_RESUMING) is (by == "user")
    scene.pass_to(NOON + 2 * HOUR)
    assert scene.resumed == ([] if by == "user" else ["s"])


def test_a_limit_that_ended_its_process_was_not_the_users_doing(scene: Scene) -> None:
    kept = scene.session(process=None, state=SessionState.STOPPED, stop=LIMIT)
    stop = Stop(reason=R.RATE_LIMIT, confidence=0.99, resume="same_session", retry_at=NOON + HOUR)
    scene.stops.ended(kept, stop, mid_turn=False, has_tmux=True, exit_code=1)
    assert scene.notes("stop")[-1].data["ended_by"] == "unknown"
    assert scene.verdicts() == ["wait"]


def test_after_a_users_exit_the_project_is_left_alone_for_a_while_also_by_the_next_daemon(
    scene: Scene,
) -> None:
    left = scene.session("left", process=None)
    exit = Stop(reason=R.USER_EXIT, confidence=0.9, ended_by="user")
    scene.stops.ended(left, exit, mid_turn=False, has_tmux=True, exit_code=0)
    assert scene.notes()[-1].data["why"] == wake.NOT_RESUMING
    scene.again()
    scene.crash("other")
    assert "user_exit_grace_s" in scene.notes()[-1].data["why"]
    scene.pass_to(NOON + 601)
    assert scene.resumed == ["other"]


def test_a_session_that_was_rescued_meanwhile_is_left_to_its_run(scene: Scene) -> None:
    stop = Stop(reason=R.RATE_LIMIT, confidence=0.99, resume="same_session", retry_at=NOON + HOUR)
    for name in ("rescued", "alone"):
        kept = scene.session(name, process=None, state=SessionState.STOPPED, stop=LIMIT)
        scene.stops.ended(kept, stop, mid_turn=False, has_tmux=True, exit_code=1)
    origin = Origin(agent="claude", session_id="rescued", path="/rescued.jsonl", stop=stop)
    run = Run(
        id="run-1", task="x", agent="codex", cwd="/p", created_at=NOON, policy=Policy(),
        origin=origin,
    )  # fmt: skip
    with open_store() as store:
        store.create(run)
    scene.pass_to(NOON + 2 * HOUR)
    assert scene.resumed == ["alone"]
    why = [n.data["why"] for n in scene.notes() if "rescued" in str(n)][-1]
    assert "belongs to a segue run" in why


# At the prompt


def test_one_stop_is_noted_once_however_often_it_is_seen(scene: Scene) -> None:
    for _ in range(3):
        scene.limit(last_at=NOON - 1)
    assert len(scene.notes("stop")) == 1
    # Records that come before the user's next words look like the same stop, later.
    scene.limit(last_at=NOON + 0.1)
    scene.clock.at += AGAIN_S / 2
    scene.stops.went_on(scene.session().session)
    scene.pass_to(NOON + 5)
    assert len(scene.notes("stop")) == 1
    assert scene.verdicts() == ["wait", "over"]


def test_the_same_stop_once_more_is_a_new_one_if_it_stays(scene: Scene) -> None:
    scene.limit(last_at=NOON - 1)
    kept = scene.limit(last_at=NOON + 0.1)
    assert len(scene.notes("stop")) == 1
    scene.pass_to(NOON + AGAIN_S + 0.1)
    assert len(scene.notes("stop")) == 2
    assert scene.stops.pending["claude", "s"].ending.at == kept.session.last_at


def test_an_agent_that_is_still_at_it_has_not_stopped(scene: Scene) -> None:
    """Such as one that compacts by itself, because its window was full."""
    full = StopSeen(R.CONTEXT_EXHAUSTED, 0.99, None, "too long")
    scene.typist.screen = Screen("busy")
    scene.limit(stop=full, state=SessionState.WAITING_FOR_USER)
    scene.pass_to(NOON + 5)
    assert scene.notes("stop") == []
    scene.typist.screen = Screen("idle")
    scene.pass_to(NOON + 6)
    assert [note.data["reason"] for note in scene.notes("stop")] == ["context_exhausted"]
    assert scene.carried[0][1].prompt == "handoff"


def test_the_agents_own_continuing_is_stood_by_for_and_taken_over_only_if_it_did_not_come(
    scene: Scene,
) -> None:
    scene.typist.screen = Screen("idle", continues_at="1:00pm")
    scene.limit()
    assert scene.verdicts() == ["stand_by"]
    scene.typist.screen = Screen("idle")  # what it says then is another line
    scene.pass_to(NOON + HOUR + 119)
    assert scene.resumed == []
    scene.pass_to(NOON + HOUR + 121)
    assert [(v.place, v.prompt) for _, v in scene.carried] == [("pane", "continue")]


def test_an_agent_that_continued_by_itself_is_not_told_to(scene: Scene) -> None:
    scene.typist.screen = Screen("idle", continues_at="1:00pm")
    scene.limit()
    scene.clock.at = NOON + HOUR + 30
    scene.stops.went_on(scene.session().session)
    scene.pass_to(NOON + DAY)
    assert scene.resumed == []
    assert scene.verdicts() == ["stand_by", "over"]


def test_a_screen_that_says_so_late_is_believed(scene: Scene) -> None:
    scene.limit()
    assert scene.verdicts() == ["wait"]
    scene.typist.screen = Screen("idle", continues_at="1:00pm")
    scene.pass_to(NOON + HOUR + 10)
    assert scene.resumed == []
    assert scene.verdicts() == ["wait", "stand_by"]


# What the user wants


def test_a_weekly_limit_is_asked_about_and_the_users_yes_continues_also_over_a_restart(
    scene: Scene,
) -> None:
    week = StopSeen(R.RATE_LIMIT, 0.99, NOON + 3 * DAY, "weekly")
    limits = {"seven_day": LimitSeen(100.0, NOON + 3 * DAY, rejected=True)}
    kept = scene.limit(stop=week, limits=limits)
    assert scene.verdicts() == ["ask"]
    assert "50,000 tokens" in scene.said[-1]
    assert [kind for kind, _ in scene.told] == ["stop", "needs_you"]
    scene.again()
    kept = scene.limit(stop=week, limits=limits, last_at=kept.session.last_at)
    assert scene.told == []  # of one stop, the user is told once
    said = scene.stops.say_yes(kept.session, NOON + 4 * DAY)
    assert "wait" in said
    scene.again()
    scene.limit(stop=week, limits=limits, last_at=kept.session.last_at)
    scene.pass_to(NOON + 3 * DAY + 6)
    assert scene.resumed == ["s"]


def test_a_yes_goes_before_doubt(scene: Scene) -> None:
    kept = scene.session(process=None)
    kept.shell_line = "$"
    unsure = Stop(reason=R.CRASH, confidence=0.7, resume="same_session")
    scene.stops.ended(kept, unsure, mid_turn=True, has_tmux=True)
    assert scene.verdicts() == ["ask"]
    scene.stops.say_yes(kept.session, NOON + DAY)
    assert scene.resumed == ["s"]


def test_quiet_hours_are_waited_for(scene: Scene) -> None:
    scene.rules.given["quiet_hours"] = "11:00-15:00"
    scene.crash()
    assert scene.notes()[-1].data["why"] == "quiet hours"
    scene.pass_to(NOON + 3 * HOUR)
    assert scene.resumed == ["s"]


def test_no_more_of_a_window_is_used_without_the_user_than_they_want(scene: Scene) -> None:
    scene.rules.given["max_unattended"] = 0.5
    scene.crash(limits={"five_hour": LimitSeen(40.0, NOON + HOUR)})
    scene.stops.carried(scene.carried[0][0], "")
    # It works, and uses more and more: it is let be, but its user is told, once.
    for used in (45.0, 60.0, 70.0):
        limits = {"five_hour": LimitSeen(used, NOON + HOUR)}
        scene.stops.went_on(scene.session(limits=limits).session)
    assert scene.verdicts() == ["resume", "resumed", "rest"]
    assert [title for kind, title in scene.told if kind == "needs_you"] != []
    scene.clock.at += 60
    scene.crash(limits={"five_hour": LimitSeen(70.0, NOON + HOUR)})
    scene.pass_to(NOON + 300)
    assert scene.verdicts()[-1] == "ask"
    assert "max_unattended" in scene.notes()[-1].data["why"]
    assert scene.resumed == ["s"]


def test_a_session_is_resumed_so_often_and_then_its_user_is_asked(scene: Scene) -> None:
    scene.rules.given["max_resumes"] = 3
    for _ in range(4):
        scene.crash(reading=Reading(input_tokens=9, at=scene.clock.at))
        scene.pass_to(scene.clock.at + 600)
        if scene.stops.pending:
            break
        scene.clock.at += 1
    for pending, _ in scene.carried:
        assert pending.resumes <= 3
    while len(scene.carried) < 3:  # each after a longer wait than the one before
        scene.stops.carried(scene.carried[-1][0], "")
        scene.clock.at += 1
        scene.crash(reading=Reading(input_tokens=9, at=scene.clock.at))
        scene.pass_to(scene.clock.at + 600)
    scene.stops.carried(scene.carried[-1][0], "")
    scene.clock.at += 1
    scene.crash(reading=Reading(input_tokens=9, at=scene.clock.at))
    assert "max_resumes" in scene.notes()[-1].data["why"]
    # The user's own words begin the count anew, told by a hook or by the session's records.
    scene.stops.went_on(scene.session().session)
    scene.stops.user_spoke(scene.session().session)
    scene.crash(reading=Reading(input_tokens=9, at=scene.clock.at))
    assert scene.verdicts()[-1] in ("resume", "wait")


def test_a_session_that_ended_without_a_reply_is_not_resumed_again(scene: Scene) -> None:
    scene.crash()
    scene.stops.carried(scene.carried[0][0], "")
    scene.clock.at += 5
    scene.crash(reading=Reading(input_tokens=50_000, at=NOON - 1))
    assert "without a reply" in scene.notes()[-1].data["why"]
    scene.pass_to(NOON + DAY)
    assert scene.resumed == ["s"]


def test_a_runs_session_is_left_alone(scene: Scene) -> None:
    kept = scene.session()
    kept.in_run = True
    scene.limit()
    assert scene.verdicts() == ["leave"]


def test_what_is_no_more_on_disk_is_not_resumed(scene: Scene) -> None:
    scene.limit()
    kept = scene.tracked["claude", "s"]
    stop = Stop(reason=R.CRASH, confidence=0.9, resume="same_session")
    os.unlink(kept.session.path)
    kept.session = msgspec.structs.replace(kept.session, process=None)
    scene.stops.ended(kept, stop, mid_turn=True, has_tmux=True, exit_code=-9)
    assert "file is gone" in scene.notes()[-1].data["why"]


# Many at once


def test_of_many_that_wait_together_one_goes_first_and_then_one_by_one(scene: Scene) -> None:
    names = [f"s{n}" for n in range(5)]
    for name in names:
        scene.limit(name)
    scene.pass_to(NOON + HOUR + 6)
    assert scene.resumed == ["s0"]
    scene.stops.carried(scene.carried[0][0], "")
    scene.pass_to(NOON + HOUR + 60)
    assert scene.resumed == ["s0"]  # until that one has replied
    reading = Reading(input_tokens=60_000, at=scene.clock.at)
    scene.stops.went_on(scene.session("s0", reading=reading).session)
    at: list[float] = []
    while len(scene.resumed) < 5:
        scene.pass_to(scene.clock.at + 1)
        if len(scene.carried) > 1 + len(at):
            at.append(scene.clock.at)
            pending = scene.carried[-1][0]
            scene.stops.carried(pending, "")
            name = pending.ending.session_id
            reading = Reading(input_tokens=60_000, at=scene.clock.at + 0.5)
            scene.stops.went_on(scene.session(name, reading=reading).session)
        assert scene.clock.at < NOON + 2 * HOUR
    assert all(later - one >= 10 for one, later in pairwise(at))


def test_one_that_never_replies_does_not_hold_the_others_up_for_ever(scene: Scene) -> None:
    for name in ("a", "b"):
        scene.limit(name)
    scene.pass_to(NOON + HOUR + 6)
    scene.stops.carried(scene.carried[0][0], "")
    scene.pass_to(NOON + HOUR + 400)
    assert scene.resumed == ["a", "b"]


# What the next daemon knows


def test_a_daemon_that_is_killed_while_it_waits_continues_waiting(scene: Scene) -> None:
    kept = scene.limit()
    assert scene.verdicts() == ["wait"]
    scene.again()
    scene.limit(last_at=kept.session.last_at)
    assert (len(scene.notes("stop")), scene.verdicts()) == (1, ["wait"])
    scene.pass_to(NOON + HOUR + 4)
    assert scene.resumed == []
    scene.pass_to(NOON + HOUR + 6)
    assert scene.resumed == ["s"]


def test_a_daemon_that_is_killed_while_it_resumes_does_not_do_it_twice(scene: Scene) -> None:
    scene.crash()
    assert scene.resumed == ["s"]
    scene.again()
    scene.clock.at += 10
    scene.stops.tick(scene.clock.at)
    assert scene.resumed == ["s"]
    # It came up: an agent is behind it, or its records show that there was one.
    cases: list[dict[str, Any]] = [{}, {"process": None, "last_at": NOON + 20}]
    for fields in cases:
        scene.session(**fields)
        scene.pass_to(NOON + 60)
        assert scene.resumed == ["s"]
        assert scene.verdicts()[-1] == "leave"
        scene.again()


def test_what_was_not_carried_out_when_the_daemon_was_killed_is_done_by_the_next(
    scene: Scene,
) -> None:
    scene.crash()
    scene.again()
    kept = scene.tracked["claude", "s"]
    assert (kept.seat, kept.shell_line) == (None, None)
    scene.pass_to(NOON + 60)
    assert scene.resumed == ["s", "s"]
    pending = scene.carried[-1][0]
    assert (pending.tracked.seat, pending.tracked.shell_line) == (SEAT, "$")
    assert pending.ending.stop is not None


def test_one_that_was_begun_and_did_not_live_is_asked_about(scene: Scene) -> None:
    scene.crash()
    scene.log.append("back", at=NOON, data={"id": scene.carried[0][0].id, "pid": 5})
    scene.again()
    scene.pass_to(NOON + 60)
    assert scene.resumed == ["s"]
    assert "without a reply" in scene.notes()[-1].data["why"]


def test_what_was_forgotten_meanwhile_is_still_resumed(scene: Scene) -> None:
    kept = scene.session(process=None)
    kept.shell_line = "$"
    stop = Stop(reason=R.RATE_LIMIT, confidence=0.99, resume="same_session", retry_at=NOON + HOUR)
    scene.stops.ended(kept, stop, mid_turn=False, has_tmux=True, exit_code=1)
    scene.tracked.clear()
    scene.again()
    scene.pass_to(NOON + HOUR + 6)
    assert [p.tracked.session.path for p, _ in scene.carried] == [kept.session.path]


def test_an_agent_that_was_gone_when_the_daemon_came_back_is_asked_about(scene: Scene) -> None:
    kept = scene.limit()
    scene.again()
    scene.tracked["claude", "s"].session = msgspec.structs.replace(
        kept.session, process=None, state=SessionState.STOPPED
    )
    scene.pass_to(NOON + HOUR + 6)
    assert scene.resumed == []
    assert scene.notes()[-1].data["why"] == "its agent ended while no daemon was running"
    scene.stops.say_yes(kept.session, NOON + DAY)
    assert [v.place for _, v in scene.carried] == ["headless"]


def test_an_agent_that_went_with_the_machine_is_resumed_after_its_limit(scene: Scene) -> None:
    kept = scene.limit()
    scene.clock.booted_at = NOON + 60
    scene.clock.at = NOON + 90
    scene.again()
    scene.tracked["claude", "s"].session = msgspec.structs.replace(
        kept.session, process=None, state=SessionState.STOPPED
    )
    scene.pass_to(NOON + HOUR + 6)
    assert [v.place for _, v in scene.carried] == ["headless"]


def test_a_note_that_cannot_be_read_is_passed_over(scene: Scene) -> None:
    for data in ({"id": "w-1", "verdict": "wait"}, {"id": "w-2", "verdict": "wait", "ending": 1}):
        scene.log.append("wake", at=NOON, agent="claude", session_id="s", data=data)
    scene.again()
    assert scene.stops.pending == {}


# What could not be done


def test_what_could_not_be_typed_just_now_is_tried_again_and_at_last_asked_about(
    scene: Scene,
) -> None:
    scene.limit()
    scene.pass_to(NOON + HOUR + 6)
    for tries in range(1, MAX_RETRIES):
        assert len(scene.carried) == tries
        scene.stops.carried(scene.carried[-1][0], "draft", retry=True)
        assert scene.stops.pending["claude", "s"].resumes == 0
        scene.pass_to(scene.clock.at + RETRY_S + 10)
    scene.stops.carried(scene.carried[-1][0], "draft", retry=True)
    scene.pass_to(scene.clock.at + DAY)
    assert len(scene.carried) == MAX_RETRIES
    assert isinstance(scene.stops.pending["claude", "s"].verdict, wake.AskUser)
    scene.again()  # and that is not forgotten
    assert isinstance(scene.stops.pending["claude", "s"].verdict, wake.AskUser)


def relaying_to(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.rules.given |= {"relay": True, "relay_after_s": 600.0}
    found = [SimpleNamespace(agent="codex")]
    monkeypatch.setattr(relaying, "successors", lambda *_: iter(found))
    scene.limit()
    assert scene.verdicts() == ["relay"]


def test_a_relay_that_is_in_the_way_of_the_user_is_tried_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    relaying_to(scene, monkeypatch)
    scene.stops.carried(scene.carried[0][0], "draft", retry=True)
    scene.pass_to(scene.clock.at + RETRY_S + 10)
    assert [type(verdict) for _, verdict in scene.carried] == [wake.Relay, wake.Relay]
    scene.stops.carried(scene.carried[1][0], "no such program")
    scene.pass_to(scene.clock.at + 100)
    assert len(scene.carried) == 2  # not a third time: it waits for its own reset
    assert isinstance(scene.stops.pending["claude", "s"].verdict, wake.WaitForReset)


def test_while_the_agent_that_took_over_is_kept_by_something_nobody_else_does_its_work(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    relaying_to(scene, monkeypatch)
    scene.stops.carried(scene.carried[0][0], "nothing was seen of it in 90 s", is_begun=True)
    assert scene.told[-1][0] == "needs_you"
    assert "codex was started in a new window" in scene.told[-1][1]
    scene.pass_to(NOON + DAY)
    assert len(scene.carried) == 1


def test_a_cancelled_one_is_forgotten(scene: Scene) -> None:
    kept = scene.limit()
    assert "will not be resumed" in scene.stops.cancel(kept.session)
    assert scene.stops.cancel(kept.session) == ""
    scene.again()
    scene.pass_to(NOON + DAY)
    assert scene.resumed == []


def test_the_price_of_waking_is_written_down_and_said(scene: Scene) -> None:
    scene.limit()
    assert scene.notes()[-1].data["price"] == {"tokens": 50_000, "cold": True, "usd": None}
    scene.pass_to(NOON + HOUR + 6)
    assert scene.notes()[-1].data["price"]["cold"] is True
    assert "50,000 tokens with a cold cache" in scene.said[-1]
    scene.stops.carried(scene.carried[0][0], "")
    assert "50,000 tokens with a cold cache" in scene.told[-1][1]


def test_a_session_whose_agent_went_on_to_another_one_is_no_longer_waited_for(scene: Scene) -> None:
    """After `/clear` the process lives on, in another session: no end of it is ever seen. Found by
    a simulated daemon, which looked for its agent every second for days."""
    kept = scene.limit()
    kept.session = msgspec.structs.replace(kept.session, process=None, state=SessionState.STOPPED)
    scene.session("cleared")  # of the same process
    scene.pass_to(NOON + 2 * HOUR)
    assert scene.verdicts()[-1] == "leave"
    assert scene.stops.next_at() is None
    assert scene.resumed == []
    scene.again()
    assert not scene.stops.pending
