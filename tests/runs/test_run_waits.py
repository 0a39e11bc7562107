"""A wait of hours, with a clock by hand: it survives the end of segue and a clock that is set, and
is over at the reset, not before."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from support.runs.stepping import AT, new_run, stop

from segue.core.policy import Policy
from segue.core.runs.machine import step
from segue.core.runs.types import (
    AnyFact,
    Created,
    LegEnded,
    LegStarted,
    Replied,
    Run,
    RunState,
    StartLeg,
)
from segue.core.stops.reasons import StopReason
from segue.errors import StateError, in_words
from segue.runs import folders
from segue.runs.clock import Clock
from segue.runs.executor import Executor
from segue.runs.journal import Journal
from segue.runs.loop import Loop
from segue.runs.store.leases import me
from segue.runs.store.port import Store, run_key
from segue.runs.store.sqlite import SqliteStore

HOURS = 5 * 3600.0


class HandClock(Clock):
    """Time passes when somebody waits. `set_by` moves the wall clock, as a user would, after so
    many waits."""

    def __init__(self, now: float = AT) -> None:
        self.wall, self.boot = now, 1_000.0
        self.waits = 0
        self.killed_after: int | None = None
        self.set_by: dict[int, float] = {}

    def now(self) -> float:
        return self.wall

    def elapsed(self) -> float:
        return self.boot

    def awake(self) -> float:
        return self.boot

    def wait(self, files: Sequence[int], timeout_s: float) -> None:
        assert timeout_s >= 0
        self.waits += 1
        passed = max(timeout_s, 0.001) * 60 if timeout_s >= 1 else max(timeout_s, 0.001)
        self.wall += passed
        self.boot += passed
        self.wall += self.set_by.pop(self.waits, 0.0)
        if self.waits == self.killed_after:
            raise Killed


class Killed(Exception):  # noqa: N818
    """As by kill -9: nothing more is done."""


class Begun(Exception):  # noqa: N818
    """A leg was started: that is what the tests wait for."""


class NoCrew:
    """Starts nothing."""

    def is_begun(self, number: int) -> bool:
        return True

    def start(self, run: Run, decision: StartLeg, clock: Clock) -> Any:
        raise Begun

    def files(self, follower: object) -> list[int]:
        return []

    def drain(self) -> None:
        pass


def limited(store: Store, policy: Policy, **told: Any) -> tuple[Run, float]:
    """A run that waits; when it was limited."""
    run = new_run(policy)
    facts: list[AnyFact] = [
        Created(),
        LegStarted(leg=1, session_id="s"),
        Replied(leg=1, acted=True),
        LegEnded(leg=1, stop=stop(StopReason.RATE_LIMIT, **told), replied=True, progressed=True),
    ]
    lease = store.acquire(run_key(run.id), me(), AT)
    at = AT
    for fact in facts:
        at += 1
        after = step(run, fact, at=at, draw=0.5)
        if isinstance(fact, Created):
            store.create(run, after=after.run, at=at, draw=0.5, decisions=after.decisions)
        else:
            store.append(
                after.run, fact, at=at, draw=0.5, decisions=after.decisions, epoch=lease.epoch
            )
        run = after.run
    assert run.state is RunState.WAITING
    store.release(lease)
    return run, at


def loop_over(store: Store, clock: HandClock) -> Loop:
    """As a new process would."""
    (run,) = store.runs()
    lease = store.acquire(run_key(run.id), me(), clock.now(), seize=True)
    journal = Journal(store, run, lease, clock=clock.now, draw=lambda: 0.5)
    return Loop(journal, cast("Executor", NoCrew()), clock=clock)


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "runs.db")


POLICY = Policy(reset_jitter_min_s=5, reset_jitter_max_s=60)


def begins_at(store: Store, clock: HandClock) -> float:
    with pytest.raises(Begun):
        loop_over(store, clock).go()
    return clock.now()


def test_a_wait_of_hours_ends_at_the_reset_plus_jitter_and_not_before(store: SqliteStore) -> None:
    reset = AT + HOURS
    limited(store, POLICY, retry_at=reset)
    at = begins_at(store, HandClock(AT + 4))
    assert reset + 5 <= at <= reset + 60 + 60


def test_a_wait_of_hours_survives_restarts_of_segue(store: SqliteStore) -> None:
    reset = AT + HOURS
    limited(store, POLICY, retry_at=reset)
    clock = HandClock(AT + 4)
    for _ in range(3):  # killed three times, with half an hour of nobody in between
        clock.killed_after = clock.waits + 20
        with pytest.raises(Killed):
            loop_over(store, clock).go()
        clock.wall += 1800
        clock.boot += 1800
    assert clock.now() < reset
    at = begins_at(store, clock)
    assert reset + 5 <= at <= reset + 60 + 60


def test_a_wait_that_ended_while_no_segue_ran_is_over_at_once(store: SqliteStore) -> None:
    limited(store, POLICY, retry_at=AT + HOURS)
    clock = HandClock(AT + 2 * HOURS)
    assert begins_at(store, clock) == AT + 2 * HOURS


@pytest.mark.parametrize("set_by_s", [-7200.0, 7200.0])
def test_a_stated_reset_is_reached_by_the_wall_clock_however_it_is_set(
    store: SqliteStore, set_by_s: float
) -> None:
    reset = AT + HOURS
    limited(store, POLICY, retry_at=reset)
    clock = HandClock(AT + 4)
    clock.set_by = {30: set_by_s}
    assert reset + 5 <= begins_at(store, clock) <= reset + 60 + 60


@pytest.mark.parametrize("set_by_s", [-7200.0, 7200.0])
def test_a_guessed_wait_is_not_moved_by_a_clock_that_is_set(
    store: SqliteStore, set_by_s: float
) -> None:
    policy = Policy(unknown_reset_wait_s=300, unknown_reset_max_s=300, wait_jitter=0.0)
    limited(store, policy)
    clock = HandClock(AT + 4)
    clock.set_by = {2: set_by_s}
    began = clock.elapsed()
    begins_at(store, clock)
    assert 299 <= clock.elapsed() - began <= 300 + 61


def test_runs_that_wait_for_one_reset_do_not_wake_in_the_same_second(tmp_path: Path) -> None:
    reset = AT + HOURS
    seconds = set()
    for number in range(20):
        run = new_run(POLICY)
        for fact in (
            Created(),
            LegStarted(leg=1, session_id="s"),
            Replied(leg=1, acted=True),
            LegEnded(
                leg=1,
                stop=stop(StopReason.RATE_LIMIT, retry_at=reset),
                replied=True,
                progressed=True,
            ),
        ):
            run = step(run, fact, at=AT, draw=number / 20).run
        assert run.wait is not None
        seconds.add(int(run.wait.until))
    assert len(seconds) == 20


def test_a_clock_set_forward_by_hours_makes_no_working_leg_stall() -> None:
    from segue.core.runs.timers import deadlines
    from segue.runs.legs.trackers.activity import LegTimes

    clock = HandClock(AT)
    times = LegTimes(clock, AT)
    run = new_run(
        Policy(max_active_s=600), is_live=True, leg=1, leg_since=AT, state=RunState.WORKING
    )
    clock.wall += 8 * 3600
    soon = deadlines(run, times.activity(clock.now()))
    assert {deadline.timer for deadline in soon} == {"stall", "active"}
    assert all(deadline.at > clock.now() + 300 for deadline in soon)
    clock.boot += 400
    assert any(
        deadline.timer == "stall" and deadline.at < clock.now()
        for deadline in deadlines(run, times.activity(clock.now()))
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="has no full disk to write to")
def test_a_file_that_a_full_disk_does_not_take_is_named_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "handoff.md"
    (tmp_path / f".handoff.md.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        folders.write(file, "The work so far.")
    assert in_words(caught.value) == f"{file}: No space left on device; free some space"
    assert not list(tmp_path.glob("*handoff.md*"))


def test_a_full_disk_in_the_middle_of_a_run_is_one_line_that_says_how_to_continue(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(store, POLICY, retry_at=AT + HOURS)

    def full(self: NoCrew) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(NoCrew, "drain", full)
    with pytest.raises(StateError, match=r"No space left on device; .* segue resume run-1"):
        loop_over(store, HandClock(AT + 4)).go()
