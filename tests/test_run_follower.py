"""What a follower makes of the end of a turn."""

from typing import Any

import pytest

from segue.agents.drive import Over, Watch
from segue.runner.follower import Answer, Follower


class Script(Watch):
    """Says what it is told to."""

    def over(self, record: dict[str, Any]) -> Over:
        said: Over = record["over"]
        return said


def follower(*, asked: bool = False) -> Follower:
    found = Follower.__new__(Follower)
    found.watch, found.answer = Script(), Answer() if asked else None
    found.turn_is_over, found._maybe_since, found._awake = False, None, 7.0
    return found


def test_what_an_agent_adds_after_the_end_of_its_turn_does_not_undo_the_end() -> None:
    """opencode writes the failed message once more, after it said that it is idle."""
    found = follower()
    for said in ("no", "yes", "no", "no"):
        found._over({"over": said})
    assert found.turn_is_over


def test_a_turn_that_may_be_over_is_not_if_more_comes() -> None:
    found = follower()
    since = []
    for said in ("maybe", "no"):
        found._over({"over": said})
        since.append(found._maybe_since)
    assert since == [7.0, None]
    assert not found.turn_is_over


@pytest.mark.parametrize("said", ["yes", "maybe"])
def test_asked_for_a_checkpoint_the_turn_before_the_answer_is_not_the_end(said: Over) -> None:
    found = follower(asked=True)
    since = []
    for each in (said, "no"):
        found._over({"over": each})
        since.append(found._maybe_since)
    assert since == [7.0, None], "it is, only if nothing comes for a while"
    assert not found.turn_is_over
