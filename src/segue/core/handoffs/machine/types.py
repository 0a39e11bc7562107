"""The types of one handoff in a terminal: what is known about it, what happens to it (facts), and
what segue does about it (acts). `core/handoffs/machine` leads from one to the other.

A fact is logged before segue acts on it, so the facts alone determine the handoff, in this
process or the next.
"""

from enum import StrEnum
from typing import Literal

from msgspec import Struct, field


class HandoffStep(StrEnum):
    """The step of a handoff. Users see these values."""

    WAITING = "waiting"  # for the turn to end, or for the moment in which it is interrupted
    RESTING = "resting"  # the turn has ended: the next move is the user's
    ASKING = "asking"  # the request is being typed
    ASKED = "asked"  # the session has it, and has yet to write the document
    WRITING = "writing"  # segue writes the rule-made document
    WRITTEN = "written"  # a valid document is on disk; waits for the turn to end
    CLEARING = "clearing"  # the context is being cleared
    CLEARED = "cleared"  # there is a new session; waits until it can receive a message
    RESUMING = "resuming"  # it is being told to read the document
    RESUMED = "resumed"  # it was told, and must still read it and continue
    DONE = "done"
    NEEDS_USER = "needs_user"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens."""
        return self in (HandoffStep.DONE, HandoffStep.CANCELLED)

    @property
    def is_active(self) -> bool:
        """Whether it counts among the concurrent handoffs: neither ended nor left to the user."""
        return not self.is_final and self not in (HandoffStep.NEEDS_USER, HandoffStep.RESTING)


What = Literal["request", "clear", "resume"]
"""What is typed into a session."""

Source = Literal["agent", "segue", ""]
"""Who wrote the document; "": there is none yet."""


class TerminalHandoff(Struct, frozen=True, kw_only=True):
    """Everything known about a handoff, as it follows from its facts."""

    id: str  # "h-…", of a to z, digits and dashes
    agent: str
    session_id: str
    project: str
    cwd: str
    file: str  # the document's, absolute
    began_at: float
    used_tokens: int  # at the mark
    window_tokens: int
    limit_tokens: int | None = None  # where the agent compacts or refuses by itself
    by_user: bool = False  # the user asked for it, whatever the zone
    cannot_be_asked: bool = False  # asking is useless: segue writes the document
    zone_path: tuple[str, ...] = ()  # the zones that the session went through, in order

    step: HandoffStep = HandoffStep.WAITING
    step_at: float = 0.0  # since when it is waited there
    why: str = ""  # of the last step back, question or end, in one line
    source: Source = ""
    has_document: bool = False  # what was last seen of the file was a valid document
    document_bytes: int = 0
    # the transcript shows what was typed last
    is_received: bool = field(default=False, name="is_heard")
    is_stale: bool = False  # the user spoke after the session was asked
    stale_before: float = 0.0
    """What was written or heard before then is of an earlier request."""
    is_typed: bool = False  # the command that clears the context was sent
    is_cleared: bool = False
    is_read: bool = False  # the new session read the document
    went_on: bool = False  # and did something after that
    new_session_id: str = ""
    tries: dict[str, int] = field(default_factory=dict)  # how often each thing was done
    refused_at: float | None = None  # since when nothing could be typed
    blocked: str = ""  # what is in the way that only the user can take away, such as a dialog
    was_cut: bool = False  # a turn was interrupted for it: the session does not continue by itself
    cut_at: float | None = None
    """When that was last decided or done; None: never, or much happened since."""
    is_pressed: bool = False  # and the key was pressed: logged, because the user has that key too
    cuts: int = 0  # how often in this turn, without success
    owes: bool = False
    """segue has kept the session from its work, so it is for segue to have it continue. Else a
    session at its prompt is its user's: it has done what it was asked, or they stopped it."""
    is_declined: bool = False  # the user interrupted what segue asked for
    near_tokens: int | None = None
    """The size at which it was first seen that the next reply may reach the agent's own limit."""
    is_past: bool = False  # and what a tool prints now may make the request late
    question: str = ""  # what the user is asked once the rule-made document is written

    asked_at: float | None = None
    written_at: float | None = None
    cleared_at: float | None = None
    over_at: float | None = None
    last_used_tokens: int = 0  # of the session that is replaced
    new_used_tokens: int = 0  # of the one that continues
    next_fits: bool | None = None  # whether the next work would still have fitted; None: unknown

    @property
    def fraction(self) -> float:
        """The share of the window at the mark."""
        return self.used_tokens / self.window_tokens if self.window_tokens > 0 else 0.0


class Metrics(Struct, frozen=True, kw_only=True):
    """What the figures need of each handoff (docs/report.md)."""

    id: str
    agent: str
    session_id: str
    new_session_id: str
    project: str
    outcome: HandoffStep
    why: str
    began_at: float
    by_user: bool
    source: Source
    trigger_tokens: int
    trigger_fraction: float
    window_tokens: int
    last_tokens: int  # when the context was cleared, or the cycle ended
    last_fraction: float
    document_bytes: int
    document_tokens: int  # about
    new_tokens: int  # of the new session, as far as it was seen
    zone_path: tuple[str, ...]
    waited_s: float | None  # from the mark to the request; None: it was not asked
    written_s: float | None  # from the request to the document
    duration_s: float
    interrupts: int
    tries: dict[str, int]
    went_on: bool
    justified: bool | None
    """Whether 90% was reached of what the session could use, or the next work would not have
    fitted; None if the context was not cleared."""


# Facts


class HandoffFact(Struct, frozen=True, tag_field="fact", tag=str.lower):
    """Something that happened to a handoff."""


class Planned(HandoffFact, frozen=True):
    """The handoff is to be made."""


class Ready(HandoffFact, frozen=True):
    """The agent is idle at its prompt, so segue could type. `is_over`: according to its records
    the turn has ended, and nobody interrupted it; `is_long`: it has been so for a while."""

    is_over: bool = False
    is_long: bool = False


class Busy(HandoffFact, frozen=True):
    """The agent is working; `is_new`: on what the user has just sent. `at_boundary`: no tool is
    running; `is_hooked`: its own hook asks for the document after the next tool."""

    is_new: bool = False
    at_boundary: bool = False
    is_hooked: bool = False


class TurnInterrupted(HandoffFact, frozen=True, tag="interrupted"):
    """According to its records, the last turn was interrupted at that time, by segue or by the
    user. The time is the record's own and may be that of the turn's last message."""

    at: float | None = None


class KeyPressed(HandoffFact, frozen=True, tag="pressed"):
    """segue has pressed the key that ends the turn."""


class NotInterrupted(HandoffFact, frozen=True):
    """No key was pressed: the turn has just ended, the user is typing, or a question is open."""

    why: str = ""


class Blocked(HandoffFact, frozen=True):
    """Neither idle nor working: a dialog is open, the pane is scrolled, or segue does not recognise
    its screen. segue must not type or press anything there."""

    why: str = "a dialog is open"


class TimeUp(HandoffFact, frozen=True):
    """The time of `due` has come. Reported too early, it changes nothing."""


class Typed(HandoffFact, frozen=True):
    """The text was typed and sent."""

    what: What


class NotTyped(HandoffFact, frozen=True):
    """The text was not typed, and nothing of it is left in the input line; `retry`: it may work
    later."""

    what: What
    why: str
    retry: bool = True


class PromptSeen(HandoffFact, frozen=True, tag="heard"):
    """The transcript shows the prompt."""

    what: What


class FileSeen(HandoffFact, frozen=True):
    """The document's file in its current state; `stable`: it no longer changes. `changed_at`:
    what was written for an earlier request changes nothing; None: it was written for this
    one."""

    ok: bool
    why: str = ""
    bytes: int = 0
    stable: bool = True
    changed_at: float | None = None
    by_segue: bool = False  # it is the rule-made one
    nothing_left: bool = False  # it says that all of the work is done


class OwnWritten(HandoffFact, frozen=True):
    """The rule-made document is on disk, and was found valid there."""

    bytes: int


class NotWritten(HandoffFact, frozen=True):
    """The document could not be written."""

    why: str


class Cleared(HandoffFact, frozen=True):
    """The session's context is gone: there is another session, or an empty one."""

    new_session_id: str = ""


class ReadFile(HandoffFact, frozen=True):
    """The new session read the document."""


class WentOn(HandoffFact, frozen=True):
    """The new session did something after that."""


class AgentGone(HandoffFact, frozen=True, tag="gone"):
    """The agent's process ended."""

    why: str = ""


class UserSpoke(HandoffFact, frozen=True):
    """The session received a message that segue did not type."""


class Used(HandoffFact, frozen=True):
    """A new size of the session; of the new session, once the context is cleared."""

    used_tokens: int
    zone: str = ""
    next_fits: bool | None = None
    is_near: bool = False  # the next reply may leave less than a checkpoint needs
    is_past: bool = False  # there is less left already, or will be with what a tool prints now


class Cancel(HandoffFact, frozen=True):
    """The user cancelled the handoff."""

    why: str = "cancelled by the user"


class RetryRequested(HandoffFact, frozen=True, tag="retry"):
    """The user asked segue to continue the handoff."""


AnyFact = (
    Planned
    | Ready
    | Busy
    | Blocked
    | TurnInterrupted
    | KeyPressed
    | NotInterrupted
    | TimeUp
    | Typed
    | NotTyped
    | PromptSeen
    | FileSeen
    | OwnWritten
    | NotWritten
    | Cleared
    | ReadFile
    | WentOn
    | AgentGone
    | UserSpoke
    | Used
    | Cancel
    | RetryRequested
)


# Acts. Each may be carried out twice, because whoever does so first checks whether it is done.


class Act(Struct, frozen=True, tag_field="act", tag=str.lower):
    """What segue does next."""


class TypeText(Act, frozen=True, tag="type"):
    """Type the text, unless the transcript already shows it; answered by `Typed`, `PromptSeen`
    or `NotTyped`. "clear" only right after the document was read and found valid once more."""

    what: What


class Interrupt(Act, frozen=True):
    """End the turn in the way of the agent's terminal; answered by `KeyPressed`, or by
    `NotInterrupted` if no key was pressed."""


class WriteOwn(Act, frozen=True):
    """Make the rule-made document and write it to the file, unless it already has a valid one:
    answered by `OwnWritten`, `FileSeen` or `NotWritten`."""


class AskUser(Act, frozen=True):
    """Tell the user what to do."""

    why: str


class RecordFigures(Act, frozen=True, tag="record"):
    """Store these figures permanently."""

    metrics: Metrics


class Done(Act, frozen=True):
    """The handoff has ended, well or not; `RecordFigures` has the details."""


AnyAct = TypeText | Interrupt | WriteOwn | AskUser | RecordFigures | Done
