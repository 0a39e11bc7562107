"""Talks to the daemon from other processes of the same user, over its socket."""

import os
import socket
from collections.abc import Generator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from segue import client
from segue.errors import InputError, StateError
from segue.system.files.state import socket_path

TIMEOUT_S = 10.0
_SILENCE_S = 40.0  # without a heartbeat: longer than two of them take


class NoDaemon(StateError):  # noqa: N818 - says what is missing
    """No daemon is running, or it is shutting down."""


class Remote:
    """Requests to the daemon at `path` (this user's by default), each on its own connection.

    Raises NoDaemon if there is none, InputError with the daemon's message if it refuses the
    request, and StateError if it cannot answer.
    """

    def __init__(self, path: str = "", *, timeout_s: float = TIMEOUT_S) -> None:
        self.path, self.timeout_s = path or socket_path(), timeout_s

    def get(self, path: str, **query: str | int) -> Any:
        """The response: a JSON value, or text if it is not JSON."""
        return self._ask("GET", path + (f"?{urlencode(query)}" if query else ""), None)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The response to a JSON object."""
        return self._ask("POST", path, msgspec.json.encode(body or {}))

    def is_there(self) -> bool:
        """Whether a daemon answers."""
        try:
            self.get("/v1/status")
        except StateError:
            return False
        return True

    def sessions(self) -> list[dict[str, Any]]:
        """All watched sessions."""
        found: list[dict[str, Any]] = self.get("/v1/sessions")["sessions"]
        return found

    def session(self, name: str) -> dict[str, Any]:
        """One session; InputError if there is none of that name."""
        found: dict[str, Any] = self.get(f"/v1/sessions/{quote(name, safe='')}")
        return found

    def handoff_text(self, id: str) -> str:
        """A handoff's document; InputError if there is none."""
        return str(self.get(f"/v1/handoffs/{quote(id, safe='')}"))

    def events(
        self, *, after: int | None = None, kinds: tuple[str, ...] = ()
    ) -> Generator[dict[str, Any], None, None]:
        """Yields notes after that one (None: from now on) as they arrive, until the daemon ends;
        then raises NoDaemon. The first request is sent when the first note is asked for."""
        query: dict[str, str | int] = {} if after is None else {"after": after}
        if kinds:
            query["kinds"] = ",".join(kinds)
        connection = _Connection(self.path, _SILENCE_S)
        try:
            response = _response(connection, "GET", f"/v1/events?{urlencode(query)}", None)
            if response.status != 200:
                _raise(response.status, response.read())
            while line := response.readline():
                if line.startswith(b"data: "):
                    yield msgspec.json.decode(line[6:])
        except (OSError, HTTPException, ValueError):
            pass  # it shut down in the middle of a line
        finally:
            connection.close()
        raise NoDaemon("the daemon closed the connection")

    def _ask(self, method: str, target: str, body: bytes | None) -> Any:
        connection = _Connection(self.path, self.timeout_s)
        try:
            response = _response(connection, method, target, body)
            data = response.read()
        except TimeoutError:
            raise StateError(f"the daemon at {self.path} does not respond") from None
        except (OSError, HTTPException) as fault:
            raise NoDaemon(
                f"the connection to the daemon at {self.path} was lost: {_reason(fault)}"
            ) from None
        finally:
            connection.close()
        if response.status != 200:
            _raise(response.status, data)
        if not (response.getheader("content-type") or "").startswith("application/json"):
            return data.decode("utf-8", "replace")
        try:
            return msgspec.json.decode(data) if data else None
        except ValueError as fault:
            raise StateError(
                f"the daemon at {self.path} did not answer with JSON: {fault}"
            ) from None


class _Connection(HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        try:
            if not client.is_own_folder(self._path):
                raise NoDaemon(f"{self._path}: others can write there, so segue does not use it")
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self._path)
            if client.peer_uid(self.sock) != os.getuid():
                raise NoDaemon(f"{self._path}: belongs to another user, so segue does not use it")
        except OSError as fault:
            what = "no daemon is running; start it: segue watch"
            if isinstance(fault, (FileNotFoundError, ConnectionRefusedError)):
                raise NoDaemon(what) from None
            raise NoDaemon(f"{what} ({self._path}: {_reason(fault)})") from None


def _response(
    connection: HTTPConnection, method: str, target: str, body: bytes | None
) -> HTTPResponse:
    headers = {} if body is None else {"content-type": "application/json"}
    with suppress(BrokenPipeError):  # refused before everything was sent; the response says why
        connection.request(method, target, body, headers)
    return connection.getresponse()


def _raise(status: int, data: bytes) -> None:
    line = f"the daemon answered with status {status}"
    with suppress(ValueError):
        found = msgspec.json.decode(data)
        if isinstance(found, dict) and isinstance(found.get("error"), str):
            line = found["error"]
    raise StateError(line) if status >= 500 else InputError(line)


def _reason(fault: Exception) -> str:
    return getattr(fault, "strerror", None) or str(fault) or type(fault).__name__
