"""The content of a report. Plain data: `views/report` turns it into text, Markdown, HTML and
JSON."""

from typing import Literal

from msgspec import Struct

from segue.core.runs.types import Run
from segue.core.stops.types import Stop
from segue.runs.results import SpendReport
from segue.runs.store.port import StoredLeg
from segue.system.git.snapshots import FileDiff

WatchedWhat = Literal[
    "handed over", "handoff failed", "resumed", "relayed", "left alone", "needs you",
]  # fmt: skip


class WaitReport(Struct, frozen=True, kw_only=True):
    """A wait of a run. `until`: when it ended or, if it has not, the time of the report."""

    since: float
    until: float
    why: str


class CheckReport(Struct, frozen=True, kw_only=True):
    """The last result of the user's check, and how often it ran."""

    ok: bool
    exit_code: int
    tries: int


class Step(Struct, frozen=True, kw_only=True):
    """A decision of the run, and its reason."""

    at: float
    decision: str
    reason: str


class RunReport(Struct, frozen=True, kw_only=True):
    """One run, from its log, its folder and its snapshots."""

    run: Run
    is_driven: bool  # whether a live process drives it
    answer: str
    ended_at: float | None  # None: unfinished
    last_at: float
    legs: list[StoredLeg]
    stops: dict[int, Stop]  # by leg
    waits: list[WaitReport]
    handoffs: list[float]  # when each next session started
    check: CheckReport | None
    spend: list[SpendReport]
    steps: list[Step]
    files: list[FileDiff] | None  # None: unknown; `note` says why
    commits: list[tuple[str, str]]
    note: str = ""  # why something is missing

    @property
    def worked_s(self) -> float:
        """The time that its legs worked."""
        return self.run.active_s

    @property
    def waited_s(self) -> float:
        """The time that it waited, in all."""
        return sum(max(0.0, wait.until - wait.since) for wait in self.waits)


class WatchedReport(Struct, frozen=True, kw_only=True):
    """What the daemon did about a session, or why it left it alone."""

    at: float
    agent: str
    session_id: str
    project: str
    what: WatchedWhat
    why: str


class Report(Struct, frozen=True, kw_only=True):
    """Everything that happened in a period, or one run."""

    since: float | None  # None: one run, from its start
    until: float
    runs: list[RunReport]
    watched: list[WatchedReport]
    notes: list[str] = []
