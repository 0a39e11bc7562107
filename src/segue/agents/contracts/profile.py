"""An agent's profile: capability flags and a parser, nothing else.

A profile is data and a few pure functions. No code outside an agent's own folder may ask which
agent it is: it asks for a flag here.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from segue.agents.places import SessionStore
from segue.agents.signs import Signs
from segue.core.stops.events import Event
from segue.core.stops.reasons import StopReason

if TYPE_CHECKING:
    from segue.agents.contracts.counter import Count


class Record(Struct, frozen=True):
    """One JSON object of a stream or session file, and its position ("stdout:12")."""

    data: dict[str, Any]
    where: str = ""


Parse = Callable[[Iterable[Record]], Iterator[Event]]


def no_limit(window_tokens: int) -> int | None:
    """The agent uses its whole window."""
    return None


class Profile(Struct, frozen=True, kw_only=True):
    """An agent as segue sees it."""

    name: str  # as its binary
    knows: Callable[[dict[str, Any]], bool]
    """Whether this record certainly comes from this agent, in any form (stream, result, session
    file). Must be cheap and strict: it is called for records whose agent is unknown."""
    resembles: Callable[[dict[str, Any]], bool] | None = None
    """Whether the record could come from this agent, or from one that copied its format. Called
    when no agent knows the record."""
    parse: Parse
    """Turns the records of one stream or one session file, oldest first, into events. The input may
    start anywhere (a tail); the parser must end where the input ends, and never raise on odd
    shapes."""
    exit_reasons: dict[int, StopReason] = field(default_factory=dict)
    """Exit codes with a special meaning."""
    exit_is_http_status: bool = False
    """Exits with the failed request's HTTP status modulo 256."""
    cut_exit_reasons: dict[int, StopReason] = field(default_factory=dict)
    """What an exit code means when the stream has records but no closing one."""
    silent_exit_reasons: dict[int, StopReason] = field(default_factory=dict)
    """What an exit code means when nothing at all was printed."""
    zero_means_done: bool = False
    """In text mode, exit code 0 proves that the turn ended well."""
    store: SessionStore | None = None
    """Where a plug-in's sessions are; those of built-in agents are in `segue.agents.places`."""
    counter: "Count | None" = None
    """How to count a plug-in's session files; a built-in agent has `COUNTER` in its `counter`
    module."""
    signs: Signs | None = None
    """How to detect that a plug-in's agent is running; those of the built-in ones are in
    `segue.agents.signs`."""
    windows: dict[str, int] = field(default_factory=dict)
    """The windows that this agent uses if its records do not say, by the beginning of the model's
    name; they come before the common table. "" is its window for unknown models."""
    window_in: Callable[[dict[str, Any], str], int | None] | None = None
    """The window of a model according to the agent's own config file (`SessionStore.configs`)."""
    enforced: Callable[[int], int | None] = no_limit
    """The size at which it compacts or refuses by itself, given its window; None if it does not."""
