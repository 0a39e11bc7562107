"""The scripted model's server: one asyncio loop on 127.0.0.1, HTTP/1.1.

`ModelServer` runs in an existing loop; `running` starts one in its own thread, for tests and
drills.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import msgspec

from segue.drill.model import delivery, wires
from segue.drill.model.answer import ModelAnswer, Refusal
from segue.drill.model.ask import Ask, Kind
from segue.drill.model.connection import READ_BYTES, Connection, error_body
from segue.drill.model.delivery import Plan
from segue.drill.model.log import Logged, fill
from segue.drill.model.wires import Http, Wire


class Model(Protocol):
    """Anything that decides answers. It is called in the loop, so it must not block."""

    def answer(self, ask: Ask, now: float) -> ModelAnswer:
        """The answer to a request."""


class ModelServer:
    """Answers every wire's requests as `script` says, and logs them in `requests`.

    `log` is called with a request's record when its answer is decided, and again when its delivery
    has ended. `kind_of` says what a request is for (`casts.kind_of` if none is given). Whatever a
    client does, other clients do not notice. A client that begins a request and then sends nothing
    for `patience_s` is disconnected; one that is idle between two requests is not.
    """

    def __init__(
        self,
        script: Model,
        *,
        log: Callable[[Logged], None] | None = None,
        kind_of: Callable[[Ask], Kind] | None = None,
        bodies: bool = False,
        clock: Callable[[], float] = time.time,
        patience_s: float = 30.0,
    ) -> None:
        self.script, self.bodies, self.clock, self.patience_s = script, bodies, clock, patience_s
        self.log: Callable[[Logged], None] = log or (lambda logged: None)
        self.kind_of = kind_of or _kind_of
        self.requests: list[Logged] = []
        self.port = 0
        self._listener: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked = 0

    async def start(self, port: int = 0) -> int:
        """Starts to listen; returns the port, a free one by default."""
        self._listener = await asyncio.start_server(
            self._connected, "127.0.0.1", port, backlog=1024, limit=READ_BYTES
        )
        self.port = int(self._listener.sockets[0].getsockname()[1])
        return self.port

    async def close(self) -> None:
        """Closes every connection, including those that hang."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            await Connection(self, reader, writer).run()
        except (OSError, h11.ProtocolError, asyncio.CancelledError):
            # The client or this server is gone, so there is nobody to tell. `ConnectionError` alone
            # is not enough: shutting down a socket that the client has reset is a plain OSError
            # (ENOTCONN).
            pass
        finally:
            # `close` would wait for a client that has stopped reading.
            writer.transport.abort()

    def new(self, method: str, target: str) -> Logged:
        """Creates a log record with the next number."""
        self._asked += 1
        return Logged(
            number=self._asked,
            at=self.clock(),
            method=method,
            path=unquote(target.partition("?")[0].partition("#")[0]),
        )

    def decide(self, logged: Logged, target: str, body: bytes) -> tuple[Plan, float]:
        """The delivery of the answer and the wait before it. Never raises."""
        wire = wires.find(logged.method, logged.path)
        if wire is None:
            return _plan_for_other_paths(logged), 0.0
        logged.wire = wire.name
        now = self.clock()
        try:
            ask = self._read(wire, logged, target, body)
        except (ValueError, RecursionError) as error:
            logged.answered, logged.error = "bad_request", str(error)
            refusal = Refusal(fault="bad_request", message=str(error))
            return delivery.simple(wire.refuse(None, refusal, now)), 0.0
        try:
            kind = self.kind_of(ask) if ask.kind is Kind.MAIN else ask.kind
            ask = msgspec.structs.replace(ask, kind=kind)
            answer = self.script.answer(ask, now)
            planned = delivery.plan(wire, ask, answer, now)
        except Exception as error:  # a script comes from the user: its bugs must not end the server
            logged.answered = "broken script"
            logged.error = f"{type(error).__name__}: {error}"
            refusal = Refusal(fault="server_error", message=f"the script broke: {logged.error}")
            return delivery.simple(wire.refuse(ask, refusal, now)), 0.0
        fill(logged, ask, answer)
        return planned, answer.delay_s

    def _read(self, wire: Wire, logged: Logged, target: str, body: bytes) -> Ask:
        try:
            given: Any = msgspec.json.decode(body)
        except ValueError as error:
            raise ValueError(f"the body is not JSON: {error}") from None
        if self.bodies:
            logged.body = given
        query = dict(parse_qsl(urlsplit(target).query))
        ask = wire.read(logged.path, query, given)
        return msgspec.structs.replace(ask, number=logged.number)


def _kind_of(ask: Ask) -> Kind:
    from segue.drill import casts

    return casts.kind_of(ask)


def _plan_for_other_paths(logged: Logged) -> Plan:
    """Paths that belong to no wire: agents request them before they start."""
    if logged.method in ("GET", "HEAD"):
        if logged.path in ("/", "/api/hello"):
            logged.answered = "hello"
            return delivery.simple(Http(200, {}, b""))
        if logged.path.endswith("/models"):
            logged.answered = "models"
            return delivery.simple(Http(200, {}, msgspec.json.encode(_MODELS)))
    logged.answered = "no such path"
    return delivery.simple(error_body(404, f"no such path: {logged.method} {logged.path}"))


_MODELS = {
    "object": "list",
    "data": [{"id": "scripted", "object": "model", "type": "model", "display_name": "Scripted"}],
    "has_more": False,
    "models": [{"name": "models/scripted", "displayName": "Scripted"}],
}


class Running:
    """A server in its own thread; see `running`."""

    def __init__(self, server: ModelServer) -> None:
        self.server = server
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="scripted-model", daemon=True)

    @property
    def requests(self) -> list[Logged]:
        """The log of all requests so far; it grows while the server runs."""
        return self.server.requests

    @property
    def url(self) -> str:
        """The server's URL, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def start(self, port: int = 0) -> None:
        """Returns once the server is listening; raises OSError if it cannot."""
        self._thread.start()
        try:
            self.port = asyncio.run_coroutine_threadsafe(
                self.server.start(port), self._loop
            ).result()
        except OSError:
            self.stop()
            raise

    def stop(self) -> None:
        """Closes all connections and ends the thread."""
        asyncio.run_coroutine_threadsafe(self.server.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def running(
    script: Model,
    *,
    port: int = 0,
    log: Callable[[Logged], None] | None = None,
    kind_of: Callable[[Ask], Kind] | None = None,
    bodies: bool = False,
    patience_s: float = 30.0,
) -> Iterator[Running]:
    """Runs a server that answers as `script` says, until the block ends. See `ModelServer`; `log`
    is called in the server's thread."""
    server = ModelServer(script, log=log, kind_of=kind_of, bodies=bodies, patience_s=patience_s)
    found = Running(server)
    found.start(port)
    try:
        yield found
    finally:
        found.stop()
