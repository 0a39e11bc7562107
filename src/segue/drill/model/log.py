"""The log of the scripted model: one record per request, with its answer."""

import re
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from segue.drill.model.answer import ModelAnswer
from segue.drill.model.ask import Ask, Kind

_STEP = re.compile(r"job/(step \d+|show)\b")
_LABEL_CHARS = 60


class Logged(Struct, kw_only=True):
    """One request. It exists once its answer is decided; `ended_at`, `is_finished` and, if the
    delivery broke, `error` are filled in when the delivery has ended."""

    number: int
    at: float  # unix time
    method: str
    path: str
    wire: str = ""  # "": the path belongs to no wire
    kind: Kind | None = None
    model: str = ""
    is_stream: bool = False
    sent_bytes: int = 0  # of the request's body
    # tokens of the prompt: as counted, otherwise as the answer reports it
    tokens: int | None = None
    answered: str = ""  # a fault, "step 3", "look", "summary", "text", "count", or another command
    delivery: str = "whole"
    status: int | None = None  # None: no headers were sent
    ended_at: float | None = None
    is_finished: bool = False  # everything was sent
    error: str = ""  # why the delivery broke, or what is wrong with the request or the script
    body: Any | UnsetType = UNSET  # only if bodies are logged


def label(answer: ModelAnswer) -> str:
    """The answer in a word or two: a fault, the step that it calls, "text", "count"."""
    if answer.refusal is not None:
        refusal = answer.refusal
        return refusal.fault or f"status {refusal.status or 500}"
    reply = answer.reply
    if reply is None:
        return "count" if answer.input_tokens is not None else "nothing"
    if not reply.calls:
        return "text"
    command = reply.calls[0].command
    found = _STEP.search(command)
    return found[1] if found else command[:_LABEL_CHARS]


def prompt_tokens(answer: ModelAnswer) -> int | None:
    """The size of the prompt, if the answer states it."""
    if answer.reply is not None:
        spend = answer.reply.spend
        return spend.total_tokens - spend.output_tokens
    if answer.refusal is not None:
        return answer.refusal.used_tokens
    return answer.input_tokens


def fill(logged: Logged, ask: Ask, answer: ModelAnswer) -> None:
    """Fills in the fields that are known once the answer is decided."""
    logged.wire, logged.model, logged.kind = ask.wire, ask.model, ask.kind
    logged.is_stream = ask.is_stream
    logged.answered, logged.delivery = answer.decision or label(answer), answer.delivery
    counted = answer.counted_tokens
    logged.tokens = prompt_tokens(answer) if counted is None else counted
