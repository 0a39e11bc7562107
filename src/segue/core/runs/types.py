"""The types of a run, one task worked on until it is finished: what is known about it, what happens
to it (facts), and what segue does about it (decisions). `core/runs/machine` leads from one to
the other.

A fact is logged before segue acts on it, so the facts alone determine the run: the same facts lead
to the same run, in this process or the next.

All in one file: facts and decisions are one vocabulary, and refer to each other.
"""

from enum import StrEnum
from typing import Literal

from msgspec import Struct, field

from segue.core.policy import Policy
from segue.core.sessions.reading import Reading
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import Stop


class RunState(StrEnum):
    """The state of a run. Users see these values."""

    STARTING = "starting"  # the first session was started and has not replied yet
    WORKING = "working"
    CHECKPOINTING = "checkpointing"  # the session is asked for its checkpoint, and then replaced
    HANDING_OVER = "handing over"  # a new session was started with it, and has not acted yet
    WAITING = "waiting"  # until a time; no process runs
    RESUMING = "resuming"  # the same session was restarted, and has not replied yet
    CHECKING = "checking"  # the user's own check of the work runs
    STOPPING = "stopping"  # it is ended on purpose: by the user or by a limit
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    NEEDS_YOU = "needs-you"

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens automatically."""
        return self in _FINAL


_FINAL = (RunState.DONE, RunState.FAILED, RunState.CANCELLED, RunState.NEEDS_YOU)


IdleKind = Literal["calls", "replies", "tokens", "compactions"]
"""What a session may spend without progress, up to a limit."""

Purpose = Literal["work", "checkpoint"]
"""What a leg is started for: the task, or only to ask its session for a checkpoint."""

PromptKind = Literal["task", "resume", "recall", "check", "checkpoint", "continuation"]
"""What a leg is told: the task as given; to continue; to look again, with what the session's own
compaction left out; that the check failed; to write a checkpoint; the task again, with what is
known about the work so far."""

Strategy = Literal["checkpoint", "rules", "minimal"]
"""What a continuation contains: everything; what is known without the agent; only the task. If a
session does not accept one form, the next follows."""
STRATEGIES: tuple[Strategy, ...] = ("checkpoint", "rules", "minimal")

WhyEnded = Literal[
    "handoff", "recall", "stall", "loop", "limit", "cap", "user", "cancel", "hangup"
]  # fmt: skip
"""Why segue itself ended a leg. recall: its session is resumed with what its own compaction left
out."""

HowEnded = Literal["", "close", "gentle", "kill"]
"""How hard the live leg was told to end so far; "": not at all."""

Again = Literal["", "same", "fresh", "strict"]
"""How the user asked to continue while the run was being stopped; "": not at all."""

Timer = Literal[
    "wait", "stall", "active", "wall", "tokens", "cost", "output", "checkpoint", "finish"
]  # fmt: skip
"""wait: a wait has ended. stall: no output for too long. active, wall, tokens, cost, output:
limits. checkpoint: the session took too long to write one. finish: after the first Ctrl+C,
the running tool took too long."""


class Abilities(Struct, frozen=True, kw_only=True):
    """What the machine must know about an agent; comes from its drive."""

    talks: bool = False  # accepts more input while it runs
    resumes: bool = True  # can resume an old session
    resume_factor: float = 1.0
    """How much larger a session becomes when it is resumed; above this share of the window it is no
    longer asked for anything."""
    enforced_tokens: int | None = None  # where it compacts or refuses by itself


class Member(Struct, frozen=True, kw_only=True):
    """One agent of a run's list, with its own settings: no agent gets another's flags."""

    agent: str
    flags: tuple[str, ...] = ()
    abilities: Abilities = Abilities()
    policy: Policy = Policy()


class Out(Struct, frozen=True):
    """An agent of the list that cannot continue until then; None: not in this run."""

    agent: str
    until: float | None
    why: StopReason


class Wait(Struct, frozen=True, kw_only=True):
    """A wait, as a record that any later process can read."""

    until: float  # unix time
    since: float
    why: StopReason
    reset_at: float | None = None  # as the provider said; None: unknown, this is a guess
    is_relative: bool = False  # stated in seconds, so a changed clock does not move it
    draw: float = 0.0  # the random number in it
    tries: int = 1
    outage_since: float | None = None  # since when the network has been unreachable
    agent: str = ""  # who continues after it, if it is another agent
    follows: str = ""  # waits not for a reset, but for the first reply of this run or session


class Outcome(Struct, frozen=True, kw_only=True):
    """How a run ended."""

    exit_code: int
    reason: str  # a stop reason, or "check_failed", "no_progress", "breaker", "cap"
    what: str  # one line: what happened
    advice: str = ""  # one line or more: what to do next
    change: str = ""  # which setting applied, and how to change it


class Origin(Struct, frozen=True, kw_only=True):
    """The session that a rescue continues: it died without segue."""

    agent: str
    session_id: str
    path: str  # of its file, or of the database that it is in
    stop: Stop  # why it stopped, according to its records
    stopped_at: float | None = None
    reading: Reading | None = None
    is_same: bool = False  # the run continues in it; otherwise in a new one, with a checkpoint
    doubt: str | None = None
    """Its last tool call, if nobody knows whether it was done; "": not even the call is known."""
    changed: str = ""  # what changed in the working tree since it stopped
    earlier: tuple[tuple[str, str, str], ...] = ()
    """The sessions whose work it took over in a terminal, the oldest first: agent, id, path."""


class Run(Struct, frozen=True, kw_only=True):
    """Everything known about a run, as it follows from its facts."""

    id: str
    task: str
    agent: str  # of the newest leg
    cwd: str
    created_at: float
    policy: Policy  # that agent's policy, like its abilities and flags
    abilities: Abilities = Abilities()
    flags: tuple[str, ...] = ()  # the user's own flags for the agent
    check: str = ""
    # what the user added to the task when resuming it, in order
    additions: tuple[str, ...] = field(default=(), name="said")
    telling: int = 0  # how many of these the newest leg's prompt includes
    # how many of these a session has replied to
    answered_additions: int = field(default=0, name="heard")
    relay: tuple[Member, ...] = ()  # all agents of the run in order; () if there is only one
    out: tuple[Out, ...] = ()  # those of them that cannot continue now
    relay_to: str = ""  # the agent that is about to take over
    relays: int = 0  # how often another agent took over
    idle_relays: int = 0  # of those, in a row without progress
    origin: Origin | None = None  # None: it began with its task

    state: RunState = RunState.STARTING
    leg: int = 0  # the newest one's number; 0: none was started
    is_live: bool = False  # whether that leg still runs, as far as is known
    purpose: Purpose = "work"
    prompt: PromptKind = "task"
    session_id: str = ""
    # this session replied at least once; otherwise there is nothing to resume
    has_replied: bool = False
    leg_replied: bool = False
    reading: Reading | None = None
    is_timely: bool = False  # belongs to the reading: see `ContextMeasured`
    pending_tokens: int = 0  # what the context has gained since the reading: an estimate
    request_tokens: int = 0  # what a request for a checkpoint would add: an estimate
    sizes: tuple[int, ...] = ()
    """The sizes of the context after the last replies, in order, including earlier sessions."""
    replies: int = 0  # how many of them belong to this session
    loaded_tokens: int = 0
    """For agents whose sessions grow when they are resumed: its size at the first reply after the
    last resume, or of a new session. What was there then does not grow any more."""
    loaded_leg: int = 0  # the leg of that reply
    opened: tuple[float, int] | None = None  # time and size of this session's first reading
    quantile: float | None = None  # the quantile of turn sizes, with `adaptive`
    adapted_leg: int = 0  # the last leg whose handoff was counted for it
    is_due: bool = False  # hand over at the next boundary (`core/runs/due`)
    asked: bool = False  # the live leg was asked for a checkpoint
    asked_at: float | None = None
    is_in_tool: bool = False  # the request is read once the tool that runs has finished
    # this session handed its work over, so nothing more happens in it
    has_handed_over: bool = field(default=False, name="told")
    why: StopReason | None = None  # why the next leg is not the first
    circles: "Looped | None" = None  # what led nowhere, if that is why a session was given up
    ending: WhyEnded | None = None  # segue is ending the live leg, and why
    ended_how: HowEnded = ""
    outcome_due: Outcome | None = None  # how the run ends once the leg that is being ended is over
    stop: Stop | None = None  # the last wait
    is_untold: bool = False  # of the last leg that ended: see `LegEnded`
    checkpoint: int = 0  # the newest one's number; 0: there is none
    strategy: Strategy = "checkpoint"
    wait: Wait | None = None

    handoffs: int = 0  # verified handoffs
    limit_tries: int = 0  # waits in a row for a limit, without progress
    limited_s: float = 0.0  # their total length
    overload_tries: int = 0
    outage_tries: int = 0
    outage_since: float | None = None  # the model has been unreachable since
    outage_legs: int = 0  # legs that ended this way, in total: no cap counts them
    failure: str = ""  # the last failure, normalised
    failures: int = 0  # how often it happened in a row, without progress
    idle_legs: int = 0  # in a row, without progress
    check_tries: int = 0
    presses: int = 0  # number of Ctrl+C
    pressed_at: float | None = None  # time of the first one
    again: Again = ""
    interrupted: str = ""  # what made segue end while the run had not ended; no segue drives it
    strict: bool = False  # the same session must load again, otherwise the run fails
    active_s: float = 0.0  # of the legs that have ended
    leg_since: float | None = None  # when the live leg was started
    tokens: int = 0  # spent by the legs that have ended
    cost_usd: float = 0.0
    outcome: Outcome | None = None

    @property
    def unanswered_additions(self) -> tuple[str, ...]:
        """What the user added and no session has replied to yet."""
        return self.additions[self.answered_additions :]


# Facts: what happened. `leg` says to which leg; news about an old one changes nothing.


class Fact(Struct, frozen=True, kw_only=True, tag_field="fact", tag=str.lower):
    """Something that happened to a run."""


class Created(Fact, frozen=True, kw_only=True):
    """The user gave the task."""


class LegStarted(Fact, frozen=True, kw_only=True, tag="started"):
    """A leg's process is running."""

    leg: int
    session_id: str = ""  # "" if the agent has not reported it yet


class SessionNamed(Fact, frozen=True, kw_only=True, tag="named"):
    """The agent reported its session's id."""

    leg: int
    session_id: str


class LegNotStarted(Fact, frozen=True, kw_only=True, tag="unstartable"):
    """A leg could not be started at all: no program, no folder, another writer."""

    leg: int
    what: str


class Limited(Fact, frozen=True, kw_only=True):
    """The leg was not started: another run or session found that the agent's account is limited
    until then, or one of them goes first after the reset (`follows`)."""

    leg: int
    until: float
    by: str = ""
    follows: bool = False
    limits: dict[str, float] = field(default_factory=dict)  # as in `LegEnded`


class Replied(Fact, frozen=True, kw_only=True):
    """The model's first reply in this leg; `acted`: it called a tool, or ended its turn well."""

    leg: int
    acted: bool = False


class ContextMeasured(Fact, frozen=True, kw_only=True, tag="read"):
    """A new size of the context."""

    leg: int
    reading: Reading
    enforced_tokens: int | None = None  # where the agent compacts or refuses by itself
    is_timely: bool = False
    """Whether there is a boundary before the model is asked again: the reply's tools still run. If
    not, what is said now is read one turn later."""
    pending_tokens: int = 0
    """What the context has gained since then, estimated from what its tools printed."""
    request_tokens: int = 0  # what a request for a checkpoint would add: an estimate
    opening_tokens: int = 0
    """The size of a new session before its first tool answered, for agents whose sessions grow when
    they are resumed; 0 if it is unknown."""


class Boundary(Fact, frozen=True, kw_only=True):
    """A natural boundary: no tool is running, and the last one has just finished. `ahead`: the
    boundary is still to come, because a tool is running; a message sent now is read when the
    tool has finished."""

    leg: int
    ahead: bool = False
    pending_tokens: int = 0  # as in `ContextMeasured`


class CheckpointReceived(Fact, frozen=True, kw_only=True, tag="told"):
    """The session answered the request for a checkpoint; `number` is its number in the store."""

    leg: int
    number: int


class CheckpointComposed(Fact, frozen=True, kw_only=True, tag="composed"):
    """Checkpoint `number` is written; 0: even that failed."""

    number: int
    has_summary: bool = field(default=False, name="has_told")  # the agent's own words are in it
    limits: dict[str, float] = field(default_factory=dict)  # as in `LegEnded`


class LegEnded(Fact, frozen=True, kw_only=True):
    """A leg has ended: its process is gone, and so are all processes that it left behind."""

    leg: int
    stop: Stop
    replied: bool = False
    progressed: bool = False
    failure: str = ""  # normalised, for the breaker
    tokens: int = 0
    cost_usd: float = 0.0
    active_s: float = 0.0
    limits: dict[str, float] = field(default_factory=dict)
    """Until when the accounts of the list's agents are limited, as far as it is known and they
    are."""
    is_untold: bool = False
    """What it said last is based on the summary of its own compaction, and nobody told it what that
    left out."""


class Checked(Fact, frozen=True, kw_only=True):
    """The user's check ran."""

    ok: bool
    exit_code: int = 0
    fault: str = ""  # why it could not even be run


class Elapsed(Fact, frozen=True, kw_only=True):
    """A timer has fired."""

    timer: Timer
    leg: int = 0
    early: Literal["", "works_on"] = ""
    """Why before its time: the session was asked for a checkpoint and called a tool instead."""


class Looped(Fact, frozen=True, kw_only=True):
    """The session works without making progress (`idle`). `call` is the most frequent call in
    that time."""

    leg: int
    calls: int  # how many of `kind` were without effect
    kind: IdleKind = "calls"
    call: str = ""
    made: int = 0
    failed: int = 0  # how many of those failed


class Arrived(Fact, frozen=True, kw_only=True):
    """What a session that took over repeated in its first `actions`, although it had been told
    (`core/handoffs/digest/arrival`)."""

    leg: int
    actions: int = 0
    commands: int = 0
    files: int = 0
    questions: int = 0


class SessionReminded(Fact, frozen=True, kw_only=True, tag="recalled"):
    """The session's own compaction, number `compaction` in this leg, left something out: the
    session is told `chars` characters of it, in a message or, if it accepts none, in the
    prompt that resumes it."""

    leg: int
    compaction: int
    chars: int = 0


class InterruptRequested(Fact, frozen=True, kw_only=True, tag="pressed"):
    """Ctrl+C."""


class CancelAsked(Fact, frozen=True, kw_only=True):
    """`segue cancel`, or a signal that ends segue."""

    by: str = "segue cancel"


class HungUp(Fact, frozen=True, kw_only=True):
    """segue itself has to end, but not because the user wants to end the run: its terminal is
    gone, or the machine is shutting down."""

    by: str = "a hang-up"


class Resumed(Fact, frozen=True, kw_only=True):
    """The user resumed a run that had ended, or whose segue was gone. `fresh`: in a new session;
    `strict`: in the same session or not at all."""

    fresh: bool = False
    strict: bool = False
    policy: Policy | None = None  # if it was changed since
    flags: tuple[str, ...] | None = None  # the agent's own flags from now on, if they were changed
    relay: tuple[Member, ...] | None = None  # the list, if any of its rules was changed
    addition: str = field(default="", name="said")  # what the user adds to the task


AnyFact = (
    Created
    | LegStarted
    | SessionNamed
    | LegNotStarted
    | Limited
    | Replied
    | ContextMeasured
    | Boundary
    | CheckpointReceived
    | CheckpointComposed
    | LegEnded
    | Checked
    | Elapsed
    | Looped
    | SessionReminded
    | Arrived
    | InterruptRequested
    | CancelAsked
    | HungUp
    | Resumed
)


# Decisions: what is done next, with its reason.


class Decision(Struct, frozen=True, kw_only=True, tag_field="decision", tag=str.lower):
    """What segue does next. Doing it twice must be harmless: segue may be killed in between."""

    reason: str  # for people


class StartLeg(Decision, frozen=True, kw_only=True):
    """Start this leg; `session_id` "" is a new session."""

    leg: int
    purpose: Purpose = "work"
    prompt: PromptKind = "task"
    session_id: str = ""
    strategy: Strategy = "checkpoint"
    agent: str = ""  # "" in the logs of runs with one agent


class AskCheckpoint(Decision, frozen=True, kw_only=True, tag="ask"):
    """Ask the live leg for a checkpoint, in its own session; `now`: interrupt it first."""

    leg: int
    now: bool = False
    why: StopReason = StopReason.CONTEXT_EXHAUSTED


class EndLeg(Decision, frozen=True, kw_only=True):
    """close: no more input, so that it ends by itself. gentle: the agent's preferred way, then
    SIGTERM, a grace period, and SIGKILL. kill: SIGKILL."""

    leg: int
    how: Literal["close", "gentle", "kill"]


class Compose(Decision, frozen=True, kw_only=True):
    """Write the checkpoint: the agent's own summary, and what is known without it."""


class WaitUntil(Decision, frozen=True, kw_only=True):
    """Wait."""

    wait: Wait


class RunCheck(Decision, frozen=True, kw_only=True):
    """Run the user's check."""


class Finish(Decision, frozen=True, kw_only=True):
    """End the run."""

    state: RunState
    outcome: Outcome


AnyDecision = StartLeg | AskCheckpoint | EndLeg | Compose | WaitUntil | RunCheck | Finish


class RunStep(Struct, frozen=True):
    """The run after a fact, and the decisions that follow."""

    run: Run
    decisions: tuple[AnyDecision, ...] = ()
