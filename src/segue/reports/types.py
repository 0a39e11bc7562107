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
    """A wait as it was: `until` is when it had ended."""

    since: float
    until: float
    why: str


class CheckReport(Struct, frozen=True, kw_only=True):
    """How the user's check came out last."""

    ok: bool
    exit_code: int
    tries: int


class Step(Struct, frozen=True, kw_only=True):
    """Something that was decided, and why."""

    at: float
    decision: str
    reason: str


class RunReport(Struct, frozen=True, kw_only=True):
    """One run, from its log, its folder and its snapshots."""

    run: Run
    is_driven: bool  # a living segue drives it
    answer: str
    ended_at: float | None  # None: it has not ended
    last_at: float
    legs: list[StoredLeg]
    stops: dict[int, Stop]  # by leg
    waits: list[WaitReport]
    handoffs: list[float]  # when the next session was begun
    check: CheckReport | None
    spend: list[SpendReport]
    steps: list[Step]
    files: list[FileDiff] | None  # None: there are no snapshots to tell
    commits: list[tuple[str, str]]
    note: str = ""  # why something is missing

    @property
    def worked_s(self) -> float:
        """Of its legs."""
        return self.run.active_s

    @property
    def waited_s(self) -> float:
        """Of its waits, as long as they lasted."""
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
    """Everything that happened in some time, or one run."""

    since: float | None  # None: one run, whenever it was
    until: float
    runs: list[RunReport]
    watched: list[WatchedReport]
    notes: list[str] = []
