"""A digest: plain data that can be stored as JSON. Lists are in the order of the work."""

from typing import Literal

from msgspec import Struct

from segue.core.sessions.remarks import Todo

Kind = Literal["decision", "finding", "dropped", "plan", "question", "remark"]
"""What a sentence of the agent does. dropped: an approach that was given up, and why. remark: none
of these; it may still be the only place that names something."""


class UserPrompt(Struct, frozen=True, kw_only=True):
    """The user's words. `number` counts from 1 in the session, including the task."""

    number: int
    text: str
    is_correction: bool = False  # it takes back something said before


class Statement(Struct, frozen=True, kw_only=True):
    """A sentence of the agent that the next session must know."""

    kind: Kind
    text: str
    place: int  # in the order of the work
    score: float = 0.0
    earlier: str = ""  # what it said before about the same thing, which is no longer true
    form: int = 0  # the same for sentences that differ only in what they name


class CommandResult(Struct, frozen=True, kw_only=True):
    """A tool call and its outcome."""

    call: str  # the command; for other tools, the name and a short argument
    place: int
    lines: tuple[str, ...] = ()  # the important lines of its output
    scores: tuple[float, ...] = ()  # one for each line
    exit_code: int | None = None
    failed: bool = False
    times: int = 1  # how often it was made; this is the last outcome
    by_agent: bool = False  # a sub-agent's work

    @property
    def score(self) -> float:
        """The score of its best line."""
        return max(self.scores, default=0.0)


class FileTouched(Struct, frozen=True, kw_only=True):
    """A file that the session read or wrote."""

    path: str
    reads: int = 0
    writes: int = 0
    change: str = ""  # the last one, in short: "+12 −3: def total(order):"


class Digest(Struct, frozen=True, kw_only=True):
    """What a conversation knew."""

    prompts: tuple[UserPrompt, ...] = ()  # without the task and segue's own words
    last_words: str = ""
    statements: tuple[Statement, ...] = ()
    remarks: tuple[Statement, ...] = ()  # unlike everything else that it said
    failures: tuple[CommandResult, ...] = ()  # not fixed since
    results: tuple[CommandResult, ...] = ()
    todos: tuple[Todo, ...] = ()
    files: tuple[FileTouched, ...] = ()
    images: tuple[str, ...] = ()
    compactions: int = 0  # the agent's own

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known."""
        return self == Digest(compactions=self.compactions)
