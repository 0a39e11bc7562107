"""Sends spans and metrics in a separate thread.

Callers never wait: data is queued. A collector that is gone or hangs costs data, never time:
what does not fit into the queue is dropped and counted.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct

from segue.system.telemetry.types import Endpoint, Measured, Sample, SpanRecord

_MAX_WAITING = 2_000
_LOAD_S = 30.0
"""For loading OpenTelemetry on a busy machine."""


class Batch(Struct, kw_only=True):
    """What is sent at once. `was_sent` is called in the sender's thread if it was accepted."""

    spans: Sequence[SpanRecord] = ()
    samples: Sequence[Sample] = ()
    measured: Sequence[Measured] = ()
    was_sent: Callable[[], None] | None = None


PendingBatch = Batch | Callable[[], Batch]
"""The batch, or a function that creates it in the sender's thread."""


class Sender:
    """Sends in its own thread. Never blocks and never raises. Nothing is loaded before `prepare` or
    the first `tell`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._waiting: deque[PendingBatch] = deque()
        self._changed = threading.Condition()
        self._is_busy = self._is_ready = self._is_closed = False
        self._thread: threading.Thread | None = None
        self.sent = self.dropped = 0
        self.is_answered: bool | None = None
        """Whether the collector accepted the last batch; None: nothing was sent yet."""

    def prepare(self) -> None:
        """Loads the library and checks that the collector is there, because data will follow
        soon."""
        self.tell(Batch())

    def tell(self, batch: PendingBatch) -> None:
        """Queues a batch; if the queue is full, it is dropped."""
        with self._changed:
            if self._is_closed or len(self._waiting) >= _MAX_WAITING:
                self.dropped += 1
                return
            self._waiting.append(batch)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, patience_s: float) -> bool:
        """Accepts nothing more. Waits this long for queued data, but not at all if the collector
        rejected the last batch. Returns whether everything was sent."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_ready or self._is_idle(), _LOAD_S)
            until = time.monotonic() + patience_s
            while not self._is_idle() and (left := until - time.monotonic()) > 0:
                if self.is_answered is False:
                    break
                self._changed.wait(left)
            is_out = self._is_idle()
            self._is_closed = True
            self.dropped += len(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        return is_out

    def _loaded(self) -> None:
        with self._changed:
            self._is_ready = True
            self._changed.notify_all()

    def _is_idle(self) -> bool:
        return not self._waiting and not self._is_busy

    def _work(self) -> None:
        from segue.system.telemetry.otlp import Exporter

        exporter: Exporter | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    break
                next_batch, self._is_busy = self._waiting.popleft(), True
            is_taken = False
            try:
                exporter = exporter or Exporter(self._endpoint)
                self._loaded()
                batch = next_batch() if callable(next_batch) else next_batch
                is_taken = exporter.send(batch.spans, batch.samples, batch.measured)
                if is_taken and batch.was_sent is not None:
                    batch.was_sent()
            # an error in OpenTelemetry or in the function that creates a batch: nobody waits for it
            except Exception:
                is_taken = False
            with self._changed:
                self.is_answered = is_taken
                self.sent += is_taken
                self.dropped += not is_taken
                self._is_busy, self._is_ready = False, True
                self._changed.notify_all()
        if exporter is not None:
            exporter.close()
