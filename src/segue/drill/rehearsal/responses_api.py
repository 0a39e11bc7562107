"""Requests in the form of OpenAI's Responses API: one reply, with the retries that Codex makes."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from segue.drill.rehearsal.client import BrokenError, Model, RefusedError
from segue.drill.rehearsal.inbox import JSON, Inbox
from segue.drill.rehearsal.settings import Settings

STREAM_RETRIES = 5
_REQUEST_RETRIES = 4  # of each kind, before it is reported
_FIRST_WAIT_S = 0.2
_NETWORK_WAITS_S = (5, 10, 20, 40, 60)
_BUSY = "We’re currently experiencing high demand, which may cause temporary errors."
_FULL = (
    "Codex ran out of room in the model's context window. Start a new thread or clear earlier "
    "history before retrying."
)
_CUT = "stream disconnected before completion: "
_ORDINALS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
INSTRUCTIONS = "You are the rehearsal agent: you do what you are asked with the tool that you have."
TOOL = {
    "type": "function",
    "name": "exec_command",
    "description": "Runs a shell command in the working folder and gives what it prints.",
    "parameters": {
        "type": "object",
        "properties": {"cmd": {"type": "string"}},
        "required": ["cmd"],
    },
}
Info = str | JSON  # the value of `codex_error_info`


class Reply:
    """The model's reply."""

    def __init__(self) -> None:
        self.id = ""
        self.items: list[JSON] = []
        self.usage: JSON = {}
        self.is_whole = False


class FailedError(Exception):
    """The request failed for good, with its message."""

    def __init__(self, message: str, info: Info) -> None:
        self.message, self.info = message, info

    @property
    def is_full(self) -> bool:
        """Whether the window is full."""
        return self.info == "context_window_exceeded"


class _Again(Exception):  # noqa: N818 - not the end
    """A failure after which another stream is tried. `wait_s` None: after the client's own wait."""

    def __init__(self, failed: FailedError, wait_s: float | None = None) -> None:
        self.failed, self.wait_s = failed, wait_s


class Api:
    """Sends requests, with retries. `on_retry` is called before each wait with the line to
    print."""

    def __init__(self, settings: Settings, inbox: Inbox) -> None:
        self.settings, self.inbox = settings, inbox
        # Without an answer it waits forever; within a stream, for the idle time.
        self.model = Model(settings.openai_url, inbox, timeout_s=1e6, idle_s=settings.idle_s)
        self.on_retry: Callable[[str], None] = lambda message: None
        self.limits: JSON = {}  # the plan's limits, from the last answer

    def ask(self, items: Sequence[JSON]) -> Reply:
        """The model's reply. Raises `FailedError` and `Interrupted`."""
        body = {
            "model": self.settings.model,
            "instructions": INSTRUCTIONS,
            "input": items,
            "tools": [TOOL],
            "tool_choice": "auto",
            "store": False,
            "stream": True,
        }
        attempt = lost = 0
        while True:
            try:
                return self._stream(body)
            except BrokenError:  # nobody is listening: it waits for the network forever
                wait_s = _NETWORK_WAITS_S[min(lost, len(_NETWORK_WAITS_S) - 1)]
                lost += 1
                message = "Connection failed: error sending request"
                self.on_retry(f"Reconnecting... waiting for network ({message})")
                self.inbox.sleep(wait_s * self.settings.wait_scale)
            except _Again as again:
                if attempt == STREAM_RETRIES:
                    raise again.failed from None
                attempt += 1
                message = again.failed.message
                self.on_retry(f"Reconnecting... {attempt}/{STREAM_RETRIES} ({message})")
                own = _FIRST_WAIT_S * 2 ** (attempt - 1) * self.settings.wait_scale
                self.inbox.sleep(own if again.wait_s is None else again.wait_s)

    def _stream(self, body: JSON) -> Reply:
        """One stream, with the retries of its first request."""
        for attempt in range(_REQUEST_RETRIES + 1):
            try:
                return self._once(body)
            except RefusedError as refused:
                self._take_limits(refused.headers)
                failed, wait_s = self._refused(refused)
                if refused.status < 500 or attempt == _REQUEST_RETRIES:
                    if wait_s is None:
                        raise failed from None
                    raise _Again(failed, wait_s if wait_s > 0 else None) from None
                self.inbox.sleep(_FIRST_WAIT_S * 2**attempt * self.settings.wait_scale)
            except BrokenError as broken:
                if broken.code == "refused":
                    raise
                raise _Again(FailedError(_CUT + _broken(broken), "other")) from None
        raise AssertionError("the last try ends it")

    def _once(self, body: JSON) -> Reply:
        reply = Reply()
        headers = {"authorization": f"Bearer {self.settings.openai_key}"}
        for event in self.model.ask("/responses", headers, body):
            self._take_limits(self.model.headers)
            response = event.get("response")
            fields = response if isinstance(response, dict) else {}
            match event.get("type"):
                case "response.output_item.done":
                    reply.items.append(dict(event["item"]))
                case "response.completed":
                    reply.id, reply.is_whole = str(fields.get("id", "")), True
                    reply.usage = _usage(fields.get("usage"))
                case "response.failed":
                    raise _stream_failure(fields.get("error"))
                case "response.incomplete":
                    details = fields.get("incomplete_details")
                    why = details.get("reason") if isinstance(details, dict) else ""
                    raise FailedError(f"Incomplete response returned, reason: {why}", "other")
        if not reply.is_whole:
            failed = FailedError(f"{_CUT}stream closed before response.completed", "other")
            raise _Again(failed)
        return reply

    def _refused(self, refused: RefusedError) -> tuple[FailedError, float | None]:
        """The resulting error, and the wait before the next stream: None if there is none, 0 if the
        server states none."""
        status, kind = refused.status, refused.error.get("type")
        if kind == "usage_limit_reached":
            return FailedError(_usage_text(refused.error), "usage_limit_exceeded"), None
        if refused.error.get("code") == "server_is_overloaded":
            message = "Selected model is at capacity. Please try a different model."
            return FailedError(message, "server_overloaded"), None
        if status == 429:
            message = "exceeded retry limit, last status: 429 Too Many Requests"
            info: Info = {"response_too_many_failed_attempts": {"http_status_code": 429}}
            return FailedError(message, info), refused.retry_after_s
        if status == 500:
            return FailedError(_BUSY, "internal_server_error"), 0.0
        if status == 400:
            return FailedError(refused.body, "other"), None
        named = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
        url = f"http://{self.model.host}:{self.model.port}{self.model.path}/responses"
        message = f"unexpected status {status} {named}: {refused.message}, url: {url}"
        return FailedError(message, {"http_connection_failed": {"http_status_code": status}}), 0.0

    def _take_limits(self, headers: Mapping[str, str]) -> None:
        self.limits = {}
        for place in ("primary", "secondary"):
            used = headers.get(f"x-codex-{place}-used-percent")
            if used is not None:
                minutes = headers.get(f"x-codex-{place}-window-minutes") or "0"
                resets = headers.get(f"x-codex-{place}-reset-at") or "0"
                self.limits[place] = {
                    "used_percent": float(used),
                    "window_minutes": int(minutes),
                    "resets_at": int(resets),
                }


def _stream_failure(error: object) -> Exception:
    """The exception for a failure that the stream itself reports."""
    details = error if isinstance(error, dict) else {}
    code, message = str(details.get("code", "")), str(details.get("message", ""))
    if code == "context_length_exceeded":
        return FailedError(_FULL, "context_window_exceeded")
    if code == "insufficient_quota":
        return FailedError(
            "Quota exceeded. Check your plan and billing details.", "usage_limit_exceeded"
        )
    if code == "usage_limit_reached":
        return FailedError(_usage_text(details), "usage_limit_exceeded")
    if code == "server_is_overloaded":
        words = "Selected model is at capacity. Please try a different model."
        return FailedError(words, "server_overloaded")
    if code == "rate_limit_exceeded":
        asked = re.search(r"try again in ([\d.]+)(ms|s)", message)
        wait_s = None
        if asked:
            wait_s = float(asked[1]) / (1000 if asked[2] == "ms" else 1)
        return _Again(FailedError(f"rate limit exceeded: {message}", "rate_limit_exceeded"), wait_s)
    return _Again(FailedError(_CUT + message, "other"))


def _broken(broken: BrokenError) -> str:
    if broken.code == "timeout":
        return "idle timeout waiting for SSE"
    if broken.midway:
        return "Transport error: network error: error decoding response body"
    return "error sending request"


def _usage_text(error: JSON) -> str:
    resets = error.get("resets_at")
    if not isinstance(resets, (int, float)):
        return "You’ve hit your usage limit. Try again later."
    at = time.localtime(resets)
    day = f"{at.tm_mday}{_ORDINALS.get(at.tm_mday, 'th')}"
    clock = f"{at.tm_hour % 12 or 12}:{at.tm_min:02} {'AM' if at.tm_hour < 12 else 'PM'}"
    when = f"{time.strftime('%b', at)} {day}, {at.tm_year} {clock}"
    return (
        "You’ve hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro), visit "
        "https://chatgpt.com/settings/usage to purchase more credits or try again at "
        f"{when}."
    )


def _usage(given: object) -> JSON:
    """Usage in the form of the session file. The input includes the cached part."""
    usage = given if isinstance(given, dict) else {}
    cached = usage.get("input_tokens_details") or {}
    thought = usage.get("output_tokens_details") or {}
    asked, output = int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0)
    return {
        "input_tokens": asked,
        "cached_input_tokens": int(cached.get("cached_tokens") or 0),
        "cache_write_input_tokens": int(cached.get("cache_write_tokens") or 0),
        "output_tokens": output,
        "reasoning_output_tokens": int(thought.get("reasoning_tokens") or 0),
        "total_tokens": asked + output,
    }
