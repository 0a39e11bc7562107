"""Why a leg ended: the reasons, the signs that speak for them, and the verdict."""

from enum import IntEnum, StrEnum
from typing import Literal

from msgspec import Struct

EndedBy = Literal["user", "segue", "system", "unknown"]
Resume = Literal["same_session", "new_session", "none"]

SCHEMA = 1


class StopReason(StrEnum):
    """The values users see, in order of priority: the first wins between signs of equal weight.

    The order is the seeds' (rate limit, completed, context, user exit, unknown) with the
    errors between context and user exit: an error beats the user's will, because an agent that
    died of one is often closed by hand afterwards.
    """

    RATE_LIMIT = "rate_limit"
    COMPLETED = "completed"
    CONTEXT_EXHAUSTED = "context_exhausted"
    BILLING = "billing"
    AUTH = "auth"
    MAX_BUDGET = "max_budget"
    MAX_TURNS = "max_turns"
    REFUSAL = "refusal"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    CRASH = "crash"
    NEEDS_USER = "needs_user"
    ERROR = "error"
    USER_EXIT = "user_exit"
    UNKNOWN = "unknown"

    @property
    def priority(self) -> int:
        """0 for the reason that wins every tie."""
        return _PRIORITY[self]

    @property
    def should_auto_resume(self) -> bool:
        """Whether work goes on without the user, by default (seed 001 AC3)."""
        return _RESUME[self] != "none"

    @property
    def resume(self) -> Resume:
        """How work goes on by default: the same session, a new one, or not at all."""
        return _RESUME[self]

    @property
    def description(self) -> str:
        """A few words for people and logs."""
        return _DESCRIPTION[self]


_PRIORITY = {reason: place for place, reason in enumerate(StopReason)}

_RESUME: dict[StopReason, Resume] = dict.fromkeys(StopReason, "none")
_RESUME.update(
    {
        StopReason.RATE_LIMIT: "same_session",
        StopReason.CONTEXT_EXHAUSTED: "new_session",
        StopReason.OVERLOADED: "same_session",
        StopReason.TIMEOUT: "same_session",
        StopReason.CRASH: "same_session",
    }
)

_DESCRIPTION = {
    StopReason.RATE_LIMIT: "rate limited",
    StopReason.COMPLETED: "completed",
    StopReason.CONTEXT_EXHAUSTED: "context window exhausted",
    StopReason.BILLING: "out of credit, or not part of the plan",
    StopReason.AUTH: "not signed in, or not allowed",
    StopReason.MAX_BUDGET: "the budget that was set is used up",
    StopReason.MAX_TURNS: "the turn limit that was set is reached",
    StopReason.REFUSAL: "the model or its provider refused",
    StopReason.OVERLOADED: "provider overloaded, or the connection failed",
    StopReason.TIMEOUT: "timed out",
    StopReason.CRASH: "crashed, or was killed",
    StopReason.NEEDS_USER: "waits for a permission or an answer",
    StopReason.ERROR: "failed with an error",
    StopReason.USER_EXIT: "ended by the user",
    StopReason.UNKNOWN: "unknown",
}


class Rank(IntEnum):
    """Where a sign comes from; a higher rank beats a lower one whatever the reasons are."""

    EXIT = 1  # exit code and signal; and a failure that names no cause, which says no more
    TEXT = 2  # text in which the agent itself speaks as an error
    STRUCTURE = 3  # a structured record of the final turn


class Strength(IntEnum):
    """How exactly a sign names its reason; decides within one rank, before the priority.

    A sentence beats a code because providers reuse codes: a 429 that says "extra usage is
    required" is a bill, and one that says "not your usage limit" is an overload.
    """

    HINT = 0  # an HTTP status, an exit code
    PHRASE = 1  # a general phrase inside an error
    CODE = 2  # a machine-readable code: an enum value, an error type
    SENTENCE = 3  # a sentence that names the cause
    OWN = 4  # a wording of the user's own


class Evidence(Struct, frozen=True):
    """What was seen, by which rule, and where."""

    rule: str
    quote: str
    where: str


class Reset(Struct, frozen=True):
    """When the agent may be asked again, and how that is known."""

    at: float | None = None  # unix time
    after_s: float | None = None  # as stated, relative to the record
    source: Literal["header", "record", "text"] = "text"
    quote: str = ""


class Tokens(Struct, frozen=True):
    """How full the window was, as far as this stop tells."""

    used: int
    window: int | None = None


class Sign(Struct, frozen=True, kw_only=True):
    """One thing that speaks for one reason."""

    reason: StopReason
    rank: Rank
    strength: Strength
    evidence: Evidence
    scope: str | None = None
    reset: Reset | None = None
    tokens: Tokens | None = None
    message: str = ""
    lost: str = ""  # why it did not count, for `segue explain`
    outdone: bool = False  # lost only to what was said later or better: a secondary reason


class RateLimitInfo(Struct, frozen=True, kw_only=True, tag_field="kind", tag="rate_limit"):
    """Which limit, and where the retry time came from (seed 000, story 2.4)."""

    scope: str | None = None
    retry_source: Literal["header", "record", "text"] | None = None
    message: str = ""


class ContextExhaustionInfo(Struct, frozen=True, kw_only=True, tag_field="kind", tag="context"):
    """How full the window was when it was said to be full (seed 000)."""

    used_tokens: int | None = None
    window_tokens: int | None = None
    percent: float | None = None
    message: str = ""


class UserExitType(StrEnum):
    """How the user ended it (seed 001)."""

    CTRL_C = "ctrl_c"
    EXIT_COMMAND = "exit_command"
    CLEAN_EXIT = "clean_exit"
    TERMINAL_CLOSED = "terminal_closed"
    TERMINATED = "terminated"


class UserExitInfo(Struct, frozen=True, kw_only=True, tag_field="kind", tag="user_exit"):
    """How the user ended it, and the exit code if one was seen."""

    exit_type: UserExitType
    exit_code: int | None = None
    message: str = ""


class FailureInfo(Struct, frozen=True, kw_only=True, tag_field="kind", tag="failure"):
    """What failed, in the agent's own words and codes (seed 003)."""

    message: str = ""
    code: str | None = None
    status: int | None = None
    exit_code: int | None = None
    signal: int | None = None


Details = RateLimitInfo | ContextExhaustionInfo | UserExitInfo | FailureInfo


class Stop(Struct, frozen=True, kw_only=True):
    """The verdict on how a leg ended."""

    reason: StopReason
    confidence: float
    evidence: tuple[Evidence, ...] = ()
    also: tuple[StopReason, ...] = ()
    resume: Resume = "none"
    retry_at: float | None = None
    retry_after_s: float | None = None
    tokens: Tokens | None = None
    context_risk: bool = False
    details: Details | None = None
    remediation: str = ""
    ended_by: EndedBy = "unknown"
    unread: int = 0  # records that no rule knows: passed through, counted
    notes: tuple[str, ...] = ()  # what was assumed
