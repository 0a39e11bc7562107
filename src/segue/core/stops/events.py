"""What happened in a session, agent by agent told in the same words.

Parsers in `segue.agents` turn bytes into these; `segue.core.stops.classify` folds them into a stop.
An event says what a record *is*, not what follows from it: only the last turn counts, and an
error after which the agent went on is no stop. That is decided in one place, by the fold.
"""

from typing import Any, Literal

from msgspec import Struct

from segue.core.sessions.remarks import Todo
from segue.core.sessions.spend import Spend
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import UserExitType


class Event(Struct, frozen=True, kw_only=True):
    """Common to all events: where the record stands, and its own time if it has one."""

    where: str = ""  # e.g. "stdout:12"
    at: float | None = None  # unix time


class Started(Event, frozen=True, kw_only=True):
    """A process or a turn begins: what came before does not decide this ending."""

    session_id: str | None = None
    model: str | None = None
    cwd: str | None = None


class Prompt(Event, frozen=True, kw_only=True):
    """The user's own words (not a tool result, not a text the agent put in by itself)."""

    text: str = ""
    images: tuple[str, ...] = ()  # by name, where the record tells one


class Reply(Event, frozen=True, kw_only=True):
    """The model speaks, on the main thread. Never an error that the client put in its mouth."""

    text: str = ""


class ToolCall(Event, frozen=True, kw_only=True):
    """The model asks for a tool, on the main thread."""

    name: str = ""
    call_id: str = ""
    command: str = ""  # what a shell is to run
    argument: str = ""  # all that it is given, in short: the same call has the same
    files: tuple[str, ...] = ()  # that it writes
    given: Any = None  # the arguments as the record has them, whole; for the digest alone


class TodoList(Event, frozen=True, kw_only=True):
    """The agent's own list of todos, or those of its items that this record sets, on the main
    thread."""

    todos: tuple[Todo, ...] = ()


class ToolResult(Event, frozen=True, kw_only=True):
    """A tool answered. What it printed is for the digest alone: nothing that judges a stop may read
    it, however much it looks like a stop message."""

    call_id: str = ""
    denied: bool = False  # a permission was refused or nobody was there to grant it
    exit_code: int | None = None  # of a shell's command, where the record tells
    failed: bool = False
    failing_tests: tuple[str, ...] = ()  # that its text names
    printed: str = ""


class Usage(Event, frozen=True, kw_only=True):
    """The true size of the context after a main-thread reply."""

    used_tokens: int
    window_tokens: int | None = None
    parts: Spend | None = None  # None where the agent only tells the sum
    model: str | None = None


class Compaction(Event, frozen=True, kw_only=True):
    """The agent's own compaction: after "done" it goes on with `used_tokens`."""

    phase: Literal["started", "done", "failed"]
    used_tokens: int | None = None
    before_tokens: int | None = None
    message: str = ""
    ends_turn: bool = False
    """Nothing says that the agent continues: it may compact at the end of a turn, or because the
    user tells it to."""


class Summary(Event, frozen=True, kw_only=True):
    """What the agent's own compaction left of the conversation, in the words it goes on with."""

    text: str


class Limit(Event, frozen=True, kw_only=True):
    """What the provider said about a plan window. Only `rejected` is (part of) a stop."""

    rejected: bool
    scope: str | None = None
    resets_at: float | None = None
    used_percent: float | None = None


class Retry(Event, frozen=True, kw_only=True):
    """The agent is trying again by itself: not a stop."""

    message: str = ""
    status: int | None = None
    wait_s: float | None = None


class Failure(Event, frozen=True, kw_only=True):
    """The client speaks as an error. Counts if nothing of the turn comes after it.

    `reason` is what the record's own code says, None if it has no telling code; the message is
    read by the wordings in any case, and a sentence there beats a coarse code.
    """

    message: str = ""
    reason: StopReason | None = None
    code: str | None = None  # e.g. "rate_limit", "context_window_exceeded", "APIError"
    status: int | None = None  # HTTP
    resets_at: float | None = None
    retry_after_s: float | None = None
    exit_type: UserExitType | None = None  # how the user ended it, where the record tells


class Ended(Failure, frozen=True, kw_only=True):
    """The agent's own statement that the turn is over.

    `ok` with no reason is `completed`; not `ok` with no reason leaves it to code, status and
    message, and to the failure before it.
    """

    ok: bool = False


class Other(Event, frozen=True, kw_only=True):
    """A record that is none of the above; `known` if we know that it does not matter."""

    kind: str = ""
    known: bool = True
