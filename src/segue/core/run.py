"""A run: one task carried to its end. Types only: what is known of it, what happens to it (facts),
and what is done about it (decisions). `core/machine` leads from one to the other.

A fact is written down before it is acted on, so a run is what its facts made of it: the same facts
lead to the same run, in this process or the next.
"""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.reading import Reading
from segue.core.stop import Stop, StopReason


class State(StrEnum):
    """Where a run stands. The values are what users see."""

    STARTING = "starting"  # the first session was begun, and has not replied yet
    WORKING = "working"
    CHECKPOINTING = "checkpointing"  # the session is asked for its checkpoint, and then replaced
    HANDING_OVER = "handing over"  # a new session was begun with it, and has not acted yet
    WAITING = "waiting"  # until a time; no process runs
    RESUMING = "resuming"  # the same session was begun again, and has not replied yet
    CHECKING = "checking"  # the user's own check of the work runs
    STOPPING = "stopping"  # it is ended on purpose: by the user or by a limit
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NEEDS_YOU = "needs-you"

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens by itself."""
        return self in (State.DONE, State.FAILED, State.CANCELLED, State.NEEDS_YOU)


Purpose = Literal["work", "checkpoint"]
"""What a leg is started for: the task, or only to ask its session for a checkpoint."""

PromptKind = Literal["task", "resume", "check", "checkpoint", "continuation"]
"""What a leg is told: the task as given; to go on; that the check failed; to write a checkpoint;
the task again, with what is known of the work so far."""

Strategy = Literal["checkpoint", "rules", "minimal"]
"""What a continuation holds: all; what is known without the agent; nothing but the task. If a
session does not take the first, the next one follows."""
STRATEGIES: tuple[Strategy, ...] = ("checkpoint", "rules", "minimal")

WhyEnded = Literal["handoff", "stall", "loop", "limit", "cap", "user", "cancel"]
"""Why segue itself ended a leg."""

HowEnded = Literal["", "close", "gentle", "kill"]
"""How hard the live leg was told to end, so far; "": not at all."""

Again = Literal["", "same", "fresh", "strict"]
"""How the user asked to go on while the run was being stopped; "": not at all."""

Timer = Literal["wait", "stall", "active", "wall", "tokens", "cost", "checkpoint", "finish"]
"""wait: a wait is over. stall: no output for too long. active, wall, tokens, cost: the limits set.
checkpoint: the session took too long to write one. finish: after the first Ctrl+C, the running tool
took too long."""


class Abilities(Struct, frozen=True, kw_only=True):
    """What the machine must know of an agent; from its drive."""

    talks: bool = False  # takes more words while it runs
    resumes: bool = True  # can go on with an old session
    resume_factor: float = 1.0
    """How much larger a session is once it was resumed; above this share of the window it is not
    asked for anything any more."""
    enforced_tokens: int | None = None  # where it compacts or refuses by itself (rule 3)


class Wait(Struct, frozen=True, kw_only=True):
    """A wait, as a row that any later process can read."""

    until: float  # unix time
    since: float
    why: StopReason
    reset_at: float | None = None  # as the provider said; None: unknown, this is a guess
    is_relative: bool = False  # said as a number of seconds: a changed clock does not move it
    draw: float = 0.0  # the random number in it
    tries: int = 1


class Outcome(Struct, frozen=True, kw_only=True):
    """How a run ended."""

    exit_code: int
    reason: str  # a stop reason, or "check_failed", "no_progress", "breaker", "cap"
    what: str  # one line: what happened
    advice: str = ""  # one line or more: what to do next
    change: str = ""  # which setting was at work, and how to change it


class Run(Struct, frozen=True, kw_only=True):
    """All that is known of a run, as its facts made it."""

    id: str
    task: str
    agent: str
    cwd: str
    created_at: float
    policy: Policy
    abilities: Abilities = Abilities()
    flags: tuple[str, ...] = ()  # the user's own, for the agent
    check: str = ""

    state: State = State.STARTING
    leg: int = 0  # the newest one's number; 0: none was started
    is_live: bool = False  # whether that leg still runs, as far as is known
    purpose: Purpose = "work"
    prompt: PromptKind = "task"
    session_id: str = ""
    has_replied: bool = False  # this session, ever: else there is nothing to resume
    leg_replied: bool = False
    reading: Reading | None = None
    is_due: bool = False  # the soft mark is passed: hand over at the next boundary
    asked: bool = False  # the live leg was asked for a checkpoint
    asked_at: float | None = None
    told: bool = False  # this session handed its work over: nothing more happens in it
    why: StopReason | None = None  # why the next leg is not the first
    ending: WhyEnded | None = None  # segue is ending the live leg, and why
    ended_how: HowEnded = ""
    outcome_due: Outcome | None = None  # how the run ends once the leg that is being ended is over
    stop: Stop | None = None  # the last one
    checkpoint: int = 0  # the newest one's number; 0: there is none
    strategy: Strategy = "checkpoint"
    wait: Wait | None = None

    handoffs: int = 0  # verified ones
    limit_tries: int = 0  # waits in a row for a limit, without progress
    limited_s: float = 0.0  # how long they were
    overload_tries: int = 0
    failure: str = ""  # the last one, normalised
    failures: int = 0  # how often it came in a row, without progress
    idle_legs: int = 0  # in a row, without progress
    check_tries: int = 0
    presses: int = 0  # of Ctrl+C
    pressed_at: float | None = None  # the first one
    again: Again = ""
    strict: bool = False  # the session loads again, or the run fails
    active_s: float = 0.0  # of the legs that are over
    leg_since: float | None = None  # when the live leg was started
    tokens: int = 0  # spent by the legs that are over
    cost_usd: float = 0.0
    outcome: Outcome | None = None


# Facts: what happened. `leg` says which one it happened to: news of an old one changes nothing.


class Fact(Struct, frozen=True, kw_only=True, tag_field="fact", tag=str.lower):
    """Something that happened to a run."""


class Created(Fact, frozen=True, kw_only=True):
    """The user gave the task."""


class Started(Fact, frozen=True, kw_only=True):
    """A leg's process runs."""

    leg: int
    session_id: str = ""  # "" if the agent has yet to tell it


class Named(Fact, frozen=True, kw_only=True):
    """The agent told its session's id."""

    leg: int
    session_id: str


class Unstartable(Fact, frozen=True, kw_only=True):
    """A leg could not be started at all: no program, no folder, another writer."""

    leg: int
    what: str


class Replied(Fact, frozen=True, kw_only=True):
    """The model's first reply of this leg; `acted`: with a tool call, or it ended the turn well."""

    leg: int
    acted: bool = False


class Read(Fact, frozen=True, kw_only=True):
    """A new size of the context."""

    leg: int
    reading: Reading
    enforced_tokens: int | None = None  # where the agent compacts or refuses by itself (rule 3)


class Boundary(Fact, frozen=True, kw_only=True):
    """A natural one: no tool runs, the last one has just finished."""

    leg: int


class Told(Fact, frozen=True, kw_only=True):
    """The session answered the request for a checkpoint; `number` is its place in the store."""

    leg: int
    number: int


class Composed(Fact, frozen=True, kw_only=True):
    """What is handed on is written down: checkpoint `number`; 0: even that failed."""

    number: int
    has_told: bool = False  # the agent's own words are in it


class LegEnded(Fact, frozen=True, kw_only=True):
    """A leg is over: its process is gone, and so is all that it left behind."""

    leg: int
    stop: Stop
    replied: bool = False
    progressed: bool = False  # rule 10
    failure: str = ""  # normalised, for the breaker
    tokens: int = 0
    cost_usd: float = 0.0
    active_s: float = 0.0


class Checked(Fact, frozen=True, kw_only=True):
    """The user's check ran."""

    ok: bool
    exit_code: int = 0


class Elapsed(Fact, frozen=True, kw_only=True):
    """A timer's time has come."""

    timer: Timer
    leg: int = 0


class Looped(Fact, frozen=True, kw_only=True):
    """The session makes the same calls again and again, and nothing changes."""

    leg: int
    calls: int


class Pressed(Fact, frozen=True, kw_only=True):
    """Ctrl+C."""


class CancelAsked(Fact, frozen=True, kw_only=True):
    """`segue cancel`, or a signal that ends segue."""

    by: str = "segue cancel"


class Resumed(Fact, frozen=True, kw_only=True):
    """The user asked to go on with a run that had ended, or whose segue is gone. `fresh`: in a new
    session; `strict`: in the same one or not at all."""

    fresh: bool = False
    strict: bool = False
    policy: Policy | None = None  # if it was changed since


AnyFact = (
    Created
    | Started
    | Named
    | Unstartable
    | Replied
    | Read
    | Boundary
    | Told
    | Composed
    | LegEnded
    | Checked
    | Elapsed
    | Looped
    | Pressed
    | CancelAsked
    | Resumed
)


# Decisions: what is done next, with its reason.


class Decision(Struct, frozen=True, kw_only=True, tag_field="decision", tag=str.lower):
    """What is done next. Doing it twice must not matter: segue may be killed in between."""

    reason: str  # for people


class StartLeg(Decision, frozen=True, kw_only=True):
    """Start this leg; `session_id` "" is a new session."""

    leg: int
    purpose: Purpose = "work"
    prompt: PromptKind = "task"
    session_id: str = ""
    strategy: Strategy = "checkpoint"


class Ask(Decision, frozen=True, kw_only=True):
    """Ask the live leg for a checkpoint, in its own session; `now`: interrupt it first."""

    leg: int
    now: bool = False


class EndLeg(Decision, frozen=True, kw_only=True):
    """close: no more input, it ends by itself. gentle: as it likes best, then SIGTERM, grace,
    SIGKILL. kill: SIGKILL."""

    leg: int
    how: Literal["close", "gentle", "kill"]


class Compose(Decision, frozen=True, kw_only=True):
    """Write down what is handed on: what the agent told, and what is known without it."""


class WaitUntil(Decision, frozen=True, kw_only=True):
    """Wait."""

    wait: Wait


class RunCheck(Decision, frozen=True, kw_only=True):
    """Run the user's check."""


class Finish(Decision, frozen=True, kw_only=True):
    """It is over."""

    state: State
    outcome: Outcome


AnyDecision = StartLeg | Ask | EndLeg | Compose | WaitUntil | RunCheck | Finish


class Step(Struct, frozen=True):
    """What a fact led to."""

    run: Run
    decisions: tuple[AnyDecision, ...] = ()
