"""Requests in the form of Anthropic's Messages API: one reply, with the retries that were
measured."""

import json
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from segue.drill.rehearsal.client import BrokenError, Model, RefusedError
from segue.drill.rehearsal.inbox import JSON, Inbox, Interrupted
from segue.drill.rehearsal.settings import Settings

_PATH = "/v1/messages?beta=true"
_MAX_OUTPUT_TOKENS = 32_000
_LONGEST_WAIT_S = 60  # if asked to wait longer, it gives up at once
_OVER = re.compile(r"exceed context limit: (\d+) \+ (\d+) > (\d+)")
_TOO_LONG = re.compile(r"prompt is too long(?:: (\d+) tokens > (\d+))?", re.I)
_RETRIED = (401, 408, 409, 429)  # and every status from 500 on
_NAMES = {  # the names of statuses in the records
    400: "invalid_request",
    401: "authentication_failed",
    403: "authentication_failed",
    404: "model_not_found",
    413: "invalid_request",
    429: "rate_limit",
}
_GATEWAY = "Check the gateway set in ANTHROPIC_BASE_URL, then try again."
SYSTEM = "You are the rehearsal agent: you do what you are asked with the tool that you have."
TOOL = {
    "name": "Bash",
    "description": "Runs a shell command in the working folder and gives what it prints.",
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string"}, "description": {"type": "string"}},
        "required": ["command"],
    },
}


class Reply:
    """The model's reply. `first_usage` is what a stream reports at its start, when the output is
    not final."""

    def __init__(self) -> None:
        self.id = self.model = self.stop_reason = self.request = ""
        self.content: list[JSON] = []
        self.usage: JSON = {}
        self.first_usage: JSON = {}
        self.is_whole = False

    @property
    def text(self) -> str:
        """The whole text of the reply."""
        return "".join(block.get("text", "") for block in self.content)

    @property
    def calls(self) -> list[JSON]:
        """The tool calls of the reply."""
        return [block for block in self.content if block.get("type") == "tool_use"]

    def take(self, event: JSON) -> None:
        """Adds one event of a stream."""
        match event.get("type"):
            case "message_start":
                self.take_whole(event["message"])
                self.is_whole = False
            case "content_block_start":
                self.content.append(dict(event["content_block"]))
                self._parts: list[str] = []
            case "content_block_delta":
                delta = event["delta"]
                if "text" in delta:
                    self.content[-1]["text"] = self.content[-1].get("text", "") + delta["text"]
                self._parts.append(delta.get("partial_json", ""))
            case "content_block_stop":
                if given := "".join(self._parts):
                    self.content[-1]["input"] = json.loads(given)
            case "message_delta":
                self.stop_reason = event["delta"].get("stop_reason") or ""
                self.usage = {**self.usage, **event.get("usage", {})}
            case "message_stop":
                self.is_whole = True

    def take_whole(self, message: JSON) -> None:
        """Takes the reply from a message: the whole reply, or the beginning of a stream."""
        self.id, self.model = str(message.get("id", "")), str(message.get("model", ""))
        self.content = [dict(block) for block in message.get("content", [])]
        self.usage = self.first_usage = dict(message.get("usage", {}))
        self.stop_reason = message.get("stop_reason") or ""
        self.is_whole = True


class FailedError(Exception):
    """The request failed for good: the message and the error code that Claude Code gives."""

    def __init__(self, text: str, name: str, cause: RefusedError | BrokenError) -> None:
        self.text, self.name, self.cause = text, name, cause
        refused = isinstance(cause, RefusedError)
        self.status = cause.status if isinstance(cause, RefusedError) else None
        self.type = str(cause.error.get("type", "")) if isinstance(cause, RefusedError) else ""
        self.details = f"{self.status} {cause.body}" if isinstance(cause, RefusedError) else ""
        found = _TOO_LONG.search(cause.message) if isinstance(cause, RefusedError) else None
        over = _OVER.search(cause.message) if isinstance(cause, RefusedError) else None
        self.is_too_long = refused and bool(found or over)
        self.used: str | None = found[1] if found else None
        self.window: str | None = found[2] if found else None
        self.limits: JSON = {}


class Retry:
    """A retry that is about to happen: which one, after what wait, and why."""

    def __init__(self, attempt: int, wait_s: float, cause: RefusedError | BrokenError) -> None:
        self.attempt, self.wait_s, self.cause = attempt, wait_s, cause
        self.status = cause.status if isinstance(cause, RefusedError) else None
        self.name = _name(self.status) if self.status else "unknown"
        self.is_connection = isinstance(cause, BrokenError)


class Api:
    """Sends requests, with retries. `on_retry` is called before each wait, and `on_limits` with the
    state of the plan if it is near its limit or over it."""

    def __init__(self, settings: Settings, inbox: Inbox) -> None:
        self.settings, self.inbox = settings, inbox
        self.model = Model(
            settings.anthropic_url, inbox, timeout_s=settings.timeout_s, idle_s=settings.idle_s
        )
        self.on_retry: Callable[[Retry], None] = lambda retry: None
        self.on_limits: Callable[[JSON], None] = lambda limits: None
        self.partial: Reply | None = None  # the text of an interrupted stream
        self.seconds = 0.0  # time spent on requests

    def ask(self, messages: Sequence[JSON]) -> Reply:
        """The model's reply. Raises `FailedError` and `Interrupted`."""
        body: JSON = {
            "model": self.settings.model,
            "max_tokens": _MAX_OUTPUT_TOKENS,
            "system": [{"type": "text", "text": SYSTEM}],
            "tools": [TOOL],
            "messages": messages,
            "stream": True,
        }
        attempt = 0
        while True:
            try:
                return self._once(body)
            except RefusedError as refused:
                self._tell_limits(refused.headers)
                over = _OVER.search(refused.message)
                if over and body["max_tokens"] == _MAX_OUTPUT_TOKENS:
                    room = int(over[3]) - int(over[1]) - 1_000
                    if room > 0:
                        body["max_tokens"] = room
                        continue
                cause: RefusedError | BrokenError = refused
            except BrokenError as broken:
                cause = broken
            attempt += 1
            wait_s = self._wait_s(attempt, cause)
            if wait_s is not None:
                self.on_retry(Retry(attempt, wait_s, cause))
                self.inbox.sleep(wait_s)
            elif isinstance(cause, BrokenError) and cause.midway and body["stream"]:
                if self.settings.is_streaming_only:
                    raise self._failure(cause)
                body["stream"] = False  # the last try does not use a stream
            else:
                raise self._failure(cause)

    def _once(self, body: JSON) -> Reply:
        reply, began = Reply(), time.monotonic()
        self.partial = None
        try:
            for event in self.model.ask(_PATH, self._headers(), body):
                if event.get("type") == "error":
                    raise BrokenError(
                        "dropped", midway=True
                    )  # an error in a stream that began normally
                if event.get("type") == "message":
                    reply.take_whole(event)
                else:
                    reply.take(event)
        except Interrupted:
            self.partial = reply
            raise
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            raise BrokenError("garbage", midway=True) from None
        finally:
            self.seconds += time.monotonic() - began
        if not reply.is_whole:
            raise BrokenError("dropped", midway=True)
        reply.request = self.model.headers.get("request-id", "")
        self._tell_limits(self.model.headers)
        return reply

    def _headers(self) -> dict[str, str]:
        headers = {"anthropic-version": "2023-06-01", "user-agent": "segue-rehearsal"}
        if self.settings.is_plan:
            return {**headers, "authorization": f"Bearer {self.settings.oauth_token}"}
        return {**headers, "x-api-key": self.settings.api_key}

    def _wait_s(self, attempt: int, cause: RefusedError | BrokenError) -> float | None:
        """The wait before the next try, or None if there is none."""
        if attempt > self.settings.max_retries:
            return None
        if isinstance(cause, RefusedError):
            if cause.status not in _RETRIED and cause.status < 500:
                return None
            if self.settings.is_plan and _limits(cause.headers).get("status") == "rejected":
                return None
            if (asked := cause.retry_after_s) is not None:
                return asked if asked <= _LONGEST_WAIT_S else None
        step = min(0.5 * 2.0 ** (attempt - 1), 32.0)
        return step * (1 + random.random() / 4) * self.settings.wait_scale  # noqa: S311

    def _tell_limits(self, headers: Mapping[str, str]) -> None:
        """Reports the state of the plan, if there is one and it is near its limit or over it."""
        limits = _limits(headers)
        is_news = limits.get("status") in ("rejected", "allowed_warning")
        if self.settings.is_plan and is_news:
            self.on_limits(limits)

    def _failure(self, cause: RefusedError | BrokenError) -> FailedError:
        if isinstance(cause, BrokenError):
            return FailedError(_broken(cause), "server_error", cause)
        status, message = cause.status, cause.message
        name = _name(status)
        limits = _limits(cause.headers)
        if self.settings.is_plan and limits.get("status") == "rejected":
            failed = FailedError(_plan_text(limits), name, cause)
            failed.limits = limits
            return failed
        if _TOO_LONG.search(message) or _OVER.search(message):
            text = "Prompt is too long"
        elif "credit balance is too low" in message.lower():
            text, name = "Credit balance is too low", "billing_error"
        elif status == 401:
            text = "Invalid API key · Fix external API key"
        elif status == 413:
            text = "Request too large (max 32MB)"
        elif status == 429:
            text = f"API Error: Request rejected (429) · {message}"
        elif status >= 500:
            reason = "Overloaded" if status == 529 else message.rstrip(".")
            text = (
                f"API Error: {status} {reason}. This is a server-side issue, usually temporary — "
                "try again in a moment."
            )
        else:
            text = f"API Error: {status} {message}"
        return FailedError(text, name, cause)


def _name(status: int) -> str:
    return _NAMES.get(status, "server_error" if status >= 500 else "invalid_request")


def _broken(cause: BrokenError) -> str:
    if cause.code == "timeout":
        return "Request timed out"
    if cause.code == "refused":
        return f"API Error: Connection refused (ECONNREFUSED). {_GATEWAY}"
    if cause.midway:
        return f"API Error: Connection to the API was lost (ECONNRESET). {_GATEWAY}"
    return f"API Error: Connection dropped (ECONNRESET). {_GATEWAY}"


def _limits(headers: Mapping[str, str]) -> JSON:
    """The state of a plan, from an answer's headers, in the form of the records."""
    prefix = "anthropic-ratelimit-unified-"
    status = headers.get(f"{prefix}status", "")
    if not status:
        return {}
    scope = headers.get(f"{prefix}representative-claim", "") or "five_hour"
    short = {"five_hour": "5h", "seven_day": "7d"}.get(scope, scope)
    resets = headers.get(f"{prefix}{short}-reset") or headers.get(f"{prefix}reset")
    limits: JSON = {"status": status, "rateLimitType": scope, "isUsingOverage": False}
    with suppress(ValueError):
        limits["resetsAt"] = int(float(resets or ""))
    with suppress(ValueError):
        limits["utilization"] = float(headers.get(f"{prefix}{short}-utilization", ""))
    return limits


def _plan_text(limits: JSON) -> str:
    names = {"five_hour": "5-hour", "seven_day": "weekly"}
    text = f"You've hit your {names.get(limits['rateLimitType'], 'usage')} limit"
    if "resetsAt" not in limits:
        return text
    at = time.gmtime(limits["resetsAt"])
    minutes = f":{at.tm_min:02}" if at.tm_min else ""
    half = "am" if at.tm_hour < 12 else "pm"
    return f"{text} · resets {at.tm_hour % 12 or 12}{minutes}{half} (UTC)"
