"""Decides what to do about a stopped session that segue observes from outside.

Nothing here looks at a screen. A banner that vanished or scrolled away proves nothing; only the
session's own records show that it continued. And no decision is final: when a wait ends, the same
question is asked again with what is known by then.

All in one file, because the rules apply in one fixed order.
"""

from math import isfinite
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from segue.core.accounts import Answer
from segue.core.policy import Place, Policy
from segue.core.resumes.quiet_hours import Local, ends_at
from segue.core.resumes.quiet_hours import parse as parse_quiet_hours
from segue.core.runs.waits import backoff_s, wait_after
from segue.core.sessions.remarks import LimitSeen
from segue.core.stops.reasons import StopReason, of_nature
from segue.core.stops.types import EndedBy, RateLimitInfo, Reset, Stop

NOT_RESUMING = "Session ended by user, not auto-resuming"
CACHE_S = 3_600.0
"""The longest time for which a provider caches what a session sent: after that, everything is paid
for again."""

LOOK_AGAIN_S = 60.0
FOLLOW_S = 2.0
"""How often to check whether the session that goes first after a limit has its reply."""
_DAY_S = 86_400.0
_LEFT_BY_HOOK = frozenset({"clear", "resume"})  # the user switched to another session
_ENDED_BY_HOOK = frozenset({"prompt_input_exit", "logout"})
_LIMITED = of_nature("passing")
_NEVER_LOADED = of_nature("broken")
_GENERAL_SCOPES = frozenset({"five_hour", "seven_day"})
_LONG_SCOPES = ("seven_day", "week", "month")
_SOURCES = {"header": 1, "record": 1, "text": 0}


class Price(Struct, frozen=True, kw_only=True):
    """The cost of the first request of a session that continues: everything again if the cache is
    cold."""

    tokens: int
    cold: bool
    usd: float | None = None

    @property
    def in_words(self) -> str:
        """The price for people."""
        cost = f", about ${self.usd:.2f}" if self.usd is not None else ""
        return f"{self.tokens:,} tokens {'with a cold cache' if self.cold else 'cached'}{cost}"


class StoppedSession(Struct, frozen=True, kw_only=True):
    """What is known about a session that stopped: its process is gone, or it is at its prompt."""

    agent: str
    session_id: str
    project: str = ""
    stop: Stop | None = None
    state: Literal["exited", "at_prompt"] = "exited"
    at: float  # when it stopped
    ended_by: EndedBy = "unknown"
    by_hook: str = ""  # the reason that the agent's own hook gave for its end

    in_run: bool = False  # it belongs to a `segue run`, which decides for itself
    is_own: bool = False  # segue itself runs inside this session
    is_open: bool = False  # another process has it open
    has_file: bool = True  # it is on disk: for an unknown id, agents start another session
    went_on: bool = False  # its records show a reply, or a message of the user's, after the stop
    replied: bool = True  # it has replied since it was last resumed
    mid_turn: bool = True  # it was interrupted; otherwise nothing was in progress
    is_subagent_only: bool = False  # a sub-agent was stopped, but not the main thread

    has_pane: bool = False
    pane_shell: bool = False  # a shell waits in its pane
    has_tmux: bool = False

    # agents that could take over now, in the user's order
    successors: tuple[str, ...] = field(default=(), name="others")

    # when the agent itself will continue, according to its own message
    native_continues_at: float | None = None
    can_cancel_native: bool = False  # segue can cancel the agent's plan to continue
    limit_scope: str = ""
    limits: dict[str, LimitSeen] = field(default_factory=dict)  # the newest that segue knows

    idle_s: float = 0.0  # of the session, when it stopped
    used_tokens: int = 0
    window_tokens: int = 0
    model: str = ""
    usd: float | None = None  # for reading everything again, if known


class ResumeHistory(Struct, frozen=True, kw_only=True):
    """What segue and the user did before, with this session and with others."""

    resumes: int = 0  # resumes of this session since the user's last message
    last_resume_at: float | None = None
    user_left_project_at: float | None = None
    yes_until: float | None = None  # how long the user's answer allows what segue asked about
    allowed: bool = False  # the user has allowed to resume after this very ending
    paused: bool = False
    waking_now: int = 0  # resumed sessions that have not replied yet
    proven: bool = False  # one of the sessions that waited together has replied
    last_wake_at: float | None = None  # the last resume of any session


class Leave(Struct, frozen=True, tag="leave"):
    """Do nothing."""

    why: str


class AskUser(Struct, frozen=True, tag="ask"):
    """Ask the user, once: only they may allow it."""

    why: str


class WaitForReset(Struct, frozen=True, tag="wait"):
    """Decide again at that time."""

    until: float
    why: str


class StandBy(Struct, frozen=True, tag="stand_by"):
    """The agent continues by itself; decide again at that time, if it did not."""

    until: float
    why: str


class Resume(Struct, frozen=True, tag="resume"):
    """Continue now. "resume": start the session's process again; "continue": type into the one that
    is at its prompt; "handoff": a new session, with a handoff that segue wrote."""

    place: Place
    prompt: Literal["resume", "continue", "handoff"]
    why: str
    price: Price | None = None


class Relay(Struct, frozen=True, tag="relay"):
    """Let another agent continue now, in a new window, with a handoff that segue wrote."""

    agent: str
    why: str


Verdict = Leave | AskUser | WaitForReset | StandBy | Resume | Relay


def decide(
    ending: StoppedSession,
    history: ResumeHistory,
    policy: Policy,
    *,
    now: float,
    local: Local,
    draw: float,
) -> Verdict:
    """Decides what to do about a stopped session. `draw`, from 0 to 1, spreads sessions that would
    resume at the same time; pass the same number each time that you ask about this ending.

    Never returns a `Resume` or `Relay` of a session that the user ended (unless
    `resume_user_exits`), in quiet hours, without `auto_resume`, or more than `max_resumes` times
    between two messages of the user. Never returns a `Resume` in another place while the session's
    process is still there, nor a `Relay` without `relay` or of a session that is not in tmux.
    """
    left = _left_alone(ending, policy)
    if left is not None:
        return left
    stop = ending.stop
    if stop is None or not policy.auto_resume:
        return Leave("auto_resume is off for this project")
    if not policy.is_sure(stop) and not history.allowed:
        return AskUser(f"{stop.reason.description}, but only {stop.confidence:.0%} sure of it")
    is_dead = not ending.replied and history.resumes > 0 and stop.reason in _NEVER_LOADED
    if is_dead and not history.allowed:
        return AskUser(f"it was resumed and ended without a reply ({stop.reason.description})")
    if history.resumes >= policy.max_resumes:
        return AskUser(f"resumed {history.resumes} times since your last prompt (max_resumes)")
    if history.paused:
        return WaitForReset(now + LOOK_AGAIN_S, "paused")
    stands_by = _native(ending, policy, now)
    if stands_by is not None and not ending.can_cancel_native:
        return stands_by  # nor is it relayed, because two agents would do the same work
    held = _limit(ending, stop, history, policy, now, draw)
    if held is not None and (agent := _relay_to(ending, stop, held, policy, now)):
        why = f"{stop.reason.description} for longer than relay_after_s: {agent} takes over"
        manners = _manners(history, policy, now=now, local=local, draw=draw)
        return manners or Relay(agent, why)
    if stands_by is not None:
        return stands_by
    if held is None:
        held = _manners(history, policy, now=now, local=local, draw=draw)
    if held is None and (why := unattended(ending.limits, history, policy, now=now)):
        held = AskUser(why)
    return held or _resume(ending, stop, policy, now)


def merge_reset(old: Reset | None, new: Reset | None) -> Reset | None:
    """The reset of a limit that is reported again: the old one, unless the new one comes from a
    better source, or from an equally good one and is earlier.

    Otherwise a banner that is read again and again would postpone the reset forever: "resets 7pm",
    read at 8pm, means tomorrow.
    """
    if new is None or new.at is None or not isfinite(new.at):
        return old
    if old is None or old.at is None:
        return new
    better = _SOURCES[new.source] - _SOURCES[old.source]
    return new if better > 0 or (better == 0 and new.at < old.at) else old


def reported_again(old: Stop, new: Stop) -> Stop:
    """The verdict on a stop that segue already waits for, when the agent reports it again. The same
    limit gets the reset that `merge_reset` chooses; another limit has its own reset."""
    limit = StopReason.RATE_LIMIT
    if old.reason is not limit or new.reason is not limit:
        return new
    scopes = {each.details.scope for each in (old, new) if isinstance(each.details, RateLimitInfo)}
    if len(scopes - {None}) > 1:
        return new
    new_reset = _stated(new)
    reset = merge_reset(_stated(old), new_reset)
    if reset is None or reset is new_reset:
        return new
    details = new.details
    if isinstance(details, RateLimitInfo):
        details = replace(details, retry_source=reset.source)
    return replace(new, retry_at=reset.at, retry_after_s=None, details=details)


def _stated(stop: Stop) -> Reset | None:
    """The reset that a stop states."""
    if stop.retry_at is None:
        return None
    source = stop.details.retry_source if isinstance(stop.details, RateLimitInfo) else None
    return Reset(at=stop.retry_at, source=source or "text")


def unattended(
    limits: dict[str, LimitSeen], history: ResumeHistory, policy: Policy, *, now: float
) -> str:
    """Why segue must not continue on its own: more of a limit is used than the user allows for
    unattended work. "" if it may. Call it also while a session works that segue has resumed."""
    if policy.max_unattended is None or _has_yes(history, now):
        return ""
    for scope, limit in limits.items():
        # it describes the previous window
        over = limit.resets_at is not None and limit.resets_at <= now
        if over or limit.used_percent is None:
            continue
        if limit.used_percent >= policy.max_unattended * 100:
            most = f"{policy.max_unattended:.0%} (max_unattended)"
            return f"{limit.used_percent:.0f}% of {scope} is used; unattended, the limit is {most}"
    return ""


def price_of(ending: StoppedSession, now: float) -> Price:
    """What the session's first request would cost if it continued at that time."""
    return Price(
        tokens=max(0, ending.used_tokens),
        cold=ending.idle_s + max(0.0, now - ending.at) >= CACHE_S,
        usd=ending.usd,
    )


def _left_alone(ending: StoppedSession, policy: Policy) -> Verdict | None:
    """The verdict on a session that segue leaves alone whatever the time and the limits are; None
    for others."""
    if ending.in_run:
        return Leave("it belongs to a segue run, which decides for itself")
    if ending.is_own:
        return Leave("segue itself runs in this session")
    if ending.by_hook in _LEFT_BY_HOOK:
        return Leave(NOT_RESUMING)
    if ended_by_user(ending) and not policy.resume_user_exits:
        return Leave(NOT_RESUMING)
    if ending.went_on:
        return Leave("it continued")
    stop = ending.stop
    if stop is None or stop.reason is StopReason.UNKNOWN:
        return Leave("nothing says why it stopped")
    if stop.reason is StopReason.NEEDS_USER:
        return AskUser(stop.remediation or stop.reason.description)
    if policy.resume_after(stop.reason) == "none":
        advice = f": {stop.remediation}" if stop.remediation else ""
        return Leave(f"{stop.reason.description}{advice}")
    if stop.reason in _NEVER_LOADED and not ending.mid_turn:
        return Leave(f"{stop.reason.description}, but nothing was under way")
    if ending.is_open and ending.state == "exited":
        return Leave("another process has it open")
    if not ending.has_file and ending.state == "exited":
        return Leave("its file is gone: the agent would begin another session in its place")
    return None


def ended_by_user(ending: StoppedSession) -> bool:
    """Whether anything says that the user ended the session."""
    if ending.ended_by == "user" or ending.by_hook in (_ENDED_BY_HOOK | _LEFT_BY_HOOK):
        return True
    stop = ending.stop
    return stop is not None and (stop.reason is StopReason.USER_EXIT or stop.ended_by == "user")


def _native(ending: StoppedSession, policy: Policy, now: float) -> StandBy | None:
    """Whether to wait for the agent to continue by itself, which only an agent does whose process
    is there and whose main thread stopped."""
    at = ending.native_continues_at
    if at is None or ending.state != "at_prompt" or ending.is_subagent_only:
        return None
    until = at + policy.stand_by_s
    return StandBy(until, "the agent says that it will continue by itself") if now < until else None


def _limit(
    ending: StoppedSession,
    stop: Stop,
    history: ResumeHistory,
    policy: Policy,
    now: float,
    draw: float,
) -> AskUser | WaitForReset | None:
    """The wait for a limit or an overload, or after an earlier resume that failed; None if it is
    over."""
    tries = history.resumes + 1
    if stop.reason not in _LIMITED:
        if not history.resumes or history.last_resume_at is None:
            return None
        until = ending.at + backoff_s(policy, history.resumes, draw)
        return (
            WaitForReset(until, "it was resumed before, so segue waits a while")
            if now < until
            else None
        )
    scope, reset_at = _rejecting(ending, now)
    if reset_at is not None:
        # Current knowledge takes precedence over the earlier message: other work may have used up
        # the limit since.
        stop = replace(stop, retry_at=max(reset_at, stop.retry_at or reset_at))
    wait = wait_after(stop, policy, at=ending.at, draw=draw, tries=tries)
    is_long = any(word in (scope or ending.limit_scope) for word in _LONG_SCOPES) or (
        wait.reset_at is not None and wait.reset_at - ending.at > _DAY_S
    )
    is_limit = stop.reason is StopReason.RATE_LIMIT
    if is_limit and is_long and policy.weekly_needs_yes and not _has_yes(history, now):
        return AskUser("a weekly limit: resuming after it needs your permission (weekly_needs_yes)")
    if wait.until - ending.at > policy.max_limited_s + policy.reset_jitter_max_s:
        return AskUser("its limit resets later than segue waits (max_limited_s)")
    why = f"{scope or ending.limit_scope or stop.reason.description}, until it resets"
    return WaitForReset(wait.until, why) if now < wait.until else None


def _relay_to(
    ending: StoppedSession, stop: Stop, held: AskUser | WaitForReset, policy: Policy, now: float
) -> str:
    """The agent that takes over a session whose limit lasts too long; "" if none may or can."""
    is_limit = stop.reason is StopReason.RATE_LIMIT and "rate_limit" in policy.relay_on
    in_tmux = ending.has_pane if ending.state == "at_prompt" else ending.has_tmux
    if not (policy.relay and is_limit and in_tmux):
        return ""
    if isinstance(held, WaitForReset) and held.until - now <= policy.relay_after_s:
        return ""
    return next(iter(ending.successors), "")


def held_by_account(answer: Answer, policy: Policy, *, now: float, draw: float) -> WaitForReset:
    """The wait of a session that may continue but whose account does not allow it: until the reset
    that another session or run learned, or until the one that goes first has its reply."""
    assert answer.until is not None
    if answer.follows:
        until = min(answer.until, now + FOLLOW_S)
        return WaitForReset(until, f"its account was limited: {answer.by or 'another'} goes first")
    spread_s = policy.reset_jitter_max_s - policy.reset_jitter_min_s
    until = answer.until + policy.reset_jitter_min_s + spread_s * draw
    return WaitForReset(until, f"{answer.scope or 'its account is limited'}, until it resets")


def _rejecting(ending: StoppedSession, now: float) -> tuple[str, float | None]:
    """Of the limits that would still refuse a request, the scope and reset of the one that resets
    last; ("", None) if none is known."""
    found: tuple[str, float | None] = ("", None)
    for scope, limit in ending.limits.items():
        reset_at = limit.resets_at
        full = limit.rejected or (limit.used_percent or 0.0) >= 100
        # Limits of single models, or of extra usage, do not concern others.
        concerns = scope == ending.limit_scope or scope in _GENERAL_SCOPES
        if not (full and concerns) or reset_at is None or not isfinite(reset_at):
            continue
        if reset_at > now and (found[1] is None or reset_at > found[1]):
            found = (scope, reset_at)
    return found


def _has_yes(history: ResumeHistory, now: float) -> bool:
    return history.yes_until is not None and now < history.yes_until


def _manners(
    history: ResumeHistory, policy: Policy, *, now: float, local: Local, draw: float
) -> WaitForReset | None:
    """The wait out of consideration for the user or for other sessions; None if there is none."""
    left_at = history.user_left_project_at
    if left_at is not None and left_at <= now < left_at + policy.user_exit_grace_s:
        until = left_at + policy.user_exit_grace_s
        return WaitForReset(
            until, "you have just ended a session in this project (user_exit_grace_s)"
        )
    quiet_until = ends_at(parse_quiet_hours(policy.quiet_hours), now, local)
    if quiet_until is not None:
        return WaitForReset(quiet_until, "quiet hours")
    at_once = policy.resumes_at_once if history.proven else 1
    if history.waking_now >= at_once:
        return WaitForReset(now + max(1.0, policy.resume_gap_s), "another session is being resumed")
    last = history.last_wake_at
    # A random addition of the same length, so that sessions that wait for the same gap do not end
    # it together.
    if last is not None and last <= now < (until := last + policy.resume_gap_s * (1 + draw)):
        return WaitForReset(until, "sessions are resumed one by one (resume_gap_s)")
    return None


def _resume(ending: StoppedSession, stop: Stop, policy: Policy, now: float) -> AskUser | Resume:
    place = _place(ending, policy)
    if place is None:
        return AskUser(
            "it is open where segue cannot type"
            if ending.state == "at_prompt"
            else "there is no allowed place to resume it (resume_places)"
        )
    price = price_of(ending, now)
    why = f"{stop.reason.description}: resuming"
    if _is_full(ending, stop, policy):
        return Resume(place, "handoff", f"{why} in a new session", None)
    prompt: Literal["continue", "resume"] = "continue" if ending.state == "at_prompt" else "resume"
    return Resume(place, prompt, f"{why}, {price.in_words}", price)


def _is_full(ending: StoppedSession, stop: Stop, policy: Policy) -> bool:
    """Whether the session cannot continue in the same window. That includes a window that had
    reached the mark when a limit stopped it: no compaction ran then, so its first request would be
    one, of everything."""
    full = StopReason.CONTEXT_EXHAUSTED
    if stop.reason is full or full in stop.also:
        return True
    mark = policy.hard_mark * ending.window_tokens
    return policy.auto_handoff and policy.hard_mark <= 1 and 0 < mark <= ending.used_tokens


def _place(ending: StoppedSession, policy: Policy) -> Place | None:
    """The first of the user's places that exists. A session at its prompt has only one: a second
    process would write to the same file."""
    can: dict[Place, bool] = {
        "pane": ending.has_pane and (ending.state == "at_prompt" or ending.pane_shell),
        "window": ending.has_tmux and ending.state == "exited",
        "headless": ending.state == "exited",
    }
    return next((place for place in policy.resume_places if can[place]), None)
