"""`segue watch`: observes all sessions, records what matters, and acts where the user allows it.

One thread observes and decides (`run`), one touches terminals (`HandoffWorker`), several answer
the API. Shared state is behind `DaemonState.lock`; nobody waits for anything while holding it.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType

import msgspec

from segue.agents import terminals
from segue.core.handoffs.machine.types import TerminalHandoff
from segue.core.sessions.types import Session, SessionState
from segue.errors import SegueError, StateError
from segue.runs.clock import Clock
from segue.runs.store import leases
from segue.system.notices import Notices
from segue.system.tmux.typist import Typist
from segue.watch.commands import UserCommands
from segue.watch.handoffs.adaptive import AdaptiveMarks
from segue.watch.handoffs.arrivals import Arrivals
from segue.watch.handoffs.seating import Seating
from segue.watch.handoffs.worker import HandoffWorker
from segue.watch.log import Log
from segue.watch.observe import endings
from segue.watch.observe.gauge import ZoneGauge
from segue.watch.observe.observer import REAP_S, SETTLE_S, Observer, Sighting
from segue.watch.resumes.prompt_stops import is_stop_at_prompt
from segue.watch.resumes.resuming import Resumer
from segue.watch.resumes.stops import Stops
from segue.watch.resumes.takeups import Takeups
from segue.watch.rules import Rules
from segue.watch.state import DaemonState, Name, TrackedSession, contained, label

TICK_S = 1.0
"""How often to check what changes only with time, while there is such a thing."""
IDLE_S = 30.0
KEEP_READINGS_S = 30 * 86_400.0
_PRUNE_S = 6 * 3600.0
_FORGET_S = 2 * 86_400.0


class Watch:
    """The daemon. `run` returns after `stop` was called, from any thread or signal handler."""

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        log: Log,
        rules: Rules,
        say: Callable[[str], None],
        clock: Clock | None = None,
        notices: Notices | None = None,
        observer: Observer | None = None,
        typist: Typist | None = None,
        seating: Seating | None = None,
        boot: str | None = None,
    ) -> None:
        """`boot` names this start of the machine; None: as the system does."""
        self.clock = clock or Clock()
        general = rules.policy("", "", "")
        self._notify = (general.notify, general.notify_terse)
        self.state = DaemonState(
            env=env,
            clock=self.clock,
            log=log,
            rules=rules,
            typist=typist or Typist(say=say),
            notices=notices or Notices(general.notify, terse=general.notify_terse, bell=sys.stderr),
            say=say,
        )
        self.observer = observer or Observer(
            env=env, policy_for=rules.policy, homes=rules.homes, clock=self.clock.now
        )
        self.handoffs = HandoffWorker(self.state)
        self.handoffs.nudge = self.observer.nudge
        self.arrivals = Arrivals(self.state, lambda job: self.handoffs.do(job))
        self.adaptive = AdaptiveMarks(self.state)
        self.handoffs.on_end = self._handed_over
        self.waking = Resumer(self.state, self.handoffs)
        self.stops = Stops(self.state, self.waking)
        self.waking.stops = self.stops
        self.waking.wakes = self.observer.wake
        self.takeups = Takeups(self.state, self.stops.user_answers.left_at)
        self.gauge = ZoneGauge(self.state, self.handoffs)
        self.commands = UserCommands(self.state, self.handoffs, self.stops, wake=self.observer.wake)
        self.seating = seating or Seating()
        self.began_at = self.clock.now()
        self._boot = leases.here().boot if boot is None else boot
        # when each end is judged, and until when for certain
        self._ended: list[tuple[float, float, Sighting]] = []
        self._unwritten: dict[Name, Sighting] = {}
        """What was seen but could not be logged: it is seen again until there is room."""
        self._reload = threading.Event()
        self._stop = threading.Event()
        self._pruned_at = float("-inf")
        self._is_restored = self._is_arriving = False
        self.on_first_look: Callable[[], None] = lambda: None
        """Called once all sessions are known, before anything is decided about them."""

    # Running

    def run(self) -> None:
        """Runs until it is stopped. Raises StateError if it cannot start; later it keeps
        running, and reports what is wrong."""
        state = self.state
        self.begin()
        try:
            while not self._stop.is_set():
                if not self.turn():
                    self._stop.wait(TICK_S)  # retrying does not help with a full disk
        finally:
            self.handoffs.stop()
            self.gauge.panes.close()
            with suppress(SegueError):
                state.note("daemon", None, {"event": "stopped"})
            self.observer.close()
            state.notices.close()

    def begin(self) -> None:
        """Takes over from the previous daemon, and looks at all sessions for the first time. Raises
        StateError."""
        state = self.state
        state.note("daemon", None, {"event": "started", "pid": os.getpid()})
        self.restore()
        self._take(self.observer.step(0))
        self.on_first_look()
        with state.lock:
            self._see_what_was_missed()
        self.handoffs.start()

    def turn(self) -> bool:
        """Waits until something changes or is due, and acts on it; returns whether that
        succeeded."""
        with contained(self.state) as step:
            self._take(self.observer.step(self.pause_s()))
            with self.state.lock:
                self._tick()
        return not step.has_failed

    def stop(self) -> None:
        """Makes `run` return soon. For any thread and for signal handlers."""
        self._stop.set()
        self.waking.is_stopping = True
        self.observer.wake()
        with self.state.news:
            self.state.news.notify_all()

    def reload(self) -> None:
        """Reloads the config soon."""
        self._reload.set()
        self.observer.wake()

    def catch_signals(self) -> None:
        """SIGTERM and Ctrl+C end the daemon, SIGHUP reloads the config."""

        def caught(number: int, _: FrameType | None) -> None:
            if number == signal.SIGHUP:
                self.reload()
            else:
                self.stop()

        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, caught)

    def pause_s(self) -> float:
        """The seconds until something is due."""
        if self._ended:
            return max(0.0, self._ended[0][0] - self.clock.awake())
        with self.state.lock:
            busy = bool(self.handoffs.cycles or self.gauge.queued or self._is_arriving)
            busy = busy or bool(self._unwritten)
            next_at = min(self.stops.next_at() or self.takeups.next_at, self.takeups.next_at)
            critical = any(
                tracked.memory.reminded_at is not None and tracked.session.process is not None
                for tracked in self.state.tracked.values()
            )
        pause_s = TICK_S if busy or critical else IDLE_S
        return min(pause_s, max(0.05, next_at - self.clock.now()))

    # Observing

    def _take(self, sightings: Sequence[Sighting]) -> None:
        for sighting in self._with_unwritten(sightings):
            session = sighting.session
            with self.state.lock:
                if not self._see(sighting):
                    # Its end, if it is one, is stored separately.
                    again = msgspec.structs.replace(sighting, ended=None)
                    self._unwritten[session.agent, session.session_id] = again
        while self.observer.notes:
            self.state.say(self.observer.notes.popleft())
        while self.state.rules.notes:
            self.state.say(self.state.rules.notes.popleft())

    def _with_unwritten(self, sightings: Sequence[Sighting]) -> list[Sighting]:
        """These sessions, and those that could not be logged before: each once, in its current
        state."""
        before, self._unwritten = self._unwritten, {}
        found = []
        for sighting in sightings:
            old = before.pop((sighting.session.agent, sighting.session.session_id), None)
            found.append(msgspec.structs.replace(sighting, before=old.before) if old else sighting)
        return [*before.values(), *found]

    def _see(self, sighting: Sighting) -> bool:
        """Handles changes; returns False if not all of them could be logged. A size that is not
        logged does not hide that the session has stopped."""
        session = self.adaptive.applied(sighting.session)
        name = (session.agent, session.session_id)
        tracked = self.state.tracked.get(name)
        if tracked is None:
            tracked = self.state.tracked[name] = TrackedSession(session)
        before, tracked.session = sighting.before or tracked.session, session
        with contained(self.state) as measured:
            self._measure(tracked, is_new=sighting.before is None)
        with contained(self.state) as judged:
            if session.process is None:
                self.gauge.panes.clear(tracked)
            if sighting.ended is not None and session.process is None:
                ended_at = self.clock.awake()
                self._ended.append((ended_at + SETTLE_S, ended_at + REAP_S, sighting))
            elif session.process is not None:
                self._see_live(tracked, before)
        return not (measured.is_unwritten or judged.is_unwritten)

    def _measure(self, tracked: TrackedSession, *, is_new: bool) -> None:
        process = tracked.session.process
        if process is not None and self.seating.learn(tracked, process):
            try:
                self._note_live(tracked, process.pid)
            except StateError:
                tracked.seen_pid = 0  # it is determined again once that can be logged
                raise
        if process is not None or not is_new:
            self.gauge.measure(tracked)

    def _handed_over(self, cycle: TerminalHandoff) -> None:
        self.adaptive.learn(cycle)
        self.arrivals.begin(cycle)

    def _note_live(self, tracked: TrackedSession, pid: int) -> None:
        """Logs live sessions, so that a later daemon knows that they ended, and how they were
        started."""
        data = {"pid": pid, "boot": self._boot, "in_run": tracked.in_run}
        started = {"program": tracked.program, "flags": list(tracked.flags)}
        self.state.note("live", tracked.session, data | started)

    def _see_live(self, tracked: TrackedSession, before: Session) -> None:
        session = tracked.session
        if is_stop_at_prompt(session):
            self.stops.at_prompt(tracked)
        elif session.state is SessionState.WORKING or (session.last_at or 0) > (
            before.last_at or 0
        ):
            self.stops.went_on(session)
        status = session.process.status if session.process else ""
        if status == "waiting" and session.process is not None:
            self.needs_you(session, session.process.waiting_for)

    def needs_you(self, session: Session, what: str) -> None:
        """Tells the user that an agent waits for an answer. Each question is reported once."""
        key = f"{session.session_id}:{session.last_at}"
        self.state.notices.tell(
            "needs_you", key, f"{label(session)} is asking you a question", what
        )

    # What only time changes

    def _tick(self) -> None:
        if self._reload.is_set():
            self._reload.clear()
            self._read_config()
        now = self.clock.awake()
        while self._ended and self._ended[0][0] <= now:
            due, until, sighting = self._ended.pop(0)
            if now < until and not self._is_final(sighting):
                self._ended.append((now + SETTLE_S, until, sighting))
                continue
            try:
                self._see_end(sighting)
            except StateError:
                self._ended.insert(0, (due, until, sighting))
                raise
        self.gauge.remind()
        self.gauge.hand_over_next()
        self.stops.tick(self.clock.now())
        self._is_arriving = self.arrivals.tick()
        with contained(self.state):
            self.takeups.tick(self.clock.now())
        if now - self._pruned_at >= _PRUNE_S:
            self._pruned_at = now
            self._tidy()

    def _is_final(self, sighting: Sighting) -> bool:
        """Whether nothing more can become known about how the process ended. Where only its parent
        learns the exit code, a busy tmux reads it late, and until then a crash looks like a closed
        terminal."""
        return sighting.ended is None or self.observer.after(sighting.ended).is_final

    def _see_end(self, sighting: Sighting) -> None:
        name = (sighting.session.agent, sighting.session.session_id)
        tracked = self.state.tracked.get(name)
        if tracked is None or tracked.session.process is not None:
            return  # it was started again
        sighting = msgspec.structs.replace(sighting, session=tracked.session)
        stop = self.observer.ending_of(sighting, hook=tracked.hook_end)
        tracked.ended_at = self.clock.now()
        has_tmux, seat = False, tracked.seat
        if seat is not None:
            has_tmux, tracked.shell_line, has_pane = self.seating.shell_of(tracked)
            if not has_pane:
                tracked.seat = None
        mid_turn = endings.is_mid_turn(tracked.session, sighting.ended)
        code = self.observer.after(sighting.ended).exit_code if sighting.ended else None
        try:
            self.stops.ended(tracked, stop, mid_turn=mid_turn, has_tmux=has_tmux, exit_code=code)
        except StateError:
            tracked.seat = seat
            raise

    def _see_what_was_missed(self) -> None:
        """Handles sessions whose agent ended while no daemon was running, for example in a crash
        of the machine."""
        for name, tracked in list(self.state.tracked.items()):
            if tracked.session.process is not None:
                continue
            notes = self.state.log.of(*name, ("live", "stop"), 1)
            if not notes or notes[-1].kind != "live":
                continue
            data = notes[-1].data
            for note in self.state.log.of(*name, ("hook",)):
                if note.seq > notes[-1].seq and note.data.get("type") in ("started", "ended"):
                    tracked.hook_end = str(note.data.get("reason", ""))
            tracked.in_run = data.get("in_run") is True
            tracked.terminal = terminals.find(tracked.session.agent)
            tracked.program = str(data.get("program", ""))
            tracked.flags = tuple(map(str, data.get("flags", ())))
            other = bool(self._boot) and data.get("boot") not in ("", self._boot)
            sighting = Sighting(tracked.session)
            stop = self.observer.ending_of(sighting, hook=tracked.hook_end, other_boot=other)
            mid_turn = endings.is_mid_turn(tracked.session, None)
            self.stops.ended(tracked, stop, mid_turn=mid_turn, has_tmux=self.seating.has_tmux())

    def _read_config(self) -> None:
        wrong = self.state.rules.reload()
        for line in wrong:
            self.state.say(line)
        self.state.note("daemon", None, {"event": "reloaded", "wrong": wrong})
        self._renew_notices()
        if not wrong:
            on = self.state.rules.switched_on()
            self.state.say(f"the config was reloaded{f'; acting by itself: {on}' if on else ''}")
        self.observer.reload(self.state.rules.policy, self.state.rules.homes)

    def _renew_notices(self) -> None:
        """Applies changes to where notices go."""
        wanted = self.state.rules.policy("", "", "")
        if (wanted.notify, wanted.notify_terse) != self._notify:
            self._notify = (wanted.notify, wanted.notify_terse)
            self.state.notices.close(0)
            bell = sys.stderr
            self.state.notices = Notices(wanted.notify, terse=wanted.notify_terse, bell=bell)

    def _tidy(self) -> None:
        now = self.clock.now()
        for kind in ("reading", "hook", "health", "reminder", "turn", "daemon", "live"):
            with suppress(SegueError):
                self.state.log.prune(kind, now - KEEP_READINGS_S)
        self.waking.places.forget_logs(now - KEEP_READINGS_S)
        live = self.observer.sessions
        for name, tracked in list(self.state.tracked.items()):
            if name not in live and now - (tracked.session.last_at or 0) > _FORGET_S:
                del self.state.tracked[name]

    def restore(self) -> None:
        """Loads what the previous daemon knew. Must be called once, before any request."""
        if self._is_restored:
            return
        self._is_restored = True
        note = self.state.log.latest("paused")
        if note is not None:
            self.state.paused = {str(what) for what in note.data.get("what", [])}
        seq = 0
        while notes := self.state.log.since(seq, ("turn",)):
            seq = notes[-1].seq
            for note in notes:
                tokens = note.data.get("tokens")
                if isinstance(tokens, int) and tokens > 0:
                    self.state.learn_cost(note.project, tokens)
        self.stops.restore()
        self.arrivals.restore()
