"""Checks whether a handoff in a terminal worked: compares the new session's first actions with
what the old one knew, and counts files that it reads again, commands that it repeats and
questions that it asks again. The result is logged once per handoff."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from segue.core.handoffs.digest import Arrival, Builder, Digest
from segue.core.handoffs.machine.types import HandoffStep, TerminalHandoff
from segue.core.sessions.types import Session, SessionState
from segue.watch.log import ARRIVAL
from segue.watch.state import DaemonState

_LOOK_S = 3.0  # between two looks at the same session
_RECENT_S = 86_400.0
_MAX_PENDING = 50


class _Pending(Struct):
    """A handoff whose new session has not done enough yet."""

    cycle: TerminalHandoff
    digest: Digest | None = None
    looked_at: float = float("-inf")
    looked_for: tuple[SessionState, float | None] | None = None  # what could be seen at that time
    is_looking: bool = False


class Arrivals:
    """All handoffs of one daemon. `do` runs slow work elsewhere."""

    def __init__(self, state: DaemonState, do: Callable[[Callable[[], None]], None]) -> None:
        self.state, self._do = state, do
        self._pending: dict[tuple[str, str], _Pending] = {}

    def begin(self, cycle: TerminalHandoff) -> None:
        """A handoff has ended."""
        new = cycle.new_session_id
        is_recent = cycle.step_at >= self.state.clock.now() - _RECENT_S
        if cycle.step is HandoffStep.DONE and is_recent and new and new != cycle.session_id:
            self._pending[cycle.agent, new] = _Pending(cycle)
            if len(self._pending) > _MAX_PENDING:
                del self._pending[next(iter(self._pending))]

    def restore(self) -> None:
        """Loads the previous daemon's handoffs that have no result yet."""
        seq = 0
        while notes := self.state.log.since(seq, ("handoff", ARRIVAL)):
            for note in notes:
                seq = note.seq
                if note.kind == ARRIVAL:
                    self._pending.pop((note.agent, note.session_id), None)
                    continue
                with suppress(msgspec.ValidationError):
                    self.begin(msgspec.convert(note.data.get("cycle"), TerminalHandoff))

    def tick(self) -> bool:
        """Looks at changed ones from time to time. Returns whether any are left to look at."""
        now, is_left = self.state.clock.awake(), False
        for name, pending in list(self._pending.items()):
            tracked = self.state.tracked.get(name)
            if tracked is None:
                continue
            session = tracked.session
            shown = (session.state, session.last_at)
            if shown == pending.looked_for:
                continue
            is_working = session.state is SessionState.WORKING
            if pending.is_looking or (is_working and now - pending.looked_at < _LOOK_S):
                is_left = True
                continue
            pending.looked_at, pending.looked_for, pending.is_looking = now, shown, True
            self._do(partial(self._look, pending, session, is_working=is_working))
        return is_left

    def _look(self, pending: _Pending, session: Session, *, is_working: bool) -> None:
        try:
            if pending.digest is None:
                pending.digest = self._knew(pending.cycle)
            arrival = Arrival(pending.digest)
            self.state.records.replay(arrival, session.agent, session.path, session.session_id)
        finally:
            pending.is_looking = False
        found = arrival.repeats
        # While it is working it will do more; once its turn is over it has shown what it knows.
        if not found.actions or (is_working and not arrival.is_over):
            return
        with self.state.lock:
            if self._pending.pop((session.agent, session.session_id), None) is None:
                return
            did_again = bool(found.commands or found.files or found.questions)
            data = {"id": pending.cycle.id, "from_session_id": pending.cycle.session_id}
            result = {"result": "repeats" if did_again else "goes_on"}
            self.state.note(ARRIVAL, session, data | result | msgspec.to_builtins(found))

    def _knew(self, cycle: TerminalHandoff) -> Digest:
        """What the old session knew, apart from the document that the new one is told to read."""
        tracked = self.state.tracked.get((cycle.agent, cycle.session_id))
        builder = Builder()
        if tracked is not None:
            self.state.records.replay(builder, cycle.agent, tracked.session.path, cycle.session_id)
        digest = builder.digest()
        name = cycle.file.rpartition("/")[2]
        return replace(digest, files=tuple(f for f in digest.files if not f.path.endswith(name)))
