"""Adaptive marks for sessions in terminals, as the daemon learns them in a simulated world."""

import pytest

from segue.core.policy import Policy
from segue.core.sessions.forecasts.adapting import HIGHEST, LOWEST
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
    learned = AdaptiveMarks(world.daemon.watch.world).share("claude")  # as a new daemon reads it
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
