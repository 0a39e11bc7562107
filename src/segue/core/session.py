"""A session as segue shows it: what its records told, and what follows from that now."""

from enum import StrEnum

from msgspec import Struct, field

from segue.core.forecast import Forecast
from segue.core.growth import Growth
from segue.core.reading import Reading, Zone
from segue.core.remark import LimitSeen
from segue.core.spend import Spend
from segue.core.stop import StopReason


class State(StrEnum):
    """Whose move it is."""

    WORKING = "working"
    WAITING_FOR_USER = "waiting_for_user"
    WAITING_FOR_LIMIT = "waiting_for_limit"
    STOPPED = "stopped"  # no agent is behind it, and its records say why
    GONE = "gone"  # no agent is behind it, and nothing says why

    @property
    def is_live(self) -> bool:
        """Whether an agent is behind the session."""
        return self in (State.WORKING, State.WAITING_FOR_USER, State.WAITING_FOR_LIMIT)


class StopSeen(Struct, frozen=True):
    """The verdict on the last turn, as far as the session file tells."""

    reason: StopReason
    confidence: float
    retry_at: float | None = None
    why: str = ""


class Look(Struct, kw_only=True):
    """What the end of a session's file tells. Nothing in it depends on the time or on settings,
    so it holds as long as the file does not change: the index keeps it."""

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
    awaits_user: bool = False  # the turn is over, or a permission or an answer is asked for
    notes: tuple[str, ...] = ()


class Hold(Struct, frozen=True, kw_only=True):
    """A session that a process keeps open or locked. It may keep more than the one it works on."""

    session_id: str = ""
    path: str = ""  # of the session's file, if that is what it keeps open
    since: float = 0.0


class Process(Struct, frozen=True, kw_only=True):
    """A running agent, told from others by pid and start time."""

    agent: str
    pid: int
    started_at: float
    start_ticks: int = 0  # the same as the kernel counts it: does not move when the clock is set
    cwd: str = ""  # "" if it says nothing about the session
    session_id: str = ""  # if it says which one it works on
    holds: tuple[Hold, ...] = ()
    database: str = ""  # with sessions in it, that it keeps open
    serves: bool = False  # for others, any number of sessions, and keeps those that nobody uses
    certain: bool = False  # says or shows its session; else that is guessed by folder and time
    status: str = ""  # "busy", "idle" or "waiting", where the agent says so itself
    waiting_for: str = ""  # in its own words


class Session(Struct, frozen=True, kw_only=True):
    """One conversation of an agent, now."""

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
    growth: Growth | None = None
    limits: dict[str, LimitSeen] = field(default_factory=dict)
    state: State = State.GONE
    stop: StopSeen | None = None
    process: Process | None = None
    children: int = 0
    notes: tuple[str, ...] = ()


def state_of(look: Look, process: Process | None, now: float) -> State:
    """What a session is doing, from its last records and the process behind it."""
    stop = look.stop
    if process is None:
        known = stop is not None and stop.reason is not StopReason.UNKNOWN
        return State.STOPPED if known else State.GONE
    limited = stop is not None and stop.reason is StopReason.RATE_LIMIT
    if limited and stop is not None and (stop.retry_at is None or stop.retry_at > now):
        return State.WAITING_FOR_LIMIT
    if process.status == "busy":
        return State.WORKING
    if process.status in ("idle", "waiting") or look.awaits_user:
        return State.WAITING_FOR_USER
    # An error that ended the turn leaves an interactive agent at its prompt.
    ended = stop is not None and stop.reason is not StopReason.UNKNOWN
    return State.WAITING_FOR_USER if ended else State.WORKING
