"""A daemon that watches nothing: for tests of what stands before it."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from segue.core.sessions.types import Session, SessionState
from segue.errors import InputError, StateError
from segue.watch.log import Note
from segue.watch.server.server import Server

PATIENCE_S = 60.0  # longer than any of it takes: a test that waits so long has failed


def session_dict(session_id: str = "s-1") -> dict[str, Any]:
    from segue.views import tables

    return tables.as_dict(
        Session(
            agent="claude", session_id=session_id, path="/p", cwd="/c", state=SessionState.WORKING
        )
    )


class FakeDaemon:
    """Answers at once, writes down what it was told, and breaks when it is told to."""

    def __init__(self) -> None:
        self.log: list[Note] = []
        self.changed = threading.Condition()
        self.told: list[tuple[str, Any]] = []
        self.fault: BaseException | None = None
        self.hold: threading.Event | None = None
        self.more_metrics: dict[str, Any] = {}
        self.found = [session_dict()]
        self.asked_pages: list[int] = []
        self.waits = 0

    def say(self, kind: str, **data: Any) -> Note:
        with self.changed:
            note = Note(seq=len(self.log) + 1, at=1.5, kind=kind, agent="claude", data=data)
            self.log.append(note)
            self.changed.notify_all()
        return note

    def _tell(self, what: str, value: Any) -> None:
        self.told.append((what, value))
        if self.hold is not None:
            self.hold.wait(PATIENCE_S)
        if self.fault is not None:
            raise self.fault

    def status(self) -> dict[str, Any]:
        return {"log_seq": len(self.log), "uptime_s": 12.5, "paused": ["/c"], "auto": False}

    def sessions(self) -> list[dict[str, Any]]:
        self._tell("sessions", None)
        return self.found

    def session(self, name: str) -> dict[str, Any] | None:
        return next((s for s in self.found if s["session_id"] == name), None)

    def notes(self, after: int, kinds: tuple[str, ...], limit: int) -> list[Note]:
        self.asked_pages.append(after)
        found = [n for n in self.log if n.seq > after and (not kinds or n.kind in kinds)]
        return found[:limit]

    def wait_notes(self, after: int, timeout_s: float) -> list[Note]:
        with self.changed:
            self.waits += 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: len(self.log) > after, timeout_s)
            return self.log[after:]

    def changes(self, after: int | None) -> dict[str, Any]:
        changed = self.sessions() if after is None else []
        return {"revision": 7, "is_whole": after is None, "sessions": changed, "gone": []}

    def figures(self, since: float | None) -> dict[str, Any]:
        return {"schema": 1, "since": since, "until": None, "figures": [], "stops": {}}

    def metrics(self) -> dict[str, Any]:
        return {
            "sessions": {"working": {"normal": 2, "critical": 1}, "gone": {None: 3}},
            "crossings": {"warning": 4},
            "handoffs": {"done": 1, "needs_user": 0},
            "stops": {"rate_limit": 2},
            "resumes": 5,
            "notices": {"stop": 1},
            "hook_calls": {"Stop": 7},
            **self.more_metrics,
        }

    def pause(self, what: str) -> str:
        self._tell("pause", what)
        return f"paused: {what or 'all'}"

    def unpause(self, what: str) -> str:
        self._tell("unpause", what)
        return "unpaused"

    def handoff(self, session: str, *, retry: bool) -> str:
        self._tell("handoff", (session, retry))
        if session == "nobody":
            raise InputError("no session nobody")
        if session == "full":
            raise StateError("the disk is full")
        return "begun"

    def cancel(self, session: str) -> str:
        self._tell("cancel", session)
        return "cancelled"

    def yes(self, what: str) -> str:
        self._tell("yes", what)
        return "yes"

    def hook(self, event: dict[str, Any]) -> tuple[bytes, int]:
        self._tell("hook", event)
        return b'{"suppressOutput":true}', 2

    def statusline(self, payload: dict[str, Any]) -> bytes:
        self._tell("statusline", payload)
        return "▓▓░ 63%".encode()

    def fits(self, session: str, tokens: int) -> dict[str, Any]:
        return {"fits": tokens < 5000, "why": f"of {session}"}

    def handoffs(self) -> list[dict[str, Any]]:
        return [{"id": "h-1", "agent": "claude", "session_id": "s-1", "step": "done"}]

    def handoff_text(self, id: str) -> str | None:
        return "# Handoff\n" if id == "h-1" else None


@contextmanager
def serving(daemon: Any, **more: Any) -> Iterator[Server]:
    """A server that answers until the block ends; see `Server`."""
    server = Server(daemon, **more)
    server.start()
    try:
        yield server
    finally:
        server.close()


def raw(server: Server, sent: bytes = b"", *, by_port: bool = False) -> socket.socket:
    """A connection that has sent that much."""
    family = socket.AF_INET if by_port else socket.AF_UNIX
    found = socket.socket(family, socket.SOCK_STREAM)
    found.settimeout(PATIENCE_S)
    found.connect(("127.0.0.1", server.port) if by_port else server.path)
    found.sendall(sent)
    return found


def read_all(found: socket.socket) -> bytes:
    """All until the other end closes."""
    data = b""
    while more := found.recv(65536):
        data += more
    return data


class Answer:
    """Of one request."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.body = response.status, response.read()
        self.headers = {name.lower(): value for name, value in response.getheaders()}

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    server: Server,
    method: str,
    target: str,
    body: Any = None,
    *,
    by_port: bool = False,
    headers: dict[str, str] | None = None,
) -> Answer:
    """One request, on a connection of its own."""
    client = http.client.HTTPConnection("127.0.0.1", server.port or 1, timeout=PATIENCE_S)
    client.sock = raw(server, by_port=by_port)
    sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    client.request(method, target, sent, headers or {})
    try:
        return Answer(client.getresponse())
    finally:
        client.close()


class Follower:
    """A client of /v1/events."""

    def __init__(self, there: Server, query: str = "", *headers: str) -> None:
        more = "".join(f"{line}\r\n" for line in headers)
        request = f"GET /v1/events{query} HTTP/1.0\r\nhost: x\r\n{more}\r\n"
        self.sock = raw(there, request.encode())
        self.file = self.sock.makefile("rb")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.file.readline()
        assert b" 200 " in head
        assert b"text/event-stream" in head
        assert self.file.readline() == b": still here\n"
        assert self.file.readline() == b"\n"

    def next(self) -> dict[str, Any]:
        lines = [self.file.readline() for _ in range(4)]
        assert lines[0].startswith(b"id: "), lines
        assert lines[3] == b"\n"
        data: dict[str, Any] = json.loads(lines[2].removeprefix(b"data: "))
        assert lines[0] == b"id: %d\n" % data["seq"]
        assert lines[1] == b"event: %s\n" % data["kind"].encode()
        return data

    def close(self) -> None:
        self.file.close()
        self.sock.close()
