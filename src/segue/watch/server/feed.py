"""Sends notes to the clients that follow /v1/events. A client that reads slowly gets no more until
it has read what it has: it falls behind, and then gets what it missed from the log, page by page.
So nobody waits for it, and nothing is buffered for it."""

import threading
import time
from collections.abc import Callable, Sequence

from segue.watch.log import Note
from segue.watch.server import api
from segue.watch.server.api import ApiStream, Daemon
from segue.watch.server.connection import Connection

PAGE = 200
BEAT = b": still here\n\n"
_WAIT_S = 0.5  # at most, until the thread that waits for news sees that nobody wants any
_PAUSE_S = 0.2  # if the log cannot be read


class FeedReader:
    """One client. All notes up to `after` were sent to it, or are of other kinds."""

    def __init__(self, stream: ApiStream, beat_at: float) -> None:
        self.after, self.kinds, self.beat_at = stream.after, stream.kinds, beat_at
        self.is_asking = False


class Feed:
    """All followers. Only the server's thread uses it; `ask` has a page fetched elsewhere, after
    which `paged` is called."""

    def __init__(
        self, ask: Callable[[Connection, int, tuple[str, ...]], None], beat_s: float
    ) -> None:
        self.ask, self.beat_s = ask, beat_s
        self.latest = 0
        self.followers: dict[Connection, FeedReader] = {}

    def add(self, client: Connection, stream: ApiStream, now: float) -> None:
        """Adds a follower."""
        self.latest = max(self.latest, stream.latest)
        self.followers[client] = FeedReader(stream, now + self.beat_s)
        client.begin_stream()
        client.more(BEAT)  # so that it knows at once that it is connected
        self.pump(client)

    def drop(self, client: Connection) -> None:
        """Removes a follower."""
        self.followers.pop(client, None)

    def news(self, notes: Sequence[Note], now: float) -> list[Connection]:
        """Sends new notes to all who had everything before them; returns who has something to
        send."""
        notes = [note for note in notes if note.seq > self.latest]
        if not notes:
            return []
        before, self.latest = self.latest, notes[-1].seq
        lines = {note.seq: line_of(note) for note in notes}
        found = []
        for client, follower in self.followers.items():
            if client.out or follower.is_asking or follower.after < before:
                self.pump(client)
                continue
            wanted = [n for n in notes if not follower.kinds or n.kind in follower.kinds]
            follower.after = self.latest
            if wanted:
                client.more(b"".join(lines[note.seq] for note in wanted))
                follower.beat_at = now + self.beat_s
                found.append(client)
        return found

    def pump(self, client: Connection) -> None:
        """Requests the next page if the client has room for it and lacks something."""
        follower = self.followers[client]
        if not (client.out or follower.is_asking or follower.after >= self.latest):
            follower.is_asking = True
            self.ask(client, follower.after, follower.kinds)

    def paged(
        self, client: Connection, notes: Sequence[Note] | None, upto: int, now: float
    ) -> None:
        """Takes a page; `upto` was the latest note when it was requested. None: it could not be
        read, and is requested again with the next heartbeat."""
        follower = self.followers.get(client)
        if follower is None:
            return
        follower.is_asking = False
        if notes is None:
            return
        if notes:
            client.more(b"".join(map(line_of, notes)))
            follower.beat_at = now + self.beat_s
        last = notes[-1].seq if notes else follower.after
        follower.after = last if len(notes) >= PAGE else max(last, upto)

    def beat(self, now: float) -> list[Connection]:
        """Sends a heartbeat to those who got nothing for long; returns who has something to
        send."""
        found = []
        for client, follower in self.followers.items():
            if follower.beat_at <= now:
                follower.beat_at = now + self.beat_s
                if not client.out:
                    client.more(BEAT)
                    self.pump(client)
                    found.append(client)
        return found

    @property
    def due_at(self) -> float | None:
        """When `beat` must be called."""
        return min((follower.beat_at for follower in self.followers.values()), default=None)


class Listener:
    """Waits for the log in its own thread, as long as `wanted` says that somebody is interested.
    `tell` is called in that thread."""

    def __init__(
        self, daemon: Daemon, wanted: Callable[[], bool], tell: Callable[[Sequence[Note]], None]
    ) -> None:
        self.daemon, self.wanted, self.tell = daemon, wanted, tell
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # so that it does not end just when it is wanted again
        self._ended = threading.Event()

    def start(self, after: int) -> None:
        """Starts the thread, unless it runs."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, args=(after,), name="segue-news", daemon=True
                )
                self._thread.start()

    def _goes_on(self) -> bool:
        with self._lock:
            if not self.wanted() or self._ended.is_set():
                self._thread = None
            return self._thread is not None

    def _run(self, after: int) -> None:
        while self._goes_on():
            began = time.monotonic()
            try:
                notes = self.daemon.wait_notes(after, _WAIT_S)
            except Exception:  # problems with the log are reported elsewhere, and may pass
                notes = []
            if notes:
                after = max(after, notes[-1].seq)
                self.tell(notes)
            elif time.monotonic() - began < _PAUSE_S:
                self._ended.wait(_PAUSE_S)

    def close(self) -> None:
        """Ends the thread, and returns when it has ended, or soon."""
        self._ended.set()
        thread = self._thread
        if thread is not None:
            thread.join(2 * _WAIT_S)


def line_of(note: Note) -> bytes:
    """A note as an event of the stream."""
    kind = note.kind.replace("\n", " ").replace("\r", " ")
    body = api.encode(api.note_dict(note))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (note.seq, kind.encode("utf-8", "replace"), body)
