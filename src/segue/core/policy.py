"""The user's rules. Every number that segue acts on has its default here, and only here."""

from operator import attrgetter
from typing import Literal

from msgspec import Struct, field

from segue.core.resumes.quiet_hours import parse as parse_quiet_hours
from segue.core.sessions.windows import DEFAULT_WINDOW_TOKENS
from segue.core.stops.reasons import Resume, StopReason
from segue.core.stops.types import Stop

RelayReason = Literal["rate_limit", "billing", "auth", "overloaded"]
"""After which stops another agent of the list may continue."""
Place = Literal["pane", "window", "headless"]
"""Where a session that stopped continues: its own pane, a new window of tmux, no terminal at
all."""


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Thresholds, waits and what follows a stop. Marks are fractions of the window, inclusive."""

    name: str = "graduated"

    # Zones and the two marks between which a handoff waits for a natural boundary.
    monitor_mark: float = 0.30
    warning_mark: float = 0.50
    critical_mark: float = 0.70
    soft_mark: float = 0.80
    hard_mark: float = 0.85
    warning_task_tokens: int = 5_000
    critical_task_tokens: int = 2_000
    reserve_tokens: int = 10_000  # what writing a checkpoint needs
    adaptive: bool = False  # how far ahead is looked follows how the last handoffs went

    # Reading a stop (docs/classify.md).
    tail_lines: int = 100
    context_risk_mark: float = 0.80
    default_window_tokens: int = DEFAULT_WINDOW_TOKENS
    known_windows: dict[str, int] = field(default_factory=dict)  # added to ours, and before it
    exit_patterns: tuple[str, ...] = ()  # more words by which this user leaves a session

    # What follows it.
    min_confidence: float = 0.8
    resume_user_exits: bool = False
    user_exit_grace_s: float = 600.0

    # Waits.
    unknown_reset_wait_s: float = 30.0  # doubled each time
    unknown_reset_max_s: float = 300.0
    wait_jitter: float = 0.10  # of an unknown one, to both sides
    reset_jitter_min_s: float = 5.0  # added to a known one, so that runs continue one by one
    reset_jitter_max_s: float = 60.0
    max_limited_s: float = 8 * 86_400.0  # in a row; the longest limit of a plan is a week
    overload_tries: int = 8

    # Relay: what another agent of the list takes over, and when the first one has it back.
    relay_after_s: float = 600.0  # a limit that lasts longer
    relay_on: tuple[RelayReason, ...] = ("rate_limit", "billing", "auth", "overloaded")
    relay_back: Literal["handoff", "never"] = "handoff"

    # Limits on one leg and on the whole run. None: there is none.
    stall_s: float = 330.0  # clients are silent for up to 301 s
    tool_stall_s: float = 1_800.0  # while a tool runs
    grace_s: float = 3.0  # from SIGTERM to SIGKILL
    checkpoint_s: float = 120.0
    checkpoint_tokens: int = 4_000
    same_failures: int = 3
    idle_legs: int = 3
    same_calls: int = 200
    max_idle_replies: int | None = 100  # in a leg, without progress
    max_idle_tokens: int | None = 20_000_000
    max_idle_compactions: int | None = 3  # the agent's own
    max_output_bytes: int | None = 2 << 30  # of one leg: an agent that prints forever fills a disk
    max_checks: int = 3
    recall_after_compaction: bool = True  # tells the agent what its own summary left out
    snapshots: bool = True  # of the working tree, under refs/segue/
    snapshot_every_s: float = 300.0  # at boundaries, besides the ends of legs
    snapshot_days: float = 30.0  # older ones are dropped when a run begins
    max_legs: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    max_active_s: float | None = None
    max_wall_s: float | None = None

    # Watching agents that are run by hand. Off: segue observes and reminds.
    auto_handoff: bool = False
    auto_resume: bool = False
    relay: bool = False  # with auto_resume: a limited session continues another agent
    zone_slack: float = 0.02  # a zone is left only this far below its mark
    remind_every_s: float = 600.0  # in critical
    gate: Literal["off", "warn", "block"] = "warn"
    handoff_folder: str = ".segue/handoffs"  # inside the project
    handoff_wait_s: float = 300.0  # for the document
    handoffs_at_once: int = 1
    busy_wait_s: float = 120.0  # at the hard mark, for the turn to end, before it is interrupted
    draft_wait_s: float = 300.0  # for the user's draft to be sent, before it is kept and restored
    resume_places: tuple[Place, ...] = ("pane", "window", "headless")
    max_resumes: int = 5  # of one session, between two words of the user's
    stand_by_s: float = 120.0  # after a reset, for the agent's own auto-continue
    resumes_at_once: int = 1  # the first proves that it works, then the rest one by one
    resume_gap_s: float = 30.0
    quiet_hours: str = ""  # "23:00-07:00": nothing is resumed then; local time
    max_unattended: float | None = None  # of a new limit window (0.5: half), without the user
    weekly_needs_yes: bool = True
    notify: tuple[str, ...] = ()  # Apprise URLs; never from a project's file
    notify_terse: bool = True  # no paths, no text of sessions

    def __post_init__(self) -> None:
        """Refuses invalid values here, by name, so that they do not surface at three in the
        morning."""
        global _valid
        if self in _valid:
            return
        marks = (*self.marks, self.soft_mark, self.context_risk_mark)
        if not all(mark > 0 for mark in marks) or list(self.marks) != sorted(self.marks):
            raise ValueError("marks must be above 0, in the order monitor, warning, critical, hard")
        if self.tail_lines < 1 or self.default_window_tokens < 1:
            raise ValueError("tail_lines and default_window_tokens must be at least 1")
        if self.reserve_tokens < 0:
            raise ValueError("reserve_tokens must not be negative")
        if any(window < 1 for window in self.known_windows.values()):
            raise ValueError("known_windows must be at least 1")
        if min(self.user_exit_grace_s, self.min_confidence) < 0:
            raise ValueError("waits and min_confidence must not be negative")
        for least, names, values_of in _MIN_VALUES:
            for name, value in zip(names, values_of(self), strict=True):
                if value is not None and not value >= least:  # nan is not
                    raise ValueError(f"{name} must be at least {least:g}, not {value:g}")
        if self.wait_jitter >= 1:
            raise ValueError("wait_jitter must be below 1")
        if self.unknown_reset_max_s < self.unknown_reset_wait_s:
            raise ValueError("unknown_reset_max_s must not be below unknown_reset_wait_s")
        if self.reset_jitter_max_s < self.reset_jitter_min_s:
            raise ValueError("reset_jitter_max_s must not be below reset_jitter_min_s")
        if self.zone_slack >= 1:
            raise ValueError("zone_slack must be below 1: it is a fraction of the window")
        if self.max_unattended is not None and not 0 <= self.max_unattended <= 1:
            raise ValueError("max_unattended must be from 0 to 1: half of a window is 0.5")
        if not self.handoff_folder.strip() or "\0" in self.handoff_folder:
            raise ValueError("handoff_folder must name a folder")
        parse_quiet_hours(self.quiet_hours)
        _valid = (self, *_valid[:3])

    @property
    def marks(self) -> tuple[float, float, float, float]:
        """Where monitor, warning, critical and handoff begin."""
        return (self.monitor_mark, self.warning_mark, self.critical_mark, self.hard_mark)

    def resume_after(self, reason: StopReason) -> Resume:
        """How work continues after such a stop, before confidence is considered."""
        if reason is StopReason.USER_EXIT and self.resume_user_exits:
            return "same_session"
        return reason.resume

    def is_sure(self, stop: Stop) -> bool:
        """Whether a verdict is certain enough to act on without asking."""
        return stop.confidence >= self.min_confidence

    def may_resume_alone(self, stop: Stop) -> bool:
        """Whether work continues after this stop without asking."""
        return stop.resume != "none" and self.is_sure(stop)


_valid: tuple[Policy, ...] = ()
"""The last ones that were found valid: every run that is read from the log brings its policy, and
they are almost always the same."""

# A second is the least that is waited: whoever tries again at once, tries forever.
_MINIMA: dict[float, tuple[str, ...]] = {
    0: (
        "wait_jitter",
        "reset_jitter_min_s",
        "max_limited_s",
        "overload_tries",
        "relay_after_s",
        "grace_s",
        "max_checks",
        "max_tokens",
        "max_cost_usd",
        "zone_slack",
        "busy_wait_s",
        "draft_wait_s",
        "max_resumes",
        "stand_by_s",
        "resume_gap_s",
        "snapshot_every_s",
        "snapshot_days",
    ),
    1: (
        "unknown_reset_wait_s",
        "stall_s",
        "tool_stall_s",
        "checkpoint_s",
        "checkpoint_tokens",
        "same_failures",
        "idle_legs",
        "same_calls",
        "max_idle_replies",
        "max_idle_tokens",
        "max_idle_compactions",
        "max_output_bytes",
        "max_legs",
        "max_active_s",
        "max_wall_s",
        "remind_every_s",
        "handoff_wait_s",
        "handoffs_at_once",
        "resumes_at_once",
    ),
}
_MIN_VALUES = tuple((least, names, attrgetter(*names)) for least, names in _MINIMA.items())

PRESETS: dict[str, Policy] = {
    "graduated": Policy(),
    "continuous": Policy(name="continuous", soft_mark=0.90, hard_mark=0.90),
    "early": Policy(name="early", soft_mark=0.65, hard_mark=0.70, critical_mark=0.60),
}
