"""A run's log as dated lines."""

from datetime import datetime, tzinfo

from segue.core.runs import machine
from segue.core.runs.types import Created, Finish, Run, RunStep
from segue.runs.journal import decisions_of
from segue.runs.store import projection
from segue.runs.store.port import Entry
from segue.views.run.block import clean
from segue.views.run.story import news


def dated(at: float, tz: tzinfo) -> str:
    """A time in the form with which lines of a log begin."""
    try:
        return datetime.fromtimestamp(at, tz).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "?"


class Teller:
    """Makes lines from a log. It needs every entry, in order from the first one on."""

    def __init__(self, tz: tzinfo) -> None:
        self.tz = tz
        self.run: Run | None = None

    def lines(self, entry: Entry) -> list[str]:
        """The dated lines of the next entry; most have none."""
        try:
            text = self._entry_lines(entry)
        except (ValueError, KeyError):  # written by a newer segue
            self.run, text = None, [f"{clean(entry.kind)}: {clean(entry.state)}"]
        return [f"{dated(entry.at, self.tz)}  {line}" for line in text]

    def _entry_lines(self, entry: Entry) -> list[str]:
        if entry.seq == 1:
            self.run = projection.first_run(entry)
        before = self.run
        if before is None:
            return [f"{clean(entry.kind)}: {clean(entry.state)}"]
        fact = Created() if entry.seq == 1 else projection.fact_of(entry)
        after = machine.step(before, fact, at=entry.at, draw=entry.draw or 0.0).run
        self.run = after
        # The decisions of that time: another version might decide differently.
        decisions = tuple(decisions_of(entry.decisions))
        text = news(before, fact, RunStep(after, decisions), now=entry.at, tz=self.tz)
        if entry.seq == 1:
            text = [f"{before.id}: {clean(before.agent)} in {clean(before.cwd)}", *text]
        for decision in decisions:
            if isinstance(decision, Finish):
                text.append(f"{decision.state.value}: {clean(decision.outcome.what)}")
        return text
