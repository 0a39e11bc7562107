"""One client's connection to the scripted model: HTTP/1.1 with h11, robust against anything a
client does."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import h11
import msgspec

from segue.drill.model import delivery
from segue.drill.model.delivery import Plan
from segue.drill.model.log import Logged
from segue.drill.model.wires import Http

MAX_BODY_BYTES = 64 << 20
READ_BYTES = 256 << 10
_HEAD_BYTES = 256 << 10
_LINGER_S = 2.0  # for a client that is still sending when it is refused


class Host(Protocol):
    """What a connection needs from its server."""

    requests: list[Logged]
    log: Callable[[Logged], None]
    clock: Callable[[], float]
    patience_s: float

    def new(self, method: str, target: str) -> Logged:
        """Creates the log record of a request."""

    def decide(self, logged: Logged, target: str, body: bytes) -> tuple[Plan, float]:
        """Returns the delivery of the answer, and the wait before it."""


class RequestError(Exception):
    """The request belongs to no wire."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Connection:
    """One client: handles its requests one after another."""

    def __init__(
        self, server: Host, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.server, self.reader, self.writer = server, reader, writer
        self.http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        # `drain` returns only when all bytes have left this process.
        writer.transport.set_write_buffer_limits(high=0)
        self.has_begun = False  # part of a request was read

    async def run(self) -> None:
        """Serves until the client disconnects, or an answer ends the connection."""
        while True:
            logged: Logged | None = None
            try:
                event = await self.event()
                if not isinstance(event, h11.Request):
                    return  # the client disconnected
                target = event.target.decode("latin-1")
                logged = self.server.new(event.method.decode("latin-1"), target)
                body = await self.body(event)
            except (h11.RemoteProtocolError, RequestError, TimeoutError) as error:
                await self.refuse(logged, error)
                return
            logged.sent_bytes = len(body)
            planned, delay_s = self.server.decide(logged, target, body)
            del body, event
            await self.deliver(logged, planned, delay_s)
            # A delivery that is cut off or hangs ends here too: its answer is incomplete.
            if self.http.our_state is not h11.DONE or self.http.their_state is not h11.DONE:
                await self.linger()
                return
            self.http.start_next_cycle()
            self.has_begun = False

    async def event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event from the client."""
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                self.has_begun = True
                return event
            if self.http.they_are_waiting_for_100_continue:
                head = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
                self.writer.write(self.http.send(head) or b"")
            patience = self.server.patience_s if self.has_begun else None
            data = await asyncio.wait_for(self.reader.read(READ_BYTES), patience)
            self.has_begun = True
            self.http.receive_data(data)

    async def body(self, request: h11.Request) -> bytes:
        """Reads the body of a request. Raises RequestError if it is too large or compressed."""
        given = dict(request.headers)
        if int(given.get(b"content-length", b"0")) > MAX_BODY_BYTES:
            raise RequestError(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MB")
        if given.get(b"content-encoding", b"identity").lower() != b"identity":
            raise RequestError(415, "the body must not be compressed")
        found = bytearray()
        while True:
            event = await self.event()
            if isinstance(event, h11.EndOfMessage):
                return bytes(found)
            if not isinstance(event, h11.Data):
                raise ConnectionResetError
            found += event.data
            if len(found) > MAX_BODY_BYTES:
                raise RequestError(413, f"the body is larger than {MAX_BODY_BYTES >> 20} MB")

    async def refuse(self, logged: Logged | None, error: Exception) -> None:
        """Answers anything that is not a request with a status, if that can still be sent, and
        closes."""
        status = 408
        if isinstance(error, RequestError):
            status = error.status
        elif isinstance(error, h11.RemoteProtocolError):
            status = error.error_status_hint
        why = str(error) or "the request was not finished"
        if logged is None:
            logged = self.server.new("", "")
        logged.answered, logged.error = f"status {status}", why
        if self.http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self.deliver(logged, delivery.simple(error_body(status, why)), 0.0)
        await self.linger()

    async def deliver(self, logged: Logged, planned: Plan, delay_s: float) -> None:
        """Sends an answer, and logs it before and after."""
        server = self.server
        server.requests.append(logged)
        logged.status = planned.status
        server.log(logged)
        try:
            await asyncio.sleep(delay_s)
            await self.send(planned, logged.method == "HEAD")
            logged.is_finished = planned.ending == "whole"
        except (ConnectionError, h11.ProtocolError) as error:
            logged.error = logged.error or str(error) or type(error).__name__
            raise
        finally:
            logged.ended_at = server.clock()
            server.log(logged)

    async def send(self, planned: Plan, is_head: bool) -> None:
        """Sends the bytes of an answer as planned. If the plan hangs, returns only when the client
        disconnects."""
        if planned.status is not None:
            headers = list(planned.headers.items())
            if planned.length is not None:
                headers.append(("content-length", str(planned.length)))
            data = self.http.send(h11.Response(status_code=planned.status, headers=headers)) or b""
            if planned.beat_s > 0:
                self.writer.write(data)
                await self.beat(planned)
                data = b""
            elif not is_head:
                data += self.http.send(h11.Data(data=b"".join(planned.pieces))) or b""
            if planned.ending == "whole":
                data += self.http.send(h11.EndOfMessage()) or b""
            self.writer.write(data)
            await self.writer.drain()
        if planned.ending == "hang":
            while await self.reader.read(READ_BYTES):
                pass  # what the client sends does not matter; only whether it disconnects

    async def beat(self, planned: Plan) -> None:
        """Sends piece by piece on a fixed schedule, so that delays do not add up."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        for number, piece in enumerate(planned.pieces):
            await asyncio.sleep(start + number * planned.beat_s - loop.time())
            self.writer.write(self.http.send(h11.Data(data=piece)) or b"")
            await self.writer.drain()

    async def linger(self) -> None:
        """Stops sending, and reads for a little longer: closing a socket with unread bytes would
        discard what was sent."""
        if self.writer.is_closing():
            return
        if self.writer.can_write_eof():
            self.writer.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                while await self.reader.read(READ_BYTES):
                    pass


def error_body(status: int, why: str) -> Http:
    """An error as JSON, for requests that belong to no wire."""
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    error = {"type": "error", "error": {"type": kind, "message": why}}
    return Http(status, {}, msgspec.json.encode(error))
