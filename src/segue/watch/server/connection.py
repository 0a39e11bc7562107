"""One client of the daemon: bytes in, requests out; answers in, bytes out. Uses h11 for HTTP/1.1.

It never waits: `server` says when there is something to read or room to write.
"""

import socket
from contextlib import suppress
from enum import Enum
from http import HTTPStatus

import h11

from segue.watch.server.api import EVENTS, ApiRefusal, ApiReply, ApiRequest
from segue.watch.server.sockets import LOOPBACK, Door

MAX_BODY_BYTES = 4 << 20
READ_BYTES = 64 << 10
_SEND_BYTES = 256 << 10
_HEAD_BYTES = 16 << 10
_REASONS = {int(status): status.phrase.encode() for status in HTTPStatus}
_LINGER_S = 2.0  # for a client that keeps sending while it is refused


class Phase(Enum):
    """What the connection is waiting for."""

    IDLE = "between two requests"
    READING = "a request has begun"
    WORKING = "the daemon is asked"
    WRITING = "an answer is on its way"
    STREAMING = "notes are sent as they come"
    LINGERING = "refused: what it still sends is not looked at"
    CLOSED = "gone"


class ClientGone(Exception):  # noqa: N818 - no fault
    """The client left."""


class Connection:
    """One client, request after request. `due_at` is when it is disconnected if nothing moves; None
    while it may stay. `moved_at` is when something last moved."""

    def __init__(self, sock: socket.socket, door: Door, now: float, patience_s: float) -> None:
        self.sock, self.door, self.patience_s = sock, door, patience_s
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self.phase = Phase.IDLE
        self.moved_at = now
        self.due_at: float | None = None
        self.out = bytearray()
        self.request: ApiRequest | None = None  # the current request
        self._head: h11.Request | None = None
        self._body = bytearray()
        sock.setblocking(False)

    @property
    def held_bytes(self) -> int:
        """How many bytes are held for this client."""
        asked = 0 if self.request is None else len(self.request.body)
        return len(self.out) + len(self._body) + asked

    @property
    def is_expendable(self) -> bool:
        """Whether it may be dropped in favour of another: nothing is being done for it."""
        return self.phase not in (Phase.WORKING, Phase.STREAMING)

    def read(self, now: float) -> bool:
        """Reads what is there, and returns whether `request` is complete. Raises Gone or
        Refused."""
        try:
            data = self.sock.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            raise ClientGone from None
        self.moved_at = now
        if self.phase in (Phase.LINGERING, Phase.STREAMING):
            if not data:
                raise ClientGone
            return False
        if self.phase is Phase.IDLE and data:
            self.phase, self.due_at = Phase.READING, now + self.patience_s
        self.http.receive_data(data)
        return self._next()

    def _next(self) -> bool:
        while True:
            try:
                event = self.http.next_event()
            except h11.RemoteProtocolError as error:
                raise ApiRefusal(error.error_status_hint, str(error)) from None
            if isinstance(event, h11.Request):
                self._admit(event)
                self._head = event
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > MAX_BODY_BYTES:
                    raise _too_large()
            elif isinstance(event, h11.EndOfMessage):
                self._whole()
                return True
            elif isinstance(event, h11.ConnectionClosed):
                raise ClientGone
            else:
                if event is h11.NEED_DATA and self.http.they_are_waiting_for_100_continue:
                    go_on = h11.InformationalResponse(status_code=100, headers=[])
                    self.out += self.http.send(go_on) or b""
                return False

    def _admit(self, head: h11.Request) -> None:
        """Checks a request before its body is read. Raises Refused."""
        given = dict(head.headers)
        if self.door.is_open_to_all:
            check(self.door, given)
        length = given.get(b"content-length", b"0")
        if len(length) > 12 or int(length) > MAX_BODY_BYTES:
            raise _too_large()
        if given.get(b"content-encoding", b"identity").lower() != b"identity":
            raise ApiRefusal(415, "the body must not be compressed")

    def _whole(self) -> None:
        head = self._head
        assert head is not None
        body, self._body = bytes(self._body), bytearray()
        self.phase, self.due_at = Phase.WORKING, self.moved_at + self.patience_s
        given = dict(head.headers)
        self.request = ApiRequest(
            head.method.decode("latin-1"),
            head.target.decode("latin-1"),
            body,
            given.get(b"last-event-id", b"").decode("latin-1"),
        )

    def answer(self, reply: ApiReply, now: float) -> None:
        """Prepares a complete response for sending."""
        self.request = None
        headers = [
            ("content-type", reply.kind),
            ("content-length", str(len(reply.body))),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            *reply.headers,
        ]
        reason = _REASONS.get(reply.status, b"")
        self._send(h11.Response(status_code=reply.status, headers=headers, reason=reason))
        if self._head is None or self._head.method != b"HEAD":
            self._send(h11.Data(data=reply.body))
        self._send(h11.EndOfMessage())
        self.phase, self.due_at = Phase.WRITING, now + self.patience_s

    def refuse(self, refused: ApiRefusal, now: float) -> None:
        """Answers an invalid request if possible, and reads no more. Raises Gone."""
        self._body.clear()
        if self.http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            raise ClientGone
        reply = refused.reply()
        self.answer(reply._replace(headers=(*reply.headers, ("connection", "close"))), now)
        self.phase, self.due_at = Phase.LINGERING, now + _LINGER_S

    def begin_stream(self) -> None:
        """Sends the head of a response that continues."""
        self.request = None
        headers = [("content-type", EVENTS), ("cache-control", "no-store")]
        self._send(h11.Response(status_code=200, headers=headers, reason=b"OK"))
        self.phase, self.due_at = Phase.STREAMING, None

    def more(self, data: bytes) -> None:
        """Sends a part of a response that continues."""
        self._send(h11.Data(data=data))

    def _send(self, event: h11.Event) -> None:
        self.out += self.http.send(event) or b""

    def write(self, now: float) -> bool:
        """Sends as much as possible, and returns whether everything is sent. Raises Gone."""
        try:
            while self.out:
                with memoryview(self.out) as view, view[:_SEND_BYTES] as piece:
                    sent = self.sock.send(piece)
                del self.out[:sent]
                self.moved_at = now
                if self.phase in (Phase.WRITING, Phase.STREAMING):
                    self.due_at = now + self.patience_s
        except (BlockingIOError, InterruptedError):
            if self.due_at is None:
                self.due_at = now + self.patience_s
            return False
        except OSError:
            raise ClientGone from None
        if self.phase is Phase.STREAMING:
            self.due_at = None
        elif self.phase is Phase.LINGERING:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)
        return True

    def next_request(self, now: float) -> bool:
        """After a response was sent: whether the client has already sent the next request
        completely. Raises Gone if this was the last, or Refused."""
        if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
            raise ClientGone
        self.http.start_next_cycle()
        self._head, self.phase, self.due_at = None, Phase.IDLE, None
        data, _ = self.http.trailing_data
        if not data:
            return False
        self.moved_at = now
        self.phase, self.due_at = Phase.READING, now + self.patience_s
        return self._next()

    def close(self) -> None:
        """Closes it, whatever is still to be sent."""
        self.phase, self.due_at, self.request = Phase.CLOSED, None, None
        self.out.clear()
        self._body.clear()
        self.sock.close()


def check(door: Door, given: dict[bytes, bytes]) -> None:
    """Checks who connects by the port: only a program on this machine that knows the token; no page
    in a browser, under no other name (Host), from nowhere else (Origin). Raises Refused."""
    host = given.get(b"host", b"").lower()
    names = (LOOPBACK.encode(), b"localhost")
    if host not in (*names, *(name + b":%d" % door.port for name in names)):
        raise ApiRefusal(403, f"the host must be {LOOPBACK} or localhost")
    if given.get(b"origin", b"http://" + host).lower() != b"http://" + host:
        raise ApiRefusal(403, "requests from other origins are refused")
    import hmac

    scheme, _, token = given.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not hmac.compare_digest(token.strip(), door.token):
        how = ("www-authenticate", "Bearer")
        raise ApiRefusal(
            401, "the token is missing or wrong; it is in the daemon's token file", how
        )


def _too_large() -> ApiRefusal:
    return ApiRefusal(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MB")
