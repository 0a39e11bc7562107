"""Shows the user how full a session is, in the tmux pane of its agent. It costs no turn, types
nothing, and disappears by itself. It is for sessions without hooks, whose agents get no other
message."""

from collections.abc import Callable
from contextlib import suppress

from segue.core.policy import Policy
from segue.core.sessions.reading import Reading, Zone
from segue.system.process.procfs import System, system
from segue.system.tmux import panes as seats
from segue.system.tmux.panes import AgentPane
from segue.system.tmux.tmux import Tmux, TmuxError
from segue.watch.state import TrackedSession

OPTION = "@segue"
"""A pane's option with the current zone, for the user's own status line."""

SHOWN_S = 10.0


def message(reading: Reading, zone: Zone, policy: Policy) -> str:
    """The message to the user on entering a zone; "" if there is nothing to say."""
    text = f"segue: context at {reading.fraction:.0%}"
    match zone:
        case Zone.WARNING:
            return f"{text}: start only tasks below {policy.warning_task_tokens:,} tokens here"
        case Zone.CRITICAL:
            return f"{text}: finish the current work, then hand over (segue handoff)"
        case Zone.HANDOFF:
            return f"{text}: hand over now (segue handoff)"
    return ""


class PaneNotices:
    """Shows and removes messages. `do` carries out what needs a terminal, in its turn."""

    def __init__(
        self,
        do: Callable[[Callable[[], None]], None],
        *,
        tmux_for: Callable[[str], Tmux] = Tmux,
        on: System | None = None,
    ) -> None:
        self._do, self._tmux_for, self._on = do, tmux_for, on or system()
        self._marked: dict[AgentPane, str] = {}

    def tell(self, tracked: TrackedSession, text: str) -> None:
        """Shows the message for some seconds to whoever looks at the pane."""
        seat, reading, zone = tracked.seat, tracked.session.reading, tracked.session.zone
        if seat is None or reading is None or zone is None or not may_be_told(tracked):
            return
        mark = f"{reading.fraction:.0%} {zone.value}"
        self._marked[seat] = mark
        self._do(lambda: self._show(seat, text, mark))

    def clear(self, tracked: TrackedSession) -> None:
        """Removes the mark from its pane: the session has left these zones, or is gone."""
        for seat in [s for s in self._marked if tracked.seen_pid == s.pid]:
            self._marked.pop(seat)
            self._do(lambda seat=seat: self._unmark(seat))  # type: ignore[misc]

    def close(self) -> None:
        """Removes all marks at once."""
        for seat in self._marked:
            self._unmark(seat)
        self._marked = {}

    def _show(self, seat: AgentPane, text: str, mark: str) -> None:
        with suppress(TmuxError):  # a pane that is gone needs no message
            tmux = self._tmux_for(seat.socket)
            if seats.why_left(seat, tmux.pane(seat.pane), self._on) == "gone":
                return
            tmux.set_pane_option(seat.pane, OPTION, mark)
            tmux.show_message(seat.pane, text, shown_s=SHOWN_S)

    def _unmark(self, seat: AgentPane) -> None:
        with suppress(TmuxError):
            self._tmux_for(seat.socket).unset_pane_option(seat.pane, OPTION)


def may_be_told(tracked: TrackedSession) -> bool:
    """Whether its pane is the right place: hooks tell the agent itself, and segue takes care of a
    run."""
    return not tracked.hooked_at and not tracked.in_run and not tracked.is_ours
