"""Decides whether a task may still start: how large it will be, and what to say about it.

The size is an estimate, and so is the answer. By default a task that is too large starts with a
warning; it is refused only if the user asked for that (`gate = "block"`).
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from segue.core.policy import Policy
from segue.core.sessions.forecasts.forecast import fits
from segue.core.sessions.forecasts.growth import MIN_TASKS, bounded, typical_task
from segue.core.sessions.reading import Reading, Zone

CHARS_PER_TOKEN = 4  # of prose
BYTES_PER_TOKEN = 3.5  # of code with line numbers, as agents read it


class Sized(Struct, frozen=True):
    """How many tokens something will take, and how segue knows."""

    tokens: int
    source: Literal["told", "prompt", "history", "file"]
    why: str


class Gate(Struct, frozen=True):
    """The answer to a task. `text` explains it, and is empty if the task may start; the numbers are
    for callers that word the answer differently."""

    verdict: Literal["allow", "warn", "block"]
    text: str = ""
    percent: int = 0
    tokens: int = 0
    limit_tokens: int = 0  # the largest task that would start without a warning


def stated(tokens: int) -> Sized:
    """A size that was stated explicitly."""
    return Sized(bounded(tokens), "told", "as given")


def size_of_prompt(chars: int, costs: Sequence[int]) -> Sized:
    """What the task in a prompt will cost: its own text, and what tasks here usually cost.
    `costs`: the costs of the project's earlier tasks (`growth.task_costs`). With fewer than
    `growth.MIN_TASKS` of them only the text counts, which is too little rather than too
    much."""
    own = max(1, -(-bounded(chars) // CHARS_PER_TOKEN))
    usual = typical_task(costs)
    if usual is None:
        known = sum(cost > 0 for cost in costs)
        why = f"from its text alone: {known} earlier tasks are known here, {MIN_TASKS} are needed"
        return Sized(own, "prompt", why)
    median = f"{usual.median_tokens:,}, the median of {usual.tasks} earlier tasks here"
    why = f"from its text, plus {median}"
    return Sized(own + usual.median_tokens, "history", why)


def size_of_tool(name: str, argument_bytes: int, file_bytes: int | None) -> Sized:
    """What a tool call will add: its input, and the file that it reads if that is known."""
    own = _tokens(argument_bytes)
    if file_bytes is None:
        why = f"from the input of {name}; the size of its result is unknown"
        return Sized(max(1, own), "prompt", why)
    return Sized(
        max(1, own + _tokens(file_bytes)), "file", f"{name} of {bounded(file_bytes):,} bytes"
    )


def gate(
    sized: Sized,
    reading: Reading,
    zone: Zone,
    policy: Policy,
    *,
    enforced_at_tokens: int | None = None,
) -> Gate:
    """What the policy says about a task of this size; never raises. In the warning zone only small
    tasks may start, in critical only tiny ones, in handoff none, and in no zone one that would use
    up the reserve. `zone` is the session's zone, which may last a little longer than the reading
    says (`zones`). If the window is unknown, everything is allowed. Do not call it for segue's own
    prompts."""
    if policy.gate == "off":
        return Gate("allow")
    fit = fits(
        sized.tokens,
        reading,
        policy,
        reserve_tokens=policy.reserve_tokens,
        enforced_at_tokens=enforced_at_tokens,
    )
    if fit.because == "unknown_window":
        return Gate("allow")
    limit = fit.room_tokens if fit.because != "handoff" else 0
    for held, size in (
        (Zone.WARNING, policy.warning_task_tokens),
        (Zone.CRITICAL, policy.critical_task_tokens),
        (Zone.HANDOFF, 1),
    ):
        if list(Zone).index(zone) >= list(Zone).index(held):
            limit = min(limit, max(0, size - 1))
    need = max(1, sized.tokens)
    percent = round(min(reading.fraction, 9.99) * 100)
    if need <= limit:
        return Gate("allow", "", percent, need, limit)
    verdict: Literal["warn", "block"] = "block" if policy.gate == "block" else "warn"
    room = f"tasks may take up to {limit:,} tokens" if limit else "no new task should start"
    text = (
        f"Context at {percent}%, complete large tasks after handoff. This one is estimated at"
        f" {need:,} tokens ({sized.why}); in this session, {room} now."
    )
    return Gate(verdict, text, percent, need, limit)


def _tokens(count: int) -> int:
    return int(bounded(count) / BYTES_PER_TOKEN)
