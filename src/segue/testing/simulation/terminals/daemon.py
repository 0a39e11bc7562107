"""The daemon of a world: the real `Watch` in a process that may be killed, on a machine that may
sleep or go down. Its two threads take turns on the world's schedule: while the thread that touches
terminals waits for something, the other thread and the rest of the world continue.

All in one file: a process, its two threads and what they can see.
"""

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, cast

from segue.core.handoffs import machine
from segue.core.handoffs.machine.types import HandoffStep
from segue.core.runs.types import Run
from segue.core.sessions.types import Process, Session
from segue.errors import SegueError
from segue.runs.clock import Clock
from segue.runs.store.port import Holder
from segue.system.tmux.panes import AgentPane
from segue.testing.simulation.clock import VirtualClock
from segue.testing.simulation.faults import Fault
from segue.testing.simulation.invariants import Broken
from segue.testing.simulation.stores import Killed
from segue.testing.simulation.terminals.conversations import (
    SimulatedDocuments,
    SimulatedRecords,
    Talk,
)
from segue.testing.simulation.terminals.log import MemoryLog
from segue.testing.simulation.terminals.rim import (
    MachineGate,
    SimulatedObserver,
    SimulatedPlaces,
    SimulatedRules,
    SimulatedSeating,
    SimulatedTypist,
    silent,
)
from segue.watch.daemon import Watch
from segue.watch.log import Note
from segue.watch.observe import endings
from segue.watch.resumes.takeups import RunsHere
from segue.watch.state import DaemonState

if TYPE_CHECKING:
    from segue.testing.simulation.terminals.session import TerminalSession

_STIRRED_S = 0.2  # from a change to the loop's turn that sees it
_LOOK_S = 0.5  # how often real handoffs are looked at while something happens
_EAGER_S = 3.0  # for how long after it
_CALM_S = 15.0  # otherwise; timers have their own time
_RESTING_S = 600.0
_AGAIN_S = 30.0  # until a killed daemon is restarted
_UNDRIVEN_S = 120.0


def _check_line(line: str) -> None:
    """Receives the lines for the daemon's user. Raises Broken for an internal error, which the real
    daemon survives and reports."""
    if line.startswith("internal error"):
        raise Broken("the daemon makes no mistakes of its own", line)


class DaemonClock(Clock):
    """The machine's clocks, for one daemon. While it waits, the world continues."""

    def __init__(self, clock: VirtualClock, daemon: "SimulatedDaemon", life: int) -> None:
        self._clock, self._daemon, self._life = clock, daemon, life
        self.now, self.elapsed, self.awake = clock.now, clock.elapsed, clock.awake  # type: ignore[method-assign]

    def wait(self, files: Any, timeout_s: float) -> None:
        """Waits. Raises Killed if the daemon was killed in the meantime."""
        world = self._daemon.world
        until = world.schedule.now + timeout_s
        while True:
            while world.schedule.step(until):
                pass
            if world.machine.awake_at <= world.schedule.now:
                break
            until = world.machine.awake_at + timeout_s
        if self._life != self._daemon.life:
            raise Killed


class MachineRuns(RunsHere):
    """The runs of the world's headless sessions."""

    def __init__(self, daemon: "SimulatedDaemon") -> None:
        self._daemon = daemon

    def store(self) -> Any:
        """The world's store, which stays open."""
        return _Open(self._daemon.world.store)

    def is_alive(self, holder: Holder) -> bool:
        """Whether that process is alive."""
        return bool(self._daemon.world.is_holder_alive(holder))

    def is_elsewhere(self, machine: str) -> bool:
        """Always false, because there is one machine."""
        return False

    def has_folder(self, run: Run) -> bool:
        """Always true, because folders stay."""
        return True

    def queued(self) -> set[str]:
        """The runs that a worker of the queue handles."""
        return set(self._daemon.world.queued_runs())

    def resume(self, run: Run, env: Any) -> Any:
        """Runs `segue resume` in a separate process."""
        return self._daemon.world.take_up(run)


class _Open:
    def __init__(self, store: Any) -> None:
        self._store = store

    def __enter__(self) -> Any:
        return self._store

    def __exit__(self, *exc: object) -> None:
        pass


class SimulatedDaemon:
    """The daemon of a world, one process after another. What a process writes outlives it."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.random = Random(f"{world.plan.seed}:daemon")
        full = lambda: bool(world.is_disk_full)  # noqa: E731
        self.log = MemoryLog(full, self._noting)
        self.documents = SimulatedDocuments(world.machine.clock.now, full)
        self.records = SimulatedRecords(self.talk)
        self.owners: dict[str, TerminalSession] = {}  # by session id
        self.ended: dict[int, endings.After] = {}  # by pid
        self.watch: Watch | None = None
        self.life = self.ids = 0
        self.began_at = 0.0
        self.clock: Clock = world.machine.clock
        self._turn_at: float | None = None
        self._look_at: float | None = None
        self._is_looking = False
        self._eager_until = 0.0

    @property
    def state(self) -> DaemonState:
        """The state of the running daemon."""
        assert self.watch is not None
        return self.watch.state

    # Its process

    def start(self) -> None:
        """Starts a new process, unless one is running."""
        world = self.world
        if self.watch is not None:
            return
        if world.machine.awake_at > world.schedule.now or world.is_disk_full:
            world.schedule.at(max(world.machine.awake_at, world.schedule.now) + 60.0, self.start)
            return
        self.life += 1
        self.clock = DaemonClock(world.machine.clock, self, self.life)
        watch = Watch(
            env={},
            log=self.log,
            rules=SimulatedRules(world.plan.policy),
            say=_check_line,
            clock=self.clock,
            notices=silent(),
            observer=SimulatedObserver(self),
            typist=SimulatedTypist(self),
            seating=SimulatedSeating(self),
            boot=f"b{world.machine.boot}",
        )
        self.watch = watch
        self.began_at = world.schedule.now
        world.figures.daemons += 1
        worker = cast("Any", watch.handoffs)
        worker.start, worker._ring = worker.restore, self._ring
        state = watch.state
        state.records, state.documents, state.new_id = self.records, self.documents, self._new_id
        watch.gauge.panes = silent()
        watch.waking.places = SimulatedPlaces(self)
        watch.stops.gate = watch.waking.gate = MachineGate(self)
        watch.stops._draw = watch.takeups._draw = self.random.random
        watch.stops.local = watch.takeups.local = world.local
        watch.takeups.runs = MachineRuns(self)
        self._guarded(watch.begin)
        if self.watch is watch:
            self.stir()

    def kill(self, why: str = "the daemon is killed") -> None:
        """kill -9. Another daemon starts soon."""
        if self.watch is None:
            return
        self.world.say(0, why)
        self.watch = None
        self.life += 1
        self._turn_at = self._look_at = None
        self._is_looking = False
        self.world.schedule.at(self.world.schedule.now + _AGAIN_S, self.start)

    def may_be_killed(self, session: "TerminalSession") -> None:
        """Kills the daemon here and raises Killed, if that is planned."""
        if Fault.KILL_AT_ACT in session.armed and self.random.random() < 0.5:
            session.armed.discard(Fault.KILL_AT_ACT)
            self.kill("the daemon is killed while it acts")
            raise Killed

    def _noting(self, kind: str, session_id: str, note: Note | None) -> None:
        """Called before a lasting note is written (with None) and after it. Raises Killed if a kill
        is due."""
        owner = self.owners.get(session_id)
        if kind == "handoff" and note is not None:  # the daemon may have forgotten the session
            owner = self.owners.get(note.data["cycle"]["session_id"])
        if owner is not None and note is not None:
            if kind == "handoff":
                self.world.seen_handoff(note.data["fact"]["fact"], owner, note.data["cycle"])
            else:
                verdict = str(note.data.get("verdict", kind))
                self.world.seen_wake(verdict, owner)
                owner.watch.decided(verdict, note.data)
        if owner is None or Fault.KILL_AT_WRITE not in owner.armed or self.watch is None:
            return
        if self.random.random() < 0.5:
            owner.armed.discard(Fault.KILL_AT_WRITE)
            self.kill("the daemon is killed while it writes")
            raise Killed

    def _guarded(self, act: Any) -> None:
        try:
            act()
        except Killed:
            pass  # whoever killed it handles that
        except SegueError:  # it cannot even start
            self.kill("the daemon ends")

    def _new_id(self, kind: str) -> str:
        self.ids += 1
        return f"{kind}-{self.ids}"

    # What the user and the agents do

    def handoff_by_user(self, session: "TerminalSession") -> None:
        """The user runs `segue handoff`."""
        watch = self.watch
        tracked = (
            watch.state.tracked.get(("claude", session.talk.id)) if watch is not None else None
        )
        if watch is None or tracked is None or tracked.seat is None or self.world.is_disk_full:
            return
        if watch.handoffs.of(tracked.session) is None:
            session.watch.spoke()
            self._guarded(lambda: watch.handoffs.begin(tracked, by_user=True))

    def answered_by_user(self, session: "TerminalSession", *, retries: bool) -> bool:
        """The user answers a handoff that waits for them: retry it, or end it. Returns whether
        there was one that now continues."""
        watch, went_on = self.watch, False
        if watch is None or self.world.is_disk_full:
            return False
        for cycle in [*watch.handoffs.cycles.values()]:
            if cycle.step is not HandoffStep.NEEDS_USER or cycle.session_id not in session.talks:
                continue
            session.watch.spoke()
            if retries and session.talk.id in (cycle.session_id, cycle.new_session_id):
                watch.handoffs.retry(cycle)
                went_on = True
            else:
                watch.handoffs.cancel(cycle)
        return went_on

    # Its threads

    def wake_handoffs(self) -> None:
        """Wakes the thread for handoffs in progress, because something concerns only them."""
        if self.watch is not None and self.watch.handoffs.cycles:
            self._eager_until = self.world.schedule.now + _EAGER_S
            self._plan_look(self.world.schedule.now + _LOOK_S)

    def stir(self) -> None:
        """Wakes the daemon, because there is something to see."""
        now = self.world.schedule.now
        self._eager_until = now + _EAGER_S
        self._plan_turn(now + _STIRRED_S)
        if self.watch is not None and self.watch.handoffs.cycles:
            self._plan_look(now + _LOOK_S)

    def _ring(self) -> None:
        self._eager_until = self.world.schedule.now + _EAGER_S
        self._plan_look(self.world.schedule.now + 0.05)

    def _plan_turn(self, at: float) -> None:
        if self.watch is None or (self._turn_at is not None and self._turn_at <= at):
            return
        self._turn_at = at
        self.world.schedule.at(at, partial(self._turn, self.life, at))

    def _plan_look(self, at: float) -> None:
        if self.watch is None or (self._look_at is not None and self._look_at <= at):
            return
        self._look_at = at
        self.world.schedule.at(at, partial(self._look, self.life, at))

    def _turn(self, life: int, at: float) -> None:
        """One turn of the loop."""
        watch, world = self.watch, self.world
        if watch is None or life != self.life or self._turn_at != at:
            return
        self._turn_at = None
        if (awake_at := world.machine.awake_at) > world.schedule.now:
            self._plan_turn(awake_at + 0.1)
            return
        self._guarded(watch.turn)
        if life != self.life:
            return
        now, clock = world.schedule.now, world.machine.clock
        waits = [3_600.0]
        if watch._ended:
            waits.append(watch._ended[0][0] - clock.awake())
        if (next_at := watch.stops.next_at()) is not None:
            waits.append(next_at - clock.now())
        if watch.gauge.queued:
            waits.append(5.0)
        if watch.takeups._unattended_since:
            waits.append(_UNDRIVEN_S if self._is_calm(watch) else 10.0)
        if watch.state.fault and world.is_disk_full:
            waits = [120.0]
        self._plan_turn(now + max(0.1, min(waits)))

    def _is_calm(self, watch: Watch) -> bool:
        """Whether runs without a segue have been in that state for a while."""
        newest = max(watch.takeups._unattended_since.values(), default=0.0)
        return bool(self.world.machine.clock.now() > newest + 60.0)

    def _look(self, life: int, at: float) -> None:
        """One round of the thread that touches terminals."""
        watch, world = self.watch, self.world
        if watch is None or life != self.life or self._look_at != at:
            return
        self._look_at = None
        if (awake_at := world.machine.awake_at) > world.schedule.now:
            self._plan_look(awake_at + 0.1)
            return
        if self._is_looking:  # an earlier round is waiting for something, further up the stack
            self._plan_look(world.schedule.now + _LOOK_S)
            return
        self._is_looking = True
        self._guarded(watch.handoffs.look_round)
        if life != self.life:
            return
        self._is_looking = False
        self._plan_next_look(watch)

    def _plan_next_look(self, watch: Watch) -> None:
        cycles, now = watch.handoffs.cycles, self.world.schedule.now
        if not watch.handoffs._jobs.empty():
            self._plan_look(now + 0.05)
        if not cycles:
            return
        if not watch.handoffs.active:
            self._plan_look(now + _RESTING_S)
            return
        wait_s = _LOOK_S if now < self._eager_until else _CALM_S
        policy, clock = self.world.plan.policy, self.world.machine.clock
        for cycle in cycles.values():
            when = machine.due(cycle, policy)
            if when is not None and when > clock.now():
                wait_s = min(wait_s, when - clock.now() + 0.01)
        self._plan_look(now + max(0.05, wait_s))

    # What it sees

    def changed(self, session: "TerminalSession", ended: Process | None = None) -> None:
        """Tells the daemon that this session changed. `ended` is its process, if that ended."""
        self.owners[session.talk.id] = session
        if self.watch is not None:
            cast("SimulatedObserver", self.watch.observer).changed(session.talk.id, ended)
        self.stir()

    def changed_talk(self, session_id: str) -> None:
        """Tells the daemon that a session changed that nobody has open any more."""
        if self.watch is not None:
            cast("SimulatedObserver", self.watch.observer).changed(session_id)

    def forget(self, session_id: str) -> None:
        """Drops a session and everything about it, so that a world of years does not grow."""
        self.owners.pop(session_id, None)
        self.log.forget_sessions([("claude", session_id)])
        if self.watch is not None:
            cast("SimulatedObserver", self.watch.observer).forget(session_id)
            self.watch.state.tracked.pop(("claude", session_id), None)

    def owner(self, session_id: str) -> "TerminalSession | None":
        """The terminal session that a session id belongs to."""
        return self.owners.get(session_id)

    def talk(self, session_id: str) -> Talk | None:
        """The conversation in its file."""
        owner = self.owners.get(session_id)
        return owner.talks.get(session_id) if owner is not None else None

    def session_now(self, session_id: str) -> Session | None:
        """The session as the daemon would read it now."""
        owner, talk = self.owners.get(session_id), self.talk(session_id)
        return None if owner is None or talk is None else owner.session_of(talk)

    def recent(self) -> list[str]:
        """The sessions that a new daemon finds: those that run, and those of the last day."""
        since = self.world.machine.clock.now() - 86_400.0
        found = []
        for session_id, owner in self.owners.items():
            talk = owner.talks.get(session_id)
            is_live = owner.process is not None and owner.talk is talk
            if talk is not None and (is_live or talk.last_at >= since):
                found.append(session_id)
        return found

    def at(self, seat: AgentPane) -> "TerminalSession | None":
        """The session in that pane, if it is still the same process."""
        for owner in self.world.sessions_in_terminals:
            if owner.process is not None and owner.seat == seat:
                found: TerminalSession = owner
                return found
        return None

    def after(self, ended: Process) -> endings.After:
        """What remains of a process that ended."""
        return self.ended.get(ended.pid, endings.After())
