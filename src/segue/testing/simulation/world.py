"""One world: a machine, one or two accounts, and the sessions of one user over some days."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from segue.core.policy import Policy
from segue.core.runs.types import AnyFact, Run
from segue.runs.store.memory import MemoryStore
from segue.runs.store.port import Entry, Holder
from segue.testing.simulation import faults
from segue.testing.simulation.accounts import MachineAccounts
from segue.testing.simulation.clock import Schedule, VirtualClock
from segue.testing.simulation.faults import DAY_S, Fault, PlannedFault
from segue.testing.simulation.figures import Figures
from segue.testing.simulation.headless.session import HeadlessSession
from segue.testing.simulation.invariants import Broken, must
from segue.testing.simulation.machines import Machine
from segue.testing.simulation.models import Growth
from segue.testing.simulation.providers import Account
from segue.testing.simulation.queued.session import QueuedSession
from segue.testing.simulation.queued.worker import Workers
from segue.testing.simulation.terminals.daemon import SimulatedDaemon
from segue.testing.simulation.terminals.session import TerminalSession

SESSIONS = 4
"""The maximum per world. They share a machine, a store and their accounts."""
_IN_TERMINALS = 0.25  # of all sessions
_IN_QUEUE = 0.4  # of the others
_LOOK_S = 6 * 3_600.0
_KEPT_LINES = 4_000
_MAX_STEPS = 10_000  # per session and day: ten times what a working agent needs


class Plan(Struct, frozen=True, kw_only=True):
    """Everything that a world depends on. The same plan gives the same world."""

    seed: str
    sessions: int = SESSIONS
    days: float = 30.0
    policy: Policy = Policy()
    growth: Growth = Growth()
    faults: tuple[PlannedFault, ...] = ()
    sqlite: str = ""  # a folder for the store; "" keeps it in memory


class Line(Struct, frozen=True):
    """One line of a world's story."""

    at_s: float
    session: int
    what: str


class Result(Struct, kw_only=True):
    """The result of playing a world. `story` has its newest lines."""

    figures: Figures
    digest: str  # a hash of everything that was written: the same for the same plan
    covered: Counter[tuple[str, str, str]]  # state, fact, and the fault before it
    rule: str = ""  # the broken invariant, or ""
    what: str = ""
    at_s: float = 0.0
    story: list[Line]


def planned(
    seed: int, number: int, *, sessions: int, days: float, policy: Policy, growth: Growth
) -> Plan:
    """The world of this number."""
    own = f"{seed}:{number}"
    automatic = Random(f"{own}:automatic").random() < 0.6
    policy = replace(policy, auto_resume=automatic, auto_handoff=automatic)
    return Plan(
        seed=own,
        sessions=sessions,
        days=days,
        policy=policy,
        growth=growth,
        faults=faults.plan(own, sessions, days, faults.swarm(own)),
    )


class ResumedProcess:
    """A process that the daemon started to resume a run. It is lost as soon as another process, or
    none, drives the run."""

    def __init__(self, session: HeadlessSession) -> None:
        self._session, self._driver = session, session.driver
        self.process = self

    def poll(self) -> int | None:
        """Its exit code; None while it drives the run."""
        return None if self._driver and self._session.driver is self._driver else 1

    def last_line(self) -> str:
        """The last line that it printed."""
        return "the run is driven by another process"


class World:
    """Plays a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.schedule = Schedule()
        self.machine = Machine(clock=VirtualClock(self.schedule))
        self.alive: set[int] = set()
        self.decided: set[tuple[str, int]] = set()
        self.store: Any = self._open(plan.sqlite)
        self.growth = plan.growth
        self.figures = Figures(sessions=plan.sessions)
        self.covered: Counter[tuple[str, str, str]] = Counter()
        self.story: list[Line] = []
        self._digest = sha256()
        self._last_fault: dict[int, tuple[float, str]] = {}
        self._steps, self._day_ends = 0, DAY_S
        random = Random(f"{plan.seed}:world")
        self.known_limits = MachineAccounts(self)
        self.accounts = [Account() for _ in range(1 + (random.random() < 0.5))]
        self.daemon, self.workers = SimulatedDaemon(self), Workers(self)
        self.queue = self.workers.queue(plan.sqlite)
        self.queued_sessions: list[QueuedSession] = []
        self.sessions = [self._begin(number) for number in range(plan.sessions)]
        self.sessions_in_terminals = [s for s in self.sessions if isinstance(s, TerminalSession)]
        self.schedule.at(1.0, self.daemon.start)
        if self.queued_sessions:
            self.schedule.at(2.0, self.workers.start)
        for each in plan.faults:
            self.schedule.at(each.at_s, lambda each=each: self.suffer(each))  # type: ignore[misc]
        self.schedule.at(_LOOK_S, self._look)

    def _open(self, folder: str) -> Any:
        if not folder:
            return MemoryStore(is_alive=self.is_holder_alive)
        from pathlib import Path

        from segue.runs.store.sqlite import SqliteStore

        return SqliteStore(Path(folder) / "runs.db", is_alive=self.is_holder_alive)

    def is_holder_alive(self, holder: Holder) -> bool:
        """Whether that process is alive."""
        return holder.pid in self.alive and holder.boot == f"b{self.machine.boot}"

    def _begin(self, number: int) -> Any:
        random = Random(f"{self.plan.seed}:session:{number}")
        if random.random() < _IN_TERMINALS:
            return TerminalSession(self, number, self.plan.policy, random)
        if Random(f"{self.plan.seed}:queued:{number}").random() < _IN_QUEUE:
            self.queued_sessions.append(QueuedSession(self, number, self.plan.policy, random))
            return self.queued_sessions[-1]
        return HeadlessSession(self, number, self.plan.policy, random)

    def play(self) -> Result:
        """Plays the world to its end, or until an invariant is broken."""
        rule = what = ""
        try:
            while self.schedule.step(self.plan.days * DAY_S):
                self._count_step()
            for session in self.sessions:
                session.watch.look()
                if session.run_id or isinstance(session, TerminalSession):
                    session.watch.replays(session.run_id)
        except Broken as broken:
            rule, what = broken.rule, broken.what
        finally:
            self.store.close()
        return Result(
            figures=self.figures,
            digest=self._digest.hexdigest(),
            covered=self.covered,
            rule=rule,
            what=what,
            at_s=self.schedule.now,
            story=self.story,
        )

    def _count_step(self) -> None:
        """Counts the steps of a day. Raises Broken if there are so many that a loop must be
        spinning."""
        self._steps += 1
        if self.schedule.now >= self._day_ends:
            self._steps = 0
            self._day_ends = (self.schedule.now // DAY_S + 1) * DAY_S
        if self._steps > _MAX_STEPS * self.plan.sessions:
            raise Broken("no turn without effect for ever", f"more than {_MAX_STEPS} steps a day")

    # What sessions query

    def account_of(self, session: int) -> Account:
        """The account that a session uses."""
        return self.accounts[session % len(self.accounts)]

    @property
    def is_disk_full(self) -> bool:
        """Whether nothing can be written."""
        return self.schedule.now < self.machine.disk_full_until

    @staticmethod
    def local(at: float) -> datetime:
        """The user's local time."""
        return datetime.fromtimestamp(at, UTC)

    def say(self, session: int, what: str) -> None:
        """Adds a line to the story."""
        self.story.append(Line(self.schedule.now, session, what))
        if len(self.story) > 2 * _KEPT_LINES:
            del self.story[:_KEPT_LINES]

    def entry_written(self, before: Run, fact: AnyFact, after: Run, entry: Entry) -> None:
        """An entry was written to a run's log."""
        self.figures.facts += 1
        self.figures.replies += entry.kind == "read"
        line = f"{entry.run} {entry.seq} {entry.at:.3f} {entry.kind} {entry.state}\n"
        self._digest.update(line.encode())
        number = int(entry.run.split("-")[1])
        at, fault = self._last_fault.get(number, (-1e9, ""))
        if self.schedule.now - at > 3_600.0:
            fault = ""
        self.covered[before.state.value, entry.kind, fault] += 1
        if entry.decisions or before.state is not after.state:
            did = "; ".join(str(each["reason"]) for each in entry.decisions)
            self.say(number, f"[{entry.kind}] {after.state}{': ' if did else ''}{did}")

    def seen_handoff(self, kind: str, session: TerminalSession, cycle: dict[str, Any]) -> None:
        """The daemon logged a fact of a handoff in a terminal, and the resulting state."""
        number, step = session.number, cycle["step"]
        self.figures.facts += 1
        self._digest.update(f"{number} {step} {kind} {self.schedule.now:.3f}\n".encode())
        self.covered[f"handoff {step}", kind, ""] += 1
        session.watch.noted(cycle)
        if kind == "planned":
            self.say(number, f"handoff {cycle['id']} begins at {cycle['used_tokens']} tokens")
            self.in_handoff(number)
        elif cycle["step_at"] == self.machine.clock.now():
            self.say(number, f"[{kind}] handoff {step}: {cycle['why']}")
        if step == "done":
            session.watch.handed_over(cycle)

    def seen_wake(self, verdict: str, session: TerminalSession) -> None:
        """The daemon logged its verdict on a session that stopped."""
        self._digest.update(f"{session.number} {verdict} {self.schedule.now:.3f}\n".encode())
        self.covered["stopped session", verdict, ""] += 1
        self.say(session.number, f"the daemon's verdict: {verdict}")

    # What the daemon queries

    def queued_runs(self) -> set[str]:
        """Runs that a worker of the queue handles."""
        return {task.run for task in self.queue.tasks(unfinished=True)}

    def take_up(self, run: Run) -> "ResumedProcess":
        """`segue resume`, by the daemon."""
        session = self.sessions[int(run.id.split("-")[1])]
        is_queued = isinstance(session, QueuedSession)
        must(not is_queued, "a task in one process at a time", f"{run.id} is a task's run")
        asked = bool(self.store.asks(run.id))
        session.watch.taken_up(run, asked=asked)
        session.resume(by_user=False)
        return ResumedProcess(session)

    # What goes wrong

    def suffer(self, planned: PlannedFault, *, again: bool = False) -> None:
        """Lets a fault happen. One that strikes in a handoff waits for the next handoff; one that
        can affect nothing yet waits for the session's next work. With `again`, it has waited."""
        now, fault = self.schedule.now, planned.fault
        if planned.in_handoff and not again:
            self.sessions[planned.session].awaiting.append(planned)
            return
        if not self._happens(planned):
            if not again:
                self.sessions[planned.session].pending.append(planned)
            return
        self.figures.faults[fault.value] += 1
        concerned = range(len(self.sessions)) if fault in _ALL else (planned.session,)
        for number in concerned:
            self._last_fault[number] = (now, fault.name)
        self.say(planned.session, f"FAULT: {fault}")

    def in_handoff(self, session: int, *, answered: bool = False) -> None:
        """Lets faults that wait for a handoff strike in this one, at most two: after it began or,
        one in three, when its session has just answered."""
        awaiting = self.sessions[session].awaiting
        meant = [each for each in awaiting if (int(each.size * 1_000) % 3 == 0) is answered][:2]
        for planned in meant:
            awaiting.remove(planned)
            wait_s = round((3.0 if answered else 90.0) * planned.size**2, 3)
            self.schedule.at(self.schedule.now + wait_s, partial(self.suffer, planned, again=True))

    def _happens(self, planned: PlannedFault) -> bool:
        now, fault, size = self.schedule.now, planned.fault, planned.size
        account = self.account_of(planned.session)
        if fault is Fault.REBOOT:
            self._reboot()
        elif fault is Fault.SLEEP:
            self.machine.sleep(now, 60.0 + 30_000.0 * size * size)
        elif fault is Fault.CLOCK_JUMP:
            self.machine.clock.offset_s += (size - 0.5) * 7_200.0
            self.machine.jumped_at = now
            for session in self.sessions:
                session.wake()
        elif fault is Fault.DISK_FULL:
            self.machine.disk_full_until = now + 60.0 + 7_200.0 * size
        elif fault is Fault.OUTAGE:
            account.outage_until = max(account.outage_until, now + 30.0 + 7_200.0 * size**3)
        elif fault is Fault.OVERLOAD:
            account.overloaded_until = max(account.overloaded_until, now + 10 + 9_000 * size**3)
        elif fault is Fault.LIMIT:
            if account.limited_until < now:
                account.limited_until = now + 300.0 + 17_700.0 * size
                form = ("time", "time", "seconds", "nothing")[int(size * 1000) % 4]
                account.limit_told = form  # type: ignore[assignment]
        elif fault is Fault.REFUSED:
            account.refused_until = now + 3_600.0 * size
        else:
            return bool(self.sessions[planned.session].suffer(planned))
        return True

    def _reboot(self) -> None:
        self.machine.reboot(self.schedule.now)
        for session in self.sessions:
            session.die()
        self.daemon.kill("the machine goes down")
        self.workers.kill(600.0)
        self.alive.clear()

    def _look(self) -> None:
        for session in self.sessions:
            session.watch.look()
        self.workers.look()
        self.schedule.at(self.schedule.now + _LOOK_S, self._look)


_ALL = frozenset(
    {
        Fault.REBOOT,
        Fault.SLEEP,
        Fault.CLOCK_JUMP,
        Fault.DISK_FULL,
        Fault.OUTAGE,
        Fault.OVERLOAD,
        Fault.LIMIT,
        Fault.REFUSED,
    }
)


def play(plan: Plan) -> Result:
    """Plays a world."""
    return World(plan).play()


def quieter(plan: Plan, left: Sequence[PlannedFault]) -> Plan:
    """The plan of the same world with only these faults."""
    return replace(plan, faults=tuple(left))
