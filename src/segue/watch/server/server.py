"""The daemon's API over sockets: one thread that moves bytes, and a few that call the daemon.

The server never waits for a client, whatever it does or fails to do: half a request, a body that
never arrives, an answer that nobody reads. The number of clients is limited (`MAX_CLIENTS`);
one more replaces the client that has been inactive the longest. Without clients, no thread does
anything.
"""

import selectors
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Any

from segue.system.files.state import socket_path
from segue.watch.log import Note
from segue.watch.server.api import Api, ApiRefusal, ApiReply, ApiRequest, ApiStream, Daemon
from segue.watch.server.connection import ClientGone, Connection, Phase
from segue.watch.server.feed import PAGE, Feed, Listener
from segue.watch.server.sockets import Door, UnixDoor, port_door, token_path

MAX_CLIENTS = 64  # at the socket, and as many at the port
MAX_STREAMS = 16
MAX_HELD_BYTES = 16 << 20  # of all clients' requests and responses
PATIENCE_S = 10.0
BEAT_S = 15.0
_WORKERS = 3
_REST_S = 1.0  # before clients are accepted again, once no file can be opened
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

Job = Callable[[], None]


class Server:
    """Serves the API for `daemon`, at `path` and, if a port is given, at 127.0.0.1 to anyone with
    the token.

    It listens as soon as it is created, and raises StateError with one line if it cannot. `start`
    begins to answer; `close` ends every connection and removes the socket's file. `broke` gets, in
    any thread, exceptions that the daemon should not have raised.
    """

    def __init__(
        self,
        daemon: Daemon,
        *,
        path: str = "",
        port: int | None = None,
        token_file: str = "",
        broke: Callable[[Exception], None] = lambda error: None,
        patience_s: float = PATIENCE_S,
        beat_s: float = BEAT_S,
    ) -> None:
        self.path = path or socket_path()
        self.patience_s, self.broke = patience_s, broke
        self.api = Api(daemon, broke=broke, own=self._numbers)
        self.daemon = daemon
        self.doors: list[Door] = [UnixDoor(self.path)]
        if port is not None:
            try:
                self.doors.append(port_door(port, token_file or token_path()))
            except BaseException:
                self.doors[0].close()
                raise
        self.port = self.doors[-1].port
        self.clients: set[Connection] = set()
        self.feed = Feed(self._ask_page, beat_s)
        self._listener = Listener(daemon, lambda: bool(self.feed.followers), self._tell_news)
        self._answered: Counter[str] = Counter()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._done: deque[Job] = deque()
        self._selector = selectors.DefaultSelector()
        self._wakeup_writer, self._wakeup_reader = socket.socketpair()
        self._wakeup_writer.setblocking(False)
        self._wakeup_reader.setblocking(False)
        self._closing = False
        self._rest_until: float | None = None
        self._threads = [threading.Thread(target=self._run, name="segue-api", daemon=True)]
        self._threads += [
            threading.Thread(target=self._work, name=f"segue-api-{n}", daemon=True)
            for n in range(_WORKERS)
        ]

    def start(self) -> None:
        """Begins to answer."""
        self._selector.register(self._wakeup_reader, _READ)
        self._take_clients()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Nothing remains afterwards, except for a call that the daemon does not return from."""
        if self._closing:
            return
        self._closing = True
        self._ring()
        for _ in range(_WORKERS):
            self._jobs.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(2.0)
        for client in list(self.clients):
            self._drop(client)
        self._listener.close()
        for door in self.doors:
            door.close()
        self._selector.close()
        self._wakeup_writer.close()
        self._wakeup_reader.close()

    # --- threads -----------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _later(self, job: Job) -> None:
        """Has the server's thread do it."""
        self._done.append(job)
        self._ring()

    def _ring(self) -> None:
        with suppress(OSError):  # full: it will notice anyway
            self._wakeup_writer.send(b"!")

    def _tell_news(self, notes: Sequence[Note]) -> None:
        self._later(lambda: self._send_all(self.feed.news(notes, time.monotonic())))

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select(self._timeout_s()):
                if isinstance(key.data, Connection):
                    self._move(key.data)
                elif isinstance(key.data, Door):
                    self._take(key.data)
                else:
                    with suppress(OSError):
                        self._wakeup_reader.recv(4096)
            while self._done:
                try:
                    self._done.popleft()()
                except Exception as error:  # one client's problem must not end the others
                    self.broke(error)
            self._look_at_the_clock()

    def _timeout_s(self) -> float | None:
        due = [client.due_at for client in self.clients if client.due_at is not None]
        due += [at for at in (self.feed.due_at, self._rest_until) if at is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if self._rest_until is not None and self._rest_until <= now:
            self._take_clients()
        for client in [c for c in self.clients if c.due_at is not None and c.due_at <= now]:
            if client.phase is Phase.READING:
                self._refuse(client, ApiRefusal(408, "the request was not finished"))
            elif client.phase is Phase.WORKING:
                self._refuse(client, ApiRefusal(503, "the daemon does not respond"))
            else:
                self._drop(client)
        self._send_all(self.feed.beat(now))

    # --- clients -----------------------------------------------------------------------------

    def _take_clients(self) -> None:
        self._rest_until = None
        for door in self.doors:
            if door.listener not in self._selector.get_map():
                self._selector.register(door.listener, _READ, door)

    def _take_none(self, door: Door, until: float | None) -> None:
        self._rest_until = until
        self._selector.unregister(door.listener)

    def _take(self, door: Door) -> None:
        now = time.monotonic()
        here = [client for client in self.clients if client.door is door]
        if len(here) >= MAX_CLIENTS and not self._make_room(here):
            self._take_none(door, now + _REST_S)  # until one leaves, or until the next attempt
            return
        try:
            sock, _ = door.listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return  # it left before it was accepted
        except OSError:
            self._make_room(list(self.clients))
            self._take_none(door, now + _REST_S)
            return
        client = Connection(sock, door, now, self.patience_s)
        self.clients.add(client)
        self._move(client)  # most have already sent something

    def _make_room(self, among: list[Connection]) -> bool:
        expendable = [client for client in among if client.is_expendable]
        if expendable:
            self._drop(min(expendable, key=lambda client: client.moved_at))
        return bool(expendable)

    def _move(self, client: Connection) -> None:
        """Reads and writes as much as possible now."""
        with self._guarded(client):
            now = time.monotonic()
            if (not client.out or client.phase is Phase.STREAMING) and client.read(now):
                self._ask(client)
            else:
                self._send(client)

    @contextmanager
    def _guarded(self, client: Connection) -> Iterator[None]:
        try:
            yield
        except ClientGone:
            self._drop(client)
        except ApiRefusal as refused:
            self._refuse(client, refused)
        except Exception as error:
            self._drop(client)
            self.broke(error)

    def _ask(self, client: Connection) -> None:
        def work() -> None:
            request = client.request
            if request is not None:  # otherwise it did not wait
                found = self.api.answer(request)
                self._later(lambda: self._answer(client, request, found))

        if self._jobs.qsize() > 4 * MAX_CLIENTS:
            raise ApiRefusal(503, "the daemon does not respond")
        self._watch(client)
        self._jobs.put(work)
        self._bound()

    def _answer(self, client: Connection, request: ApiRequest, found: ApiReply | ApiStream) -> None:
        if client.request is not request:
            return  # it did not wait
        with self._guarded(client):
            now = time.monotonic()
            if isinstance(found, ApiStream):
                if len(self.feed.followers) >= MAX_STREAMS:
                    raise ApiRefusal(503, f"{MAX_STREAMS} clients already follow the events")
                self._answered["200"] += 1
                self.feed.add(client, found, now)
                self._listener.start(self.feed.latest)
            else:
                self._answered[str(found.status)] += 1
                client.answer(found, now)
            self._send(client)

    def _send(self, client: Connection) -> None:
        """Sends as much as possible, then does what follows from that. Raises Gone, Refused."""
        now = time.monotonic()
        if not client.out or client.write(now):
            if client.phase is Phase.WRITING:
                if client.next_request(now):
                    self._ask(client)
                    return
            elif client.phase is Phase.STREAMING:
                self.feed.pump(client)
        self._watch(client)
        self._bound()

    def _send_all(self, clients: Sequence[Connection]) -> None:
        for client in clients:
            with self._guarded(client):
                self._send(client)

    def _refuse(self, client: Connection, refused: ApiRefusal) -> None:
        try:
            self._answered[str(refused.status)] += 1
            client.refuse(refused, time.monotonic())
            client.write(time.monotonic())
            self._watch(client)
        except Exception:  # there is nothing more to tell it
            self._drop(client)

    def _bound(self) -> None:
        while sum(client.held_bytes for client in self.clients) > MAX_HELD_BYTES:
            self._drop(
                max(self.clients, key=lambda client: (client.held_bytes > 0, -client.moved_at))
            )

    def _watch(self, client: Connection) -> None:
        """Watches for what matters in its phase: a client whose request is being processed may not
        send."""
        wanted = 0
        if client.phase is Phase.STREAMING:
            wanted = _READ | _WRITE if client.out else _READ
        elif client.out:
            wanted = _WRITE
        elif client.phase is not Phase.WORKING:
            wanted = _READ
        key = self._selector.get_map().get(client.sock)
        if key is None and wanted:
            self._selector.register(client.sock, wanted, client)
        elif key is not None and not wanted:
            self._selector.unregister(client.sock)
        elif key is not None and key.events != wanted:
            self._selector.modify(client.sock, wanted, client)

    def _drop(self, client: Connection) -> None:
        if client not in self.clients:
            return
        self.clients.discard(client)
        self.feed.drop(client)
        if client.sock in self._selector.get_map():
            self._selector.unregister(client.sock)
        client.close()
        if self._rest_until is not None and not self._closing:
            self._take_clients()

    # --- notes -------------------------------------------------------------------------------

    def _ask_page(self, client: Connection, after: int, kinds: tuple[str, ...]) -> None:
        upto = self.feed.latest

        def work() -> None:
            found: Sequence[Note] | None = None
            try:
                found = self.daemon.notes(after, kinds, PAGE)
            except Exception as error:
                self.broke(error)
            self._later(lambda: self._page(client, found, upto))

        self._jobs.put(work)

    def _page(self, client: Connection, notes: Sequence[Note] | None, upto: int) -> None:
        self.feed.paged(client, notes, upto, time.monotonic())
        if notes is not None and client in self.feed.followers:
            self._send_all([client])

    def _numbers(self) -> Mapping[str, Any]:
        return {
            "api_requests": dict(self._answered),
            "api_connections": len(self.clients),
            "api_streams": len(self.feed.followers),
        }
