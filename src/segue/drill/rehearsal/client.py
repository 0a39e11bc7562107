"""Sends requests to the model over HTTP, on loopback only, and yields its stream event by event."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from urllib.parse import urlsplit

from segue.drill.rehearsal.inbox import JSON, Inbox

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CHUNK_BYTES = 1 << 16


class RefusedError(Exception):
    """The API answered with an error status."""

    def __init__(self, status: int, headers: Mapping[str, str], body: str) -> None:
        self.status, self.headers, self.body = status, headers, body
        try:
            parsed = json.loads(body)
        except ValueError:
            parsed = None
        error = parsed.get("error") if isinstance(parsed, dict) else None
        self.error: JSON = error if isinstance(error, dict) else {}
        self.message = str(self.error.get("message") or body[:500])

    @property
    def retry_after_s(self) -> float | None:
        """How long the server asks to wait; None if it does not say."""
        try:
            return max(0.0, float(self.headers.get("retry-after", "")))
        except ValueError:
            return None


class BrokenError(Exception):
    """No answer, or an incomplete one. `code` is "refused", "dropped", "timeout" or "garbage"."""

    def __init__(self, code: str, *, midway: bool) -> None:
        self.code, self.midway = code, midway


class Model:
    """The model's address. Raises ValueError for an address outside this machine."""

    def __init__(self, url: str, inbox: Inbox, *, timeout_s: float, idle_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname not in _LOOPBACK:
            raise ValueError(
                f"{url or 'no address'}: the rehearsal agent talks to this machine only (http://127…)"
            )
        self.host, self.port = parts.hostname, parts.port or 80
        self.path = parts.path.rstrip("/")
        self.inbox, self.timeout_s, self.idle_s = inbox, timeout_s, idle_s
        self.headers: Mapping[str, str] = {}  # headers of the last answer

    def ask(self, path: str, headers: Mapping[str, str], body: JSON) -> Iterator[JSON]:
        """The events of the stream; one object if no stream was requested. Raises `RefusedError`,
        `BrokenError` and `Interrupted`; does not check whether the stream was complete."""
        asking = _Asking(self, self.path + path, headers, body)
        threading.Thread(target=asking.run, daemon=True).start()
        try:
            while (item := self.inbox.wait(asking)) is not None:
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, _Headers):
                    self.headers = item.headers
                else:
                    yield item
        finally:
            asking.cancel()


class _Headers:
    def __init__(self, response: HTTPResponse) -> None:
        self.headers = {name.lower(): value for name, value in response.getheaders()}


class _Asking:
    """One request, in its own thread. The last item that it puts is None or an exception."""

    def __init__(self, model: Model, path: str, headers: Mapping[str, str], body: JSON) -> None:
        self.model, self.path, self.headers = model, path, headers
        self.body = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        self.socket: socket.socket | None = None

    def cancel(self) -> None:
        """Drops the rest of the answer; the server sees the connection close."""
        if self.socket is not None:
            with suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        began = False
        try:
            connection = HTTPConnection(
                self.model.host, self.model.port, timeout=self.model.timeout_s
            )
            connection.connect()
            self.socket = connection.sock
            headers = {"content-type": "application/json", **self.headers}
            connection.request("POST", self.path, self.body, headers)
            response = connection.getresponse()
            if self.socket is not None:
                self.socket.settimeout(self.model.idle_s)
            fields = _Headers(response)
            if response.status >= 400:
                body = response.read().decode("utf-8", "replace")
                self.put(RefusedError(response.status, fields.headers, body))
                return
            began = True
            self.put(fields)
            if response.headers.get_content_type() == "text/event-stream":
                for event in _events(response):
                    self.put(event)
            else:
                self.put(_decoded(response.read()))
            self.put(None)
        except ConnectionRefusedError:
            self.put(BrokenError("refused", midway=False))
        except TimeoutError:
            self.put(BrokenError("timeout", midway=began))
        except ValueError:
            self.put(BrokenError("garbage", midway=True))
        except (OSError, HTTPException):
            self.put(BrokenError("dropped", midway=began))

    def put(self, item: object) -> None:
        self.model.inbox.put(self, item)


def _events(response: HTTPResponse) -> Iterator[JSON]:
    """Server-sent events: the text after `data:`, which is JSON in both APIs."""
    rest, data = b"", b""
    while chunk := response.read1(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                data += line[5:].lstrip() + b"\n"
            elif not line and data:
                if data.strip() != b"[DONE]":
                    yield _decoded(data)
                data = b""


def _decoded(data: bytes) -> JSON:
    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
