"""The result of a play, in a form that can be printed, stored and compared."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from segue.core.sessions.forecasts.tuning import LATE
from segue.core.stops.reasons import StopReason
from segue.drill.scenarios.types import Expectation


class PlayOutcome(Struct, frozen=True, kw_only=True):
    """One agent in one scenario, without segue or with it."""

    agent: str
    version: str
    scenario: str
    played_on: str  # the date in ISO format
    with_segue: bool = False
    steps: int  # 0: the scenario has its own turns instead
    done: list[int]  # the steps in the order in which they were done
    lost: list[int]
    repeated: list[int]
    out_of_order: list[int]
    touched: list[str] = []  # files that must not be touched, and were
    reason: str  # why it ended: as `segue classify` says, or `segue run`
    confidence: float
    exit_code: int | None  # the exit code of the agent or of segue
    requests: int
    legs: int
    handoffs: int = 0
    waits: int = 0
    asked_at_percent: list[float] = []
    """How full the window was each time that a request for a checkpoint reached the model."""
    seconds: float
    expects: Expectation
    unfired: list[str] = []  # rules and events of the scenario that never took effect
    swept: int = 0  # processes that the agent left behind
    folder: str = ""  # if it was kept

    @property
    def asked_in_time(self) -> int:
        """How many requests for a checkpoint were read before the window was too full."""
        return sum(percent <= LATE * 100 for percent in self.asked_at_percent)

    @property
    def is_whole(self) -> bool:
        """Whether no step is lost, repeated or out of order, and no forbidden file was touched.
        Steps that were never begun are not lost."""
        return not (self.repeated or self.out_of_order or self.lost or self.touched)

    @property
    def is_done(self) -> bool:
        """Whether every step was done, once and in order."""
        return self.is_whole and len(self.done) == self.steps

    @property
    def is_as_expected(self) -> bool:
        """Whether the play ended as the scenario expects; with segue, also with the exit code that
        belongs to the reason."""
        if self.with_segue and self.exit_code != _exit_code(self.reason):
            return False
        if self.expects.ends == "done":
            return self.is_done and self.reason == "completed"
        return self.is_whole and self.reason == self.expects.reason

    @property
    def in_words(self) -> str:
        """The result of the job, for people: the first thing that is wrong, or how far it came."""
        if self.repeated:
            return f"repeated step {self.repeated[0]}" + _more(self.repeated)
        if self.lost:
            return f"lost step {self.lost[0]}" + _more(self.lost)
        if self.out_of_order:
            return f"step {self.out_of_order[0]} out of order"
        if self.touched:
            return f"touched {self.touched[0]} after {len(self.done)} of {self.steps}"
        if self.is_done:
            return f"all {self.steps} steps" if self.steps else "all that was asked"
        return f"stopped after {len(self.done)} of {self.steps}"

    @property
    def way(self) -> str:
        """What segue did to get there; "" if one leg was enough."""
        counted = (
            (self.legs if self.legs > 1 else 0, "leg"),
            (self.handoffs, "handoff"),
            (self.waits, "wait"),
        )
        return ", ".join(f"{n} {word}{'s' if n > 1 else ''}" for n, word in counted if n)


class Requests(NamedTuple):
    """The requests for a checkpoint in all plays, and how many of them were read in time. If a
    handoff has no such request, segue writes the checkpoint from what it knows."""

    handoffs: int
    requests: int
    in_time: int
    lowest: float = 0.0  # percent of the window
    highest: float = 0.0

    @property
    def in_words(self) -> str:
        """The figures in one sentence; "" if there was no request."""
        if not self.requests:
            return ""
        is_one = self.lowest == self.highest
        between = f"{self.lowest:g}" if is_one else f"{self.lowest:g} to {self.highest:g}"
        return (
            f"{self.in_time} of {self.requests} requests for a checkpoint were read at {LATE:.0%}"
            f" of the window or less ({between}%)"
        )


def requests_of(outcomes: Iterable[PlayOutcome | None]) -> Requests:
    """The requests for a checkpoint in the plays with segue; None stands for a play without an
    outcome."""
    ended = [outcome for outcome in outcomes if outcome is not None and outcome.with_segue]
    percents = [percent for outcome in ended for percent in outcome.asked_at_percent]
    return Requests(
        handoffs=sum(outcome.handoffs for outcome in ended),
        requests=len(percents),
        in_time=sum(outcome.asked_in_time for outcome in ended),
        lowest=min(percents, default=0.0),
        highest=max(percents, default=0.0),
    )


def _more(steps: list[int]) -> str:
    return f" and {len(steps) - 1} more" if len(steps) > 1 else ""


def _exit_code(reason: str) -> int:
    """The exit code of `segue run` for a reason; 1 for one that is not a stop reason."""
    return StopReason(reason).facts.exit_code if reason in set(StopReason) else 1
