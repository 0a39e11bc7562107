"""Adaptive marks for sessions in terminals, as the daemon learns them in a simulated world."""

from unittest import mock

import pytest

from segue.core.policy import Policy
from segue.core.sessions.forecasts.adapting import HIGHEST, LOWEST
from segue.core.sessions.forecasts.growth import Growth
from segue.core.sessions.reading import Reading
from segue.core.sessions.types import Process, Session
from segue.testing.simulation.world import Plan, World
from segue.watch.handoffs.adaptive import NOTE, AdaptiveMarks


@pytest.mark.parametrize("adaptive", [True, False])
def test_the_daemon_learns_from_its_handoffs_within_bounds_if_it_is_asked_to(
    adaptive: bool,
) -> None:
    policy = Policy(adaptive=adaptive, auto_handoff=True, auto_resume=True)
    world = World(Plan(seed="a3", sessions=3, days=6.0, policy=policy))
    result = world.play()
    assert (result.rule, result.figures.terminal_handoffs > 0) == ("", True)
    notes = world.daemon.log.since(0, (NOTE,))
    assert bool(notes) is adaptive
    assert all(LOWEST <= note.data["share"] <= HIGHEST for note in notes)
    assert world.daemon.watch is not None
    learned = AdaptiveMarks(world.daemon.watch.state).share("claude")  # as a new daemon reads it
    assert learned == (notes[-1].data["share"] if notes else None)


def test_what_the_daemon_has_learned_decides_when_it_hands_over() -> None:
    """A new daemon that looks ahead for nearly all turns asks earlier than one for most of them."""
    policy = Policy(adaptive=True, auto_handoff=True, auto_resume=True)
    began: dict[float, list[int]] = {}
    for share in (HIGHEST, LOWEST):
        world = World(Plan(seed="a3", sessions=3, days=6.0, policy=policy))
        world.daemon.log.append(NOTE, at=0.0, agent="claude", data={"share": share})
        assert world.play().rule == ""
        notes = world.daemon.log.since(0, ("handoff",), 100_000)
        cycles = [n.data["cycle"] for n in notes if n.data["fact"]["fact"] == "planned"]
        began[share] = [c["used_tokens"] for c in cycles if not c["by_user"]][:3]
    assert len(began[LOWEST]) == 3
    assert sum(began[HIGHEST]) < sum(began[LOWEST]) - 10_000


class Seen:
    """A session that replies every two seconds, and what the daemon makes of it."""

    def __init__(self) -> None:
        world = World(Plan(seed="late", sessions=1, days=1.0))
        world.play()
        assert world.daemon.watch is not None
        self.state = world.daemon.watch.state
        self.marks = AdaptiveMarks(self.state)
        self.now = 2_000_000_000.0
        self.at = self.now
        self.process: Process | None = Process(agent="claude", pid=1, started_at=self.now)

    def reply(self, late_s: float) -> bool:
        """Its next reply, seen so long after it was written; whether the one after would pass."""
        self.at += 2.0
        self.now = self.at + late_s
        with mock.patch.object(self.state.clock, "now", return_value=self.now):
            found = self.marks.applied(
                Session(
                    agent="claude",
                    session_id="s",
                    path="/s",
                    reading=Reading(input_tokens=120_000, at=self.at),
                    growth=Growth(large_reply_tokens=20_000, reply_s=2.0),
                    process=self.process,
                )
            )
        return found.forecast is not None and found.forecast.next_passes


def test_a_daemon_that_sees_replies_late_looks_further_ahead_and_forgets_it_slowly() -> None:
    seen = Seen()
    assert [seen.reply(0.1), seen.reply(1.0)] == [False, False]  # as usual
    assert [seen.reply(3.0), seen.reply(0.1)] == [True, True]
    assert [seen.reply(0.1) for _ in range(60)][-1] is False


def test_what_was_written_before_or_while_the_machine_slept_was_not_seen_late() -> None:
    seen = Seen()
    assert [seen.reply(9.0), seen.reply(3_600.0), seen.reply(0.1)] == [False] * 3
    seen.process = None
    assert [seen.reply(9.0), seen.reply(9.0)] == [False, False]
