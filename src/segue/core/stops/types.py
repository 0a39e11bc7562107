"""Why a leg ended: the signs for a reason, and the verdict. `reasons` has the reasons."""

from enum import IntEnum, StrEnum
from typing import Literal

from msgspec import Struct

from segue.core.stops.reasons import Resume, StopReason

EndedBy = Literal["user", "segue", "system", "unknown"]

SCHEMA = 1


class Rank(IntEnum):
    """Where a sign comes from. A higher rank beats a lower one, whatever the reasons."""

    EXIT = 1  # exit code and signal; also a failure that names no cause
    TEXT = 2  # text in which the agent itself reports an error
    STRUCTURE = 3  # a structured record of the final turn


class Strength(IntEnum):
    """How exactly a sign names its reason; decides within one rank, before the priority.

    A sentence beats a code because providers reuse codes: a 429 that says "extra usage is required"
    is a bill, and one that says "not your usage limit" is an overload.
    """

    HINT = 0  # an HTTP status, an exit code
    PHRASE = 1  # a general phrase inside an error
    CODE = 2  # a machine-readable code: an enum value, an error type
    SENTENCE = 3  # a sentence that names the cause
    OWN = 4  # one of the user's own wordings


class Evidence(Struct, frozen=True):
    """What was found, by which rule, and where."""

    rule: str
    quote: str
    where: str


class Reset(Struct, frozen=True):
    """When the agent may be asked again, and how segue knows."""

    at: float | None = None  # unix time
    after_s: float | None = None  # as stated, relative to the record
    source: Literal["header", "record", "text"] = "text"
    quote: str = ""


class Tokens(Struct, frozen=True):
    """How full the window was, as far as this stop shows."""

    used: int
    window: int | None = None


class Sign(Struct, frozen=True, kw_only=True):
    """One piece of evidence for one reason."""

    reason: StopReason
    rank: Rank
    strength: Strength
    evidence: Evidence
    scope: str | None = None
    reset: Reset | None = None
    tokens: Tokens | None = None
    message: str = ""
    by_name: bool = False  # in words that only this agent uses
    lost: str = ""  # why it did not count, for `segue explain`
    outdone: bool = False  # lost only to something later or more exact: a secondary reason
    sure: float | None = None  # how likely it is right, where the whole text was weighed
    words: tuple[str, ...] = ()  # those that weighed most, where words alone speak


class RateLimitInfo(Struct, frozen=True, kw_only=True, tag_field="kind", tag="rate_limit"):
    """Which limit, and where the retry time came from."""

    scope: str | None = None
    retry_source: Literal["header", "record", "text"] | None = None
    message: str = ""


class ContextExhaustionInfo(Struct, frozen=True, kw_only=True, tag_field="kind", tag="context"):
    """How full the window was when it was reported full."""

    used_tokens: int | None = None
    window_tokens: int | None = None
    percent: float | None = None
    message: str = ""


class UserExitType(StrEnum):
    """How the user ended it."""

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
    """What failed, in the agent's own words and codes."""

    message: str = ""
    code: str | None = None
    status: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    scope: str | None = None  # "network": no response at all, not even a refusal


class Grant(Struct, frozen=True, kw_only=True):
    """A way to allow an agent what it was refused: the agent's own flags, or variables of its
    environment."""

    what: str  # what it allows, in a few words
    flags: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


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
    unread: int = 0  # records of unknown kinds, which are passed through and counted
    notes: tuple[str, ...] = ()  # what segue assumed
    ended_for: str = ""
    """Why segue itself ended it ("handoff", "recall", "stall", "loop", "limit"), where the verdict
    rests on nothing else; "" if it ended by itself or by the user."""
    grants: tuple[Grant, ...] = ()
    """What would allow the agent of a run what it was refused, the narrowest first."""
