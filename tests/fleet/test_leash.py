"""Agents end on a machine that has lost contact with the fleet, whatever else of segue is alive."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from segue.fleet.leash import Leash, clock
from segue.runs.legs.leg import Leg, Spec

LONG_S = 60.0
SLEEPER = ("sh", "-c", "sleep 600 & wait")


@pytest.fixture
def leash(tmp_path: Path) -> Leash:
    return Leash(str(tmp_path))


@pytest.fixture
def leg(tmp_path: Path) -> Iterator[Leg]:
    made = Leg(tmp_path / "leg")
    yield made
    made.command("kill", "kill")
    made.wait(LONG_S)


def start(leg: Leg, leash: Leash) -> None:
    env = {"PATH": "/usr/bin:/bin"}
    leg.start(Spec(argv=SLEEPER, cwd="/", leash=leash.current()), env)


def test_an_agent_is_killed_once_nobody_renews_its_leash(leg: Leg, leash: Leash) -> None:
    leash.renew(clock(), 2.0)
    start(leg, leash)
    assert leg.status().state == "running"
    ended = leg.wait(LONG_S).exit
    assert ended is not None
    assert (ended.exit_code, ended.ended_by_command) == (-9, "leash")
    assert [each.argv[0] for each in ended.swept] == ["sleep"]


def test_an_agent_lives_as_long_as_its_leash_is_renewed(leg: Leg, leash: Leash) -> None:
    leash.renew(clock(), LONG_S)
    start(leg, leash)
    era = leash.current()
    leash.renew(clock(), LONG_S)
    assert leash.current() == era
    assert leg.wait(1.2).state == "running"  # two looks of the keeper's


def test_a_leash_that_ran_out_is_not_the_same_when_it_is_renewed(leg: Leg, leash: Leash) -> None:
    leash.renew(clock(), LONG_S)
    start(leg, leash)
    era = leash.current()
    leash.renew(clock() - 2 * LONG_S, 0.001)  # the machine slept; another may have its tasks
    until = time.monotonic() + LONG_S
    while leash.current() is not None:
        assert time.monotonic() < until
    leash.renew(clock(), LONG_S)
    assert leash.current() not in (None, era)
    ended = leg.wait(LONG_S).exit
    assert ended is not None
    assert ended.ended_by_command == "leash"


def test_nothing_is_started_on_a_leash_that_nobody_holds(leg: Leg, leash: Leash) -> None:
    assert leash.current() is None
    leash.renew(clock(), LONG_S)
    spec = Spec(argv=SLEEPER, cwd="/", leash=(str(leash.path), "another"))
    status = leg.start(spec, {"PATH": "/usr/bin:/bin"})
    assert status.exit is not None
    assert status.exit.error == "the fleet lost this machine before it started"
    assert status.agent_pid == 0
