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
        self, world: DaemonState, hands: HandoffWorker, stops: Stops, *, wake: Callable[[], None]
    ) -> None:
        self.world, self.hands, self.stops, self._wake = world, hands, stops, wake

    def one(self, name: str) -> TrackedSession:
        """The session with this name. Raises InputError."""
        found = self.world.find(name)
        live = [kept for kept in found if kept.session.state.is_live] or found
        if len(live) == 1:
            return live[0]
        if not live:
            raise InputError(f"no session {name!r} is watched; `segue status` lists them")
        names = ", ".join(kept.session.session_id for kept in live[:5])
        raise InputError(f"{name!r} may be one of {len(live)}: {names}")

    def pause(self, what: str, *, on: bool = True) -> str:
        """Pauses or unpauses something."""
        with self.world.lock:
            if on:
                self.world.paused.add(what)
            elif what == "all":
                self.world.paused.clear()
            else:
                self.world.paused.discard(what)
            self.world.note("paused", None, {"what": sorted(self.world.paused)})
        self._wake()
        return f"{'paused' if on else 'no longer paused'}: {what}"

    def hand_over(self, name: str, *, retry: bool) -> str:
        """Hands a session over now, or continues a handoff that waits for the user."""
        with self.world.lock:
            kept = self.one(name)
            cycle = self.hands.of(kept.session)
            if cycle is not None:
                if not retry and cycle.step is not HandoffStep.RESTING:
                    said = f"handoff {cycle.id} is in progress: {cycle.step.value}"
                    return f"{said}; {cycle.why}" if cycle.why else said
                self.hands.retry(cycle)
                return f"handoff {cycle.id} continues"
            why = _why_not(kept)
            if why:
                raise InputError(f"{label(kept.session)} cannot be handed over: {why}")
            cycle = self.hands.begin(kept, by_user=True)
            return f"handoff {cycle.id} begins; the document will be {cycle.file}"

    def cancel(self, name: str) -> str:
        """Cancels a handoff or a resume."""
        with self.world.lock:
            kept = self.one(name)
            cycle = self.hands.of(kept.session)
            if cycle is not None:
                self.hands.cancel(cycle)
                return f"handoff {cycle.id} is cancelled"
            said = self.stops.cancel(kept.session)
            return said or f"{label(kept.session)}: nothing is in progress"

    def yes(self, name: str) -> str:
        """Allows what the daemon asked about."""
        with self.world.lock:
            kept = self.one(name)
            return self.stops.say_yes(kept.session, self.world.clock.now() + YES_S)


def _why_not(kept: TrackedSession) -> str:
    if kept.session.process is None:
        return "no agent has it open"
    if kept.in_run:
        return "it belongs to a run, which hands over by itself"
    if terminals.find(kept.session.agent) is None:
        return f"segue cannot type into {kept.session.agent}"
    if kept.seat is None:
        return "it is not running in tmux"
    return ""
