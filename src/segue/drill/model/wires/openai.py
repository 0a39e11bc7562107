"""Code that both OpenAI APIs share: errors and usage."""

from typing import Any

from segue.core.sessions.spend import Spend
from segue.drill.model.answer import Fault, Refusal
from segue.drill.model.ask import Ask
from segue.drill.model.wires import Http
from segue.drill.model.wires import fields as f

Error = dict[str, Any]

# Status, type, code, message.
_FAULTS: dict[Fault, tuple[int, str, str | None, str]] = {
    "too_long": (
        400,
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is {window} tokens. However, your messages resulted in"
        " {used} tokens. Please reduce the length of the messages.",
    ),
    "rate_limit": (429, "rate_limit_error", "rate_limit_exceeded", "Rate limit reached.{wait}"),
    "plan_limit": (429, "usage_limit_reached", None, "The usage limit has been reached"),
    "overloaded": (503, "server_error", "server_is_overloaded", "The server is overloaded."),
    "server_error": (
        500,
        "server_error",
        None,
        "The server had an error while processing your request. Sorry about that!",
    ),
    "auth": (401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    "billing": (
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "bad_request": (400, "invalid_request_error", None, "Invalid request."),
}


def error(refusal: Refusal, now: float) -> tuple[int, Error]:
    """The HTTP status, and the error object of its body."""
    fault = f.fault_of(refusal)
    status, kind, code, words = _FAULTS[fault]
    used, window = f.used_and_window(refusal)
    wait = refusal.retry_after_s
    again = "" if wait is None else f" Please try again in {f.seconds(wait)}."
    made: Error = {
        "message": refusal.message or words.format(used=used, window=window, wait=again),
        "type": kind,
        "param": None,
        "code": code,
    }
    if fault == "plan_limit":
        made["plan_type"] = "plus"
        if refusal.resets_at is not None:
            made["resets_at"] = -int(-refusal.resets_at // 1)
            made["resets_in_seconds"] = max(0, made["resets_at"] - int(now))
    return status, made


def refuse(ask: Ask | None, refusal: Refusal, now: float) -> Http:
    """The error as an HTTP answer."""
    status, made = error(refusal, now)
    headers = {"x-request-id": f"req_{f.mark(ask) if ask else 0}", **f.retry_headers(refusal)}
    if "plan_type" in made:
        headers["x-codex-primary-used-percent"] = "100"
        headers["x-codex-primary-window-minutes"] = "300"
        if "resets_at" in made:
            headers["x-codex-primary-reset-at"] = str(made["resets_at"])
    body = f.encode({"error": made}) if refusal.body is None else refusal.body.encode()
    return Http(refusal.status or status, {**headers, **refusal.headers}, body)


def prompt(spend: Spend) -> tuple[int, dict[str, int]]:
    """The prompt's tokens (cached ones included), and how many of them were cached."""
    whole = spend.input_tokens + spend.cache_read_tokens + spend.cache_write_tokens
    return whole, {
        "cached_tokens": spend.cache_read_tokens,
        "cache_write_tokens": spend.cache_write_tokens,
    }
