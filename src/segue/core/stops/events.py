"""What happened in a session, in terms common to all agents.

Parsers in `segue.agents` turn bytes into these events; `segue.core.stops.classify` folds them into
a stop. An event says what a record *is*, not what follows from it. That only the last turn counts,
and that an error after which the agent continued is not a stop, is decided in one place, by the
fold.
"""

from typing import Any, Literal

from msgspec import Struct

from segue.core.sessions.remarks import Todo
from segue.core.sessions.spend import Spend
from segue.core.stops.reasons import StopReason
from segue.core.stops.types import UserExitType


class Event(Struct, frozen=True, kw_only=True):
    """Common to all events: where the record is, and its own time if it has one."""

    where: str = ""  # e.g. "stdout:12"
    at: float | None = None  # unix time


class Started(Event, frozen=True, kw_only=True):
    """A process or a turn starts: what came before does not decide this ending."""

    session_id: str | None = None
    model: str | None = None
    cwd: str | None = None


class Prompt(Event, frozen=True, kw_only=True):
    """The user's own words, not a tool result or a text that the agent inserted."""

    text: str = ""
    images: tuple[str, ...] = ()  # their names, if the record has them


class Reply(Event, frozen=True, kw_only=True):
    """The model speaks on the main thread. Never an error that the client reports as a reply."""

    text: str = ""


class ToolCall(Event, frozen=True, kw_only=True):
    """The model calls a tool on the main thread."""

    name: str = ""
    call_id: str = ""
    command: str = ""  # the command for a shell
    argument: str = ""  # all arguments in short; the same call has the same text
    files: tuple[str, ...] = ()  # files that it writes
    given: Any = None  # the arguments as in the record, complete; only for the digest


class TodoList(Event, frozen=True, kw_only=True):
    """The agent's own todo list, or the items that this record changes, on the main thread."""

    todos: tuple[Todo, ...] = ()


class ToolResult(Event, frozen=True, kw_only=True):
    """A tool's result. Its output is only for the digest: code that judges a stop must not read it,
    however much it looks like a stop message."""

    call_id: str = ""
    denied: bool = False  # a permission was refused, or nobody was there to grant it
    exit_code: int | None = None  # of a shell command, if the record has it
    failed: bool = False
    failing_tests: tuple[str, ...] = ()  # test names in its text
    printed: str = ""


class Usage(Event, frozen=True, kw_only=True):
    """The actual size of the context after a reply on the main thread."""

    used_tokens: int
    window_tokens: int | None = None
    parts: Spend | None = None  # None if the agent reports only the sum
    model: str | None = None


class Compaction(Event, frozen=True, kw_only=True):
    """The agent's own compaction; after "done" it continues with `used_tokens`."""

    phase: Literal["started", "done", "failed"]
    used_tokens: int | None = None
    before_tokens: int | None = None
    message: str = ""
    ends_turn: bool = False
    """Nothing says that the agent continues: it may compact at the end of a turn, or because the
    user asked for it."""


class Summary(Event, frozen=True, kw_only=True):
    """What the agent's own compaction kept of the conversation, in the words it continues with."""

    text: str


class Limit(Event, frozen=True, kw_only=True):
    """What the provider said about a plan window. Only `rejected` is (part of) a stop."""

    rejected: bool
    scope: str | None = None
    resets_at: float | None = None
    used_percent: float | None = None


class Retry(Event, frozen=True, kw_only=True):
    """The agent retries by itself, which is not a stop."""

    message: str = ""
    status: int | None = None
    wait_s: float | None = None


class Failure(Event, frozen=True, kw_only=True):
    """The client reports an error, which counts if nothing of the turn follows it.

    `reason` is what the record's own code means, or None if it has no meaningful code. Wordings
    read the message in any case, and a sentence there beats a coarse code.
    """

    message: str = ""
    reason: StopReason | None = None
    code: str | None = None  # e.g. "rate_limit", "context_window_exceeded", "APIError"
    status: int | None = None  # HTTP
    resets_at: float | None = None
    retry_after_s: float | None = None
    exit_type: UserExitType | None = None  # how the user ended it, if the record says so


class Ended(Failure, frozen=True, kw_only=True):
    """The agent's own statement that the turn has ended.

    `ok` without a reason is `completed`. If it is not `ok` and has no reason, the code, status and
    message and the failure before it decide.
    """

    ok: bool = False
    may_continue: bool = False
    """Its records look the same for a moment if the agent is about to continue."""


class Other(Event, frozen=True, kw_only=True):
    """Any other record; `known` if it is known to be irrelevant."""

    kind: str = ""
    known: bool = True
