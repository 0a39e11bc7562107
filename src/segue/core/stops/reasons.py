"""Why a session stops: one table, in order of priority. Everything that depends on the reason is a
column here; a new reason is a new row, and `tests/core/stops/test_reasons.py` says what it lacks.

The order is rate limit, completed, full window, the errors, the user's exit, unknown. Errors come
before the user's exit, because people often close an agent by hand after it died of an error. The
order decides only between signs of equal rank and strength (`classify`).
"""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

Resume = Literal["same_session", "new_session", "none"]
Nature = Literal["done", "passing", "full", "account", "final", "broken", "user"]
"""passing: ends by itself after a while. account: the user's plan, key or budget. final: nothing
follows without the user. broken: the process or its connection. user: waits for the user, or was
ended by the user."""


class Facts(Struct, frozen=True, kw_only=True):
    """Everything that follows from one reason."""

    description: str  # a few words for people and logs
    remedy: str  # what the user can do
    nature: Nature
    resume: Resume = "none"  # how work continues without the user, by default
    exit_code: int = 1  # exit code of a run that ends this way
    colour: str = "red"
    is_noticed: bool = True  # whether it is worth a notice
    at_prompt: bool = True  # may leave an agent at its prompt with work left
    loads: bool = True  # False: if there was no reply, the session failed to load
    why: str = ""  # what the next session is told; "" means the description
    why_again: str = ""  # what the same session is told when it is resumed


class StopReason(StrEnum):
    """The values users see, in order of priority: the first wins between signs of equal weight."""

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
    def facts(self) -> Facts:
        """This reason's row in the table."""
        return TABLE[self]

    @property
    def priority(self) -> int:
        """0 for the reason that wins every tie."""
        return _PRIORITY[self]

    @property
    def resume(self) -> Resume:
        """How work continues by default: in the same session, in a new one, or not at all."""
        return TABLE[self].resume

    @property
    def should_auto_resume(self) -> bool:
        """Whether work continues without the user, by default."""
        return TABLE[self].resume != "none"

    @property
    def description(self) -> str:
        """A few words for people and logs."""
        return TABLE[self].description


TABLE = {
    StopReason.RATE_LIMIT: Facts(
        description="rate limited",
        remedy="Wait until the limit resets, then resume the same session. To continue now, use"
        " another model, account or plan.",
        nature="passing",
        resume="same_session",
        exit_code=75,
        colour="yellow",
        why="The previous session reached a rate limit, and could not be resumed.",
        why_again="A rate limit was reached; it has reset now.",
    ),
    StopReason.COMPLETED: Facts(
        description="completed",
        remedy="Nothing to do.",
        nature="done",
        exit_code=0,
        colour="green",
        is_noticed=False,
        at_prompt=False,
        why="The previous session ended, but the task is not done.",
        why_again="The turn ended, but the task is not done.",
    ),
    StopReason.CONTEXT_EXHAUSTED: Facts(
        description="context window exhausted",
        remedy="Start a new session with a checkpoint of this one; resuming it would fail the same"
        " way. Smaller tasks, or a model with a larger window, avoid it.",
        nature="full",
        resume="new_session",
        colour="magenta",
        loads=False,
        why="The previous session's context window was full, or nearly so.",
    ),
    StopReason.BILLING: Facts(
        description="out of credit, or not part of the plan",
        remedy="Add credit, raise the cap or change the plan with the provider; waiting does not"
        " help.",
        nature="account",
    ),
    StopReason.AUTH: Facts(
        description="not signed in, or not allowed",
        remedy="Sign in again or correct the API key, then resume the same session.",
        nature="account",
    ),
    StopReason.MAX_BUDGET: Facts(
        description="the budget that was set is used up",
        remedy="Raise the budget for this work, then resume the session.",
        nature="account",
    ),
    StopReason.MAX_TURNS: Facts(
        description="the turn limit that was set is reached",
        remedy="Raise the turn limit, then resume the same session: its work is kept.",
        nature="final",
        why="The previous session reached its turn limit.",
        why_again="The turn limit was reached.",
    ),
    StopReason.REFUSAL: Facts(
        description="the model or its provider refused",
        remedy="Reword the task or do this part yourself; unchanged, it would be refused again.",
        nature="final",
    ),
    StopReason.OVERLOADED: Facts(
        description="provider overloaded, or the connection failed",
        remedy="Try the same session again in a while; nothing is wrong with it.",
        nature="passing",
        resume="same_session",
        exit_code=75,
        colour="yellow",
        why="The provider of the previous session was overloaded or unreachable.",
        why_again="The provider was overloaded or unreachable; segue tries again.",
    ),
    StopReason.TIMEOUT: Facts(
        description="timed out",
        remedy="Resume the same session if it made progress; otherwise raise the time limit or"
        " split the task.",
        nature="broken",
        resume="same_session",
        exit_code=124,
        colour="yellow",
        why="The previous session timed out.",
        why_again="The session timed out.",
    ),
    StopReason.CRASH: Facts(
        description="crashed, or was killed",
        remedy="Resume the same session; if it does not load, start a new one from what was kept."
        " Check memory if it happens again.",
        nature="broken",
        resume="same_session",
        loads=False,
        why="The previous session crashed or was killed.",
        why_again="The session's process crashed or was killed.",
    ),
    StopReason.NEEDS_USER: Facts(
        description="waiting for a permission or an answer",
        remedy="Answer the agent's question or grant the permission; then it continues.",
        nature="user",
        exit_code=3,
        at_prompt=False,
        why="The previous session ended while waiting for an answer from the user.",
        why_again="The session was waiting for an answer from the user.",
    ),
    StopReason.ERROR: Facts(
        description="failed with an error",
        remedy="Read the error; the same request would fail again.",
        nature="final",
        loads=False,
    ),
    StopReason.USER_EXIT: Facts(
        description="ended by the user",
        remedy="Session ended by user, not auto-resuming.",
        nature="user",
        exit_code=130,
        colour="cyan",
        is_noticed=False,
        at_prompt=False,
        why="The previous session was ended by the user, who then resumed it.",
        why_again="The user ended the session and then resumed it.",
    ),
    StopReason.UNKNOWN: Facts(
        description="unknown",
        remedy="Look at the end of the output; nothing in it says why it stopped.",
        nature="final",
        colour="bright_black",
        at_prompt=False,
        loads=False,
        why="The previous session stopped.",
    ),
}
"""Every reason, in order of priority."""

_PRIORITY = {reason: place for place, reason in enumerate(StopReason)}


def of_nature(*natures: Nature) -> frozenset[StopReason]:
    """The reasons of these natures."""
    return frozenset(reason for reason, facts in TABLE.items() if facts.nature in natures)
