"""Everything that can happen to the agent, in one queue: signals, its model, its tool, its input.

Signals are handled only where the agent waits. So a signal never leaves a half-written record, and
each place that waits decides what an interruption means there.
"""

import json
import signal
import sys
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any

JSON = dict[str, Any]

_LOOK_S = 0.2
"""The longest sleep: a signal between the check of the queue and the sleep does not end it."""


class Interrupted(Exception):  # noqa: N818 - not an error
    """The agent is asked to stop, by the signal `number` or by the `request` on its input."""

    def __init__(self, number: int = 0, request: str = "") -> None:
        self.number, self.request = number, request


class Inbox:
    """The queue. `wait` returns the items for its caller; input lines are stored until they are
    needed."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[object, Any]] = SimpleQueue()
        self.lines: deque[JSON] = deque()  # user messages that were not handled yet
        self.questions: deque[JSON] = deque()  # control requests that were not answered yet
        self.is_open = False  # more input may come
        self._keys: set[str] = set()  # ids of user messages

    def listen(self, *signals: signal.Signals) -> None:
        """From now on, these signals are delivered as `Interrupted`."""
        for number in signals:
            signal.signal(number, self._signalled)

    def read_input(self) -> None:
        """From now on, standard input is read as lines of JSON."""
        self.is_open = True
        threading.Thread(target=self._read, daemon=True).start()

    def put(self, owner: object, item: Any) -> None:
        """Adds an item for `owner`. May be called from any thread."""
        self._queue.put((owner, item))

    def wait(self, owner: object, until: float | None = None) -> Any:
        """The next item for `owner`; None once the monotonic clock has reached `until`. Raises
        Interrupted."""
        while True:
            left = _LOOK_S if until is None else until - time.monotonic()
            if left <= 0 and self._queue.empty():
                return None
            try:
                whose, item = self._queue.get(timeout=max(0.0, min(left, _LOOK_S)))
            except Empty:
                continue
            if whose is signal:
                raise Interrupted(number=item)
            if whose is sys.stdin:
                self._take(item)
                if owner is sys.stdin:
                    return item
            elif whose is owner:
                # otherwise it belongs to a request or a tool that nobody waits for any more
                return item

    def sleep(self, seconds: float) -> None:
        """Sleeps. Raises Interrupted."""
        self.wait(self, time.monotonic() + seconds)

    def next_line(self) -> JSON | None:
        """The user's next message; None at the end of the input."""
        while not self.lines and not self.questions and self.is_open:
            self.wait(sys.stdin)
        return self.lines.popleft() if self.lines else None

    def _take(self, line: JSON | None) -> None:
        if line is None:
            self.is_open = False
        elif line.get("type") == "user":
            key = str(line.get("uuid") or "")
            if key not in self._keys:  # a repeated message counts once
                self.lines.append(line)
            if key:
                self._keys.add(key)
        elif line.get("type") == "control_request":
            request = line.get("request")
            if isinstance(request, dict) and request.get("subtype") == "interrupt":
                raise Interrupted(request=str(line.get("request_id", "")))
            self.questions.append(line)

    def _read(self) -> None:
        for raw in sys.stdin.buffer:
            try:
                line = json.loads(raw)
            except ValueError:
                continue
            if isinstance(line, dict):
                self.put(sys.stdin, line)
        self.put(sys.stdin, None)

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._queue.put((signal, number))
