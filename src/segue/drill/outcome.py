"""What came of a play, in a form that is printed, kept and compared."""

from msgspec import Struct

from segue.drill.scenario import Expectation


class Outcome(Struct, frozen=True, kw_only=True):
    """One agent in one scenario."""

    agent: str
    version: str
    scenario: str
    played_on: str  # the day, in ISO's form
    steps: int  # 0: the scenario has turns of its own instead
    done: list[int]  # the steps in the order in which they were done
    lost: list[int]
    repeated: list[int]
    out_of_order: list[int]
    reason: str  # of the last stop, as `segue classify` says
    confidence: float
    exit_code: int | None
    requests: int
    legs: int
    seconds: float
    expects: Expectation
    unfired: list[str] = []  # rules and events of the scenario that never came about
    swept: int = 0  # processes that the agent left behind
    folder: str = ""  # if it was kept

    @property
    def is_whole(self) -> bool:
        """Nothing is lost but what was not begun, nothing repeated, all in order."""
        return not (self.repeated or self.out_of_order or self.lost)

    @property
    def is_done(self) -> bool:
        """Every step, once and in order."""
        return self.is_whole and len(self.done) == self.steps

    @property
    def held(self) -> bool:
        """Whether it ended as well as it could."""
        if self.expects.ends == "done":
            return self.is_done and self.reason == "completed"
        return self.is_whole and self.reason == self.expects.reason

    @property
    def in_words(self) -> str:
        """For a table."""
        if self.repeated:
            return f"repeated step {self.repeated[0]}" + _more(self.repeated)
        if self.lost:
            return f"lost step {self.lost[0]}" + _more(self.lost)
        if self.out_of_order:
            return f"step {self.out_of_order[0]} out of order"
        if self.is_done:
            return f"all {self.steps} steps" if self.steps else "all that was asked"
        return f"stopped after {len(self.done)} of {self.steps}"


def _more(steps: list[int]) -> str:
    return f" and {len(steps) - 1} more" if len(steps) > 1 else ""
