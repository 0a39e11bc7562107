"""How a follower recognises the end of a turn."""

from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from segue.agents.contracts.drive import Over, StreamWatch
from segue.agents.contracts.profile import Profile
from segue.agents.custom.drive import Custom, drive_of
from segue.core.policy import Policy
from segue.core.runs.progress import Progress
from segue.core.runs.types import Run
from segue.core.stops.events import ToolCall
from segue.runs.clock import Clock
from segue.runs.legs.follower import LegFollower
from segue.runs.legs.leg import Leg
from segue.runs.legs.stream import TurnEnd
from segue.runs.legs.trackers.answer import AnswerTracker
from segue.sessions.windows import Windows


class Script(StreamWatch):
    """Says what it is told to."""

    def over(self, record: dict[str, Any]) -> Over:
        said: Over = record["over"]
        return said


def after(*said: Over, asked: bool = False) -> tuple[TurnEnd, list[float | None]]:
    """A turn of which the records say this, and since when it may have been over after each."""
    found, since = TurnEnd(Script()), []
    for each in said:
        found.feed({"over": each}, 7.0, is_asked=asked)
        since.append(found.maybe_since)
    return found, since


def test_what_an_agent_adds_after_the_end_of_its_turn_does_not_undo_the_end() -> None:
    """opencode writes the failed message once more, after it said that it is idle."""
    found, _ = after("no", "yes", "no", "no")
    assert found.is_over


def test_a_turn_that_may_be_over_is_not_if_more_comes() -> None:
    found, since = after("maybe", "no")
    assert since == [7.0, None]
    assert not found.is_over


@pytest.mark.parametrize("said", ["yes", "maybe"])
def test_asked_for_a_checkpoint_the_turn_before_the_answer_is_not_the_end(said: Over) -> None:
    found, since = after(said, "no", asked=True)
    assert since == [7.0, None], "it is, only if nothing comes for a while"
    assert not found.is_over


def test_words_before_a_tool_call_are_not_a_checkpoint() -> None:
    """opencode tells the request back at once, and the reply under way comes before its answer."""
    found = AnswerTracker("key", 4_000)
    found.ask()
    assert found.answer is not None
    found.say("Step 7.")
    found.call(ToolCall(name="bash", command="sh job/step 7"))
    assert found.answer.text == ""
    assert not found.works_on
    found.say("Step 7.")  # and its words may come after the call
    found.drop_work()
    assert found.answer.text == ""


class Slow(Clock):
    """Every time it is asked, a second has passed."""

    def __init__(self) -> None:
        self.seconds = count()

    def awake(self) -> float:
        return float(next(self.seconds))


def flooded(folder: Path) -> tuple[LegFollower, Run, int]:
    """A leg that printed more than can be read in a moment; how many lines that are."""
    folder.mkdir()
    lines = 1_000_000
    (folder / "stdout").write_bytes(b"ok ok ok\n" * lines)
    run = Run(id="r", task="t", agent="mine", cwd=str(folder), created_at=0.0, policy=Policy())
    found = LegFollower(
        Leg(folder),
        1,
        drive=drive_of("mine", Custom(command=("cat",))),
        profile=Profile(name="mine", knows=lambda record: False, parse=lambda records: iter(())),
        windows=cast("Windows", None),
        run=run,
        session_id="",
        progress=Progress(),
        env={},
        clock=Slow(),
    )
    return found, run, lines


def test_a_look_at_more_than_can_be_read_in_a_moment_is_short(tmp_path: Path) -> None:
    """So that signals are heard between two looks, however fast an agent prints."""
    found, run, lines = flooded(tmp_path / "leg")
    found.look(run, 0.0)
    assert found.has_more
    assert 0 < found.live.lines < lines / 10


@pytest.mark.parametrize("is_ending", [True, False])
def test_only_of_an_agent_that_segue_ends_the_midst_of_a_flood_is_passed_over(
    is_ending: bool, tmp_path: Path
) -> None:
    found, run, lines = flooded(tmp_path / "leg")
    found.is_ending = is_ending
    found.finish(run, 0.0)
    assert (found.live.lines < lines / 2) == is_ending
    assert found.work.text == "ok ok ok"
