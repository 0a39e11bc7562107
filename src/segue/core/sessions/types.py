"""A session as segue shows it: what its records say, and what follows from them now."""

from enum import StrEnum
from typing import Literal

from msgspec import Struct, field

from segue.core.policy import Policy
from segue.core.sessions.forecasts.forecast import Fit, Forecast, fits
from segue.core.sessions.forecasts.growth import Growth
from segue.core.sessions.reading import Reading, Zone
from segue.core.sessions.remarks import LimitSeen
from segue.core.sessions.spend import Spend
from segue.core.stops.reasons import StopReason


class SessionState(StrEnum):
    """What a session is doing, or waits for."""

    WORKING = "working"
    WAITING_FOR_USER = "waiting_for_user"
    WAITING_FOR_LIMIT = "waiting_for_limit"
    STOPPED = "stopped"  # no agent has it open, and its records say why
    GONE = "gone"  # no agent has it open, and nothing says why

    @property
    def is_live(self) -> bool:
        """Whether an agent has the session open."""
        return self in (
            SessionState.WORKING,
            SessionState.WAITING_FOR_USER,
            SessionState.WAITING_FOR_LIMIT,
        )


class StopSeen(Struct, frozen=True):
    """The verdict on the last turn, from the session file alone."""

    reason: StopReason
    confidence: float
    retry_at: float | None = None
    why: str = ""
    retry_source: Literal["header", "record", "text"] | None = None


class Look(Struct, kw_only=True):
    """What the end of a session's file says. Nothing in it depends on the time or on settings,
    so it is valid as long as the file does not change: the index stores it."""

    session_id: str = ""
    cwd: str = ""
    model: str = ""
    started_at: float | None = None
    last_at: float | None = None
    used_tokens: int | None = None
    parts: Spend | None = None
    used_at: float | None = None
    told_window_tokens: int | None = None
    accepted_tokens: int = 0
    compacted: bool = False  # and nothing was said since
    limits: dict[str, LimitSeen] = field(default_factory=dict)
    growth: Growth | None = None
    stop: StopSeen | None = None
    awaits_user: bool = False  # the turn has ended, or a permission or an answer is asked for
    is_cut: bool = False  # its file ends in the middle of a record
    notes: tuple[str, ...] = ()
    unreadable: str = ""  # why nothing more is known about it


class Hold(Struct, frozen=True, kw_only=True):
    """A session that a process holds open or locked. It may hold more than the one it works on."""

    session_id: str = ""
    path: str = ""  # of the session's file, if that is what it holds open
    since: float = 0.0


class Process(Struct, frozen=True, kw_only=True):
    """A running agent, identified by pid and start time."""

    agent: str
    pid: int
    started_at: float
    start_ticks: int = 0  # its start time in kernel ticks: unaffected when the clock is set
    cwd: str = ""  # "" if its folder says nothing about the session
    session_id: str = ""  # if it says which one it works on
    holds: tuple[Hold, ...] = ()
    database: str = ""  # with sessions in it, that it keeps open
    goes_on: bool = False  # was started to continue the newest session of its folder
    serves: bool = False  # a server of any number of sessions; holds them even if nobody uses them
    certain: bool = False  # it shows its session; otherwise that is guessed by folder and time
    status: str = ""  # "busy", "idle" or "waiting", where the agent says so itself
    waiting_for: str = ""  # in its own words


class RunSeen(Struct, frozen=True, kw_only=True):
    """The run that a session belongs to."""

    id: str
    state: str
    is_final: bool = False
    is_driven: bool = False  # a living segue process drives it
    interrupted: bool = False
    waits_until: float | None = None


class Session(Struct, frozen=True, kw_only=True):
    """One conversation of an agent, in its current state."""

    agent: str
    session_id: str
    path: str
    cwd: str = ""
    model: str = ""
    started_at: float | None = None
    last_at: float | None = None
    reading: Reading | None = None
    zone: Zone | None = None
    forecast: Forecast | None = None
    policy: Policy = Policy()  # the policy that applies to it (system/config/policies)
    enforced_tokens: int | None = None  # the size at which its agent itself compacts or refuses
    growth: Growth | None = None
    limits: dict[str, LimitSeen] = field(default_factory=dict)
    state: SessionState = SessionState.GONE
    stop: StopSeen | None = None
    process: Process | None = None
    children: int = 0
    notes: tuple[str, ...] = ()
    unreadable: str = ""  # why nothing more is known of it
    run: RunSeen | None = None
    handed_over_to: str = ""  # the session that continues its work

    @property
    def is_over(self) -> bool:
        """Whether nothing more will happen in it: another session continues its work, its run
        has ended, or no agent has it open. A session that its user opened again has not
        ended."""
        if self.run is None or self.run.is_final:
            return not self.state.is_live
        if self.handed_over_to:
            return True  # its last process may still be ending
        return not (self.run.is_driven or self.state.is_live)

    @property
    def ahead(self) -> Forecast | None:
        """The forecast to show: nothing for a session that has ended."""
        return None if self.is_over else self.forecast


def fit_in(session: Session, tokens: int, reserve_tokens: int | None = None) -> Fit | None:
    """Whether a task of this size may start in the session; None if the session's size is unknown.
    `reserve_tokens`: the room that is kept for a checkpoint, in place of the policy's."""
    if session.reading is None:
        return None
    reserve = session.policy.reserve_tokens if reserve_tokens is None else reserve_tokens
    return fits(
        tokens,
        session.reading,
        session.policy,
        reserve_tokens=reserve,
        enforced_at_tokens=session.enforced_tokens,
    )


def state_of(look: Look, process: Process | None, now: float) -> SessionState:
    """What a session is doing, from its last records and its process."""
    stop = look.stop
    if process is None:
        known = stop is not None and stop.reason is not StopReason.UNKNOWN
        return SessionState.STOPPED if known else SessionState.GONE
    limited = stop is not None and stop.reason is StopReason.RATE_LIMIT
    if limited and stop is not None and (stop.retry_at is None or stop.retry_at > now):
        return SessionState.WAITING_FOR_LIMIT
    if process.status == "busy":
        return SessionState.WORKING
    if process.status in ("idle", "waiting") or look.awaits_user:
        return SessionState.WAITING_FOR_USER
    # An error that ended the turn leaves an interactive agent at its prompt.
    ended = stop is not None and stop.reason is not StopReason.UNKNOWN
    return SessionState.WAITING_FOR_USER if ended else SessionState.WORKING
