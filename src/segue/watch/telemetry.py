"""Reports the daemon's counts and handoffs in terminals to a collector. It is off unless the
user set it up, and delays nothing."""

import threading
from collections.abc import Callable, Mapping

from segue.system.telemetry import setup
from segue.system.telemetry.sender import Batch, Sender
from segue.system.telemetry.types import Endpoint, Sample, SpanRecord, plain
from segue.watch.log import Note

_PATIENCE_S = 1.0


class DaemonTelemetry:
    """The daemon's telemetry. `numbers` returns the counts; it is called now and then, in the
    sender's thread. `hear` is for the daemon's listeners."""

    def __init__(
        self, endpoint: Endpoint, env: Mapping[str, str], numbers: Callable[[], list[Sample]]
    ) -> None:
        self._sender, self._numbers = Sender(endpoint), numbers
        self._every_s = setup.interval_s(env)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="metrics", daemon=True)
        self._thread.start()

    def hear(self, note: Note) -> None:
        """A handoff in a terminal that has ended is a span."""
        span = span_of(note)
        if span is not None:
            self._sender.tell(Batch(spans=[span]))

    def close(self) -> None:
        """Waits briefly for data that is being sent, if the collector answers at all."""
        self._is_over.set()
        self._sender.close(_PATIENCE_S)

    def _work(self) -> None:
        while True:
            self._sender.tell(lambda: Batch(samples=self._numbers()))
            if self._is_over.wait(self._every_s):
                return


def span_of(note: Note) -> SpanRecord | None:
    """The span of the handoff that ends with this note; None for any other note. Pure."""
    data = note.data
    took_s = data.get("duration_s")
    if note.kind != "metrics" or not isinstance(took_s, int | float):
        return None
    outcome = str(data.get("outcome") or "")
    is_error = outcome != "done"
    attributes = {
        "gen_ai.agent.name": note.agent,
        "gen_ai.conversation.id": note.session_id,
        "segue.handoff.outcome": outcome,
        "segue.context.fraction": data.get("trigger_fraction"),
        "error.type": outcome if is_error else "",
    }
    return SpanRecord(
        trace=f"{note.agent}:{note.session_id}:{note.seq}",
        name="handoff",
        title="handoff",
        since=note.at - max(0.0, float(took_s)),
        until=note.at,
        attributes=plain(attributes),
        error=outcome if is_error else "",
    )
