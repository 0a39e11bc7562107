"""The user's commands to the daemon: pause, hand over, cancel, continue. Any thread may call
them; a mistake raises an error with a one-line message."""

from collections.abc import Callable

from segue.agents import terminals
from segue.core.handoffs.machine.types import HandoffStep
from segue.errors import InputError
from segue.watch.handoffs.worker import HandoffWorker
from segue.watch.resumes.stops import Stops
from segue.watch.state import DaemonState, TrackedSession, label

YES_S = 86_400.0
"""How long an answer of the user's is valid."""


class UserCommands:
    """Carries out the user's commands, and returns one line that says what was done. `wake` is
    called when a decision may have changed."""

    def __init__(
        self, state: DaemonState, handoffs: HandoffWorker, stops: Stops, *, wake: Callable[[], None]
    ) -> None:
        self.state, self.handoffs, self.stops, self._wake = state, handoffs, stops, wake

    def one(self, name: str) -> TrackedSession:
        """The session that this name refers to; a live one, if several have it. Raises InputError
        if there is none, or if the name is ambiguous."""
        found = self.state.find(name)
        live = [tracked for tracked in found if tracked.session.state.is_live] or found
        if len(live) == 1:
            return live[0]
        if not live:
            raise InputError(f"no session {name!r} is watched; `segue status` lists them")
        names = ", ".join(tracked.session.session_id for tracked in live[:5])
        raise InputError(f"{name!r} may be one of {len(live)}: {names}")

    def pause(self, what: str, *, on: bool = True) -> str:
        """Pauses `what`, or ends its pause with `on=False`: "all", a project's folder, or a
        session's id."""
        with self.state.lock:
            if on:
                self.state.paused.add(what)
            elif what == "all":
                self.state.paused.clear()
            else:
                self.state.paused.discard(what)
            self.state.note("paused", None, {"what": sorted(self.state.paused)})
        self._wake()
        return f"{'paused' if on else 'no longer paused'}: {what}"

    def hand_over(self, name: str, *, retry: bool) -> str:
        """Hands a session over now, or continues a handoff that waits for the user."""
        with self.state.lock:
            tracked = self.one(name)
            cycle = self.handoffs.of(tracked.session)
            if cycle is not None:
                if not retry and cycle.step is not HandoffStep.RESTING:
                    message = f"handoff {cycle.id} is in progress: {cycle.step.value}"
                    return f"{message}; {cycle.why}" if cycle.why else message
                self.handoffs.retry(cycle)
                return f"handoff {cycle.id} continues"
            why = _why_not(tracked)
            if why:
                raise InputError(f"{label(tracked.session)} cannot be handed over: {why}")
            cycle = self.handoffs.begin(tracked, by_user=True)
            return f"handoff {cycle.id} begins; the document will be {cycle.file}"

    def cancel(self, name: str) -> str:
        """Cancels a handoff or a resume."""
        with self.state.lock:
            tracked = self.one(name)
            cycle = self.handoffs.of(tracked.session)
            if cycle is not None:
                self.handoffs.cancel(cycle)
                return f"handoff {cycle.id} is cancelled"
            message = self.stops.cancel(tracked.session)
            return message or f"{label(tracked.session)}: nothing is in progress"

    def yes(self, name: str) -> str:
        """Allows what the daemon has asked about this session."""
        with self.state.lock:
            tracked = self.one(name)
            return self.stops.say_yes(tracked.session, self.state.clock.now() + YES_S)


def _why_not(tracked: TrackedSession) -> str:
    if tracked.session.process is None:
        return "no agent has it open"
    if tracked.in_run:
        return "it belongs to a run, which hands over by itself"
    if terminals.find(tracked.session.agent) is None:
        return f"segue cannot type into {tracked.session.agent}"
    if tracked.seat is None:
        return "it is not running in tmux"
    return ""
