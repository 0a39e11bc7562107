"""A headless session of a world: a project whose user gives one task after another to `segue run`.
Loop, journal, store and leases are the real ones; the world's daemon adopts a run that nobody
drives.

All in one file, because user, agent and loop act on one project.
"""

from contextlib import suppress
from functools import partial
from math import ceil
from random import Random
from typing import Any, cast

from msgspec.structs import replace

from segue.core.policy import Policy
from segue.core.runs import machine
from segue.core.runs.types import Created, HungUp, InterruptRequested, Run, RunState, StartLeg
from segue.errors import SegueError
from segue.runs.executor import Executor
from segue.runs.journal import Journal
from segue.runs.loop import Loop
from segue.runs.starting.driver import Driver, TreeTaken
from segue.runs.store.port import Held, Holder, Lease, LeaseLost, run_key
from segue.testing.simulation import models
from segue.testing.simulation.faults import Fault, PlannedFault
from segue.testing.simulation.headless.executors import SimulatedExecutor
from segue.testing.simulation.headless.legs import Conversation, Leg, Project
from segue.testing.simulation.invariants import RunWatch
from segue.testing.simulation.stores import DriversStore, Killed

_FAILING = 14
_MIN_S = 0.02
_IN_VAIN_S = 5.0
_NOTICED_S = 0.1  # from a record to the loop's turn that reads it


class SimulatedDriver(Driver):
    """A segue process: the real driver, with a simulated process id and executor."""

    def __init__(self, session: "HeadlessSession", holder: Holder | None = None) -> None:
        world = session.world
        store = DriversStore(world.store, session.armed, world.decided)
        super().__init__(
            cast("Any", store),
            env={},
            prompts={},
            clock=world.machine.clock,
            draw=session.random.random,
        )
        self.session, self.faulty = session, store
        self.holder = holder or world.machine.spawn()
        world.alive.add(self.holder.pid)

    def begin_run(self, run: Run) -> Loop:
        """Like `begin`, but with an id that is the same every time this world is played."""
        now, draw = self.clock.now(), self.draw()
        step = machine.step(run, Created(), at=now, draw=draw)
        lease = self._hold(run_key(run.id), "segue run")
        self.store.create(run, after=step.run, at=now, draw=draw, decisions=step.decisions)
        self.faulty.decided.add((run.id, step.run.leg))
        return self._loop(step.run, cast("Any", None), (), lease)

    def _loop(self, run: Run, drive: Any, command: tuple[str, ...], lease: Lease) -> Loop:
        journal = Journal(self.store, run, lease, clock=self.clock.now, draw=self.draw)
        hold = partial(self._hold_once, note="segue run")
        executor = SimulatedExecutor(run, self.session, self.store, hold)
        journal.listeners.append(partial(self.session.watch.entry, self.holder.pid))
        return Loop(journal, cast("Executor", executor), clock=self.clock)

    def _hold_tree(self, run: Run) -> None:
        try:
            self._hold(f"tree:{run.cwd}", run.id)
        except Held:
            raise TreeTaken(f"another run works in {run.cwd}") from None

    def _hold(self, key: str, note: str) -> Lease:
        now = self.clock.now()
        lease = self.store.acquire(key, self.holder, now, seize=self.seize)
        self._stack.callback(self._release, lease)
        self._held.add(key)
        return lease


class HeadlessSession:
    """One project, one agent, one user."""

    def __init__(self, world: Any, number: int, policy: Policy, random: Random) -> None:
        self.world, self.number, self.policy, self.random = world, number, policy, random
        self.model = random.choice(models.MODELS)
        self.window = random.choice(self.model.windows)
        self.armed: set[Fault] = set()
        self.failing = 0  # number of coming legs that fail before they do anything
        self.legs: dict[tuple[str, int], Leg] = {}
        self.talks: dict[str, Conversation] = {}
        self.project = Project(steps=0)
        self.driver: SimulatedDriver | None = None
        self.loop: Loop | None = None
        self.run_id = ""
        self.runs = 0
        self.pending: list[PlannedFault] = []  # waits until there is work
        self.awaiting: list[PlannedFault] = []  # waits for a handoff
        self.watch = RunWatch(self)
        self._turn_at: float | None = None
        self._later(random.expovariate(1 / 20_000.0), self.new_task)

    def say(self, what: str) -> None:
        """Adds a line to the story."""
        self.world.say(self.number, what)

    def _later(self, wait_s: float, act: Any) -> None:
        self.world.schedule.at(self.world.schedule.now + wait_s, act)

    # The user

    def new_task(self) -> None:
        """The user gives the next task."""
        if self.world.machine.awake_at > self.world.schedule.now:
            self.world.schedule.at(self.world.machine.awake_at + 60.0, self.new_task)
            return
        self._forget()
        self.runs += 1
        self.run_id = f"run-{self.number}-{self.runs}"
        self.project = Project(steps=models.steps_of_task(self.random))
        check = "make test" if self.random.random() < 0.2 else ""
        policy = self.policy
        if self.random.random() < 0.15:
            policy = replace(policy, max_tokens=self.random.randrange(200_000, 4_000_000))
        if self.random.random() < 0.1:
            policy = replace(policy, max_wall_s=self.random.uniform(3_600, 90_000))
        run = Run(
            id=self.run_id,
            task=f"{self.project.steps} steps",
            agent=self.model.name,
            cwd=f"/p{self.number}",
            created_at=self.world.machine.clock.now(),
            policy=policy,
            abilities=self.model.abilities,
            check=check,
        )
        self.watch.begin(run)
        self.say(f"the user gives a task of {self.project.steps} steps")
        driver = SimulatedDriver(self)
        try:
            loop = driver.begin_run(run)
        except SegueError as fault:
            self.say(f"it could not begin: {fault}")
            self._leave(driver)
            self._later(3_600.0, self.new_task)
            return
        self._drive(driver, loop, None)

    def resume(self, *, by_user: bool, seizes: bool = False) -> bool:
        """`segue resume`, by the user or by the daemon. Returns whether it drives the run now."""
        run = self.world.store.run(self.run_id)
        if run is None:
            return False
        driver = SimulatedDriver(self)
        driver.seize = seizes
        driver.faulty.is_full = self.world.is_disk_full
        policy = None
        if run.policy.max_tokens is not None and run.tokens >= run.policy.max_tokens:
            policy = replace(run.policy, max_tokens=None)
        if run.policy.max_wall_s is not None and by_user:
            policy = replace(policy or run.policy, max_wall_s=None)
        try:
            loop, first = driver.go_on(
                run, cast("Any", None), (), fresh=by_user and self.random.random() < 0.1,
                share_tree=True, policy=policy,
            )  # fmt: skip
        except Held:
            self.watch.refused(driver.holder.pid)
            self._leave(driver)
            return False
        self.watch.resumed(run, by_user=by_user, takes_back=first is not None)
        self.watch.drives(driver.holder.pid)
        self.say("the user resumes the run" if by_user else "the daemon takes the run up")
        self._drive(driver, loop, first)
        return True

    def _second(self, *, seizes: bool) -> None:
        """A second segue tries to drive the same run. It is refused, unless the user lets it seize
        the run; then the first one may write nothing more."""
        old, loop = self.driver, self.loop
        if old is None or loop is None:
            return
        if not seizes:
            self.resume(by_user=True)
            return
        self.say("the user takes the run away from a segue that is believed dead")
        self.watch.dies(old.holder.pid)
        self.driver = self.loop = None
        self._turn_at = None
        if not self.resume(by_user=True, seizes=True):
            return
        loop._signals.append(InterruptRequested())
        with suppress(LeaseLost, Killed):
            loop._turn()
            loop.journal.add(InterruptRequested())
        self.world.alive.discard(old.holder.pid)

    # The segue process

    def _drive(self, driver: SimulatedDriver, loop: Loop, first: Any) -> None:
        self.driver, self.loop = driver, loop
        self.watch.drives(driver.holder.pid)
        self._guarded(lambda: loop._begin(first))

    def wake(self) -> None:
        """Plans a turn of the loop, because there is something to see."""
        self._plan(self.world.schedule.now + _NOTICED_S)

    def _plan(self, at: float) -> None:
        if self.driver is None or (self._turn_at is not None and self._turn_at <= at):
            return
        self._turn_at = at
        pid = self.driver.holder.pid
        self.world.schedule.at(at, partial(self._turn, pid, at))

    def _turn(self, pid: int, at: float) -> None:
        if self.driver is None or self.driver.holder.pid != pid or self._turn_at != at:
            return
        self._turn_at = None
        if (awake_at := self.world.machine.awake_at) > self.world.schedule.now:
            self._plan(awake_at + 0.05)
            return
        loop = self.loop
        assert loop is not None
        self._guarded(loop._turn)

    def _guarded(self, act: Any) -> None:
        """Runs a step of the segue process, and handles how it ends."""
        driver, loop = self.driver, self.loop
        if driver is None or loop is None:
            return
        driver.faulty.is_full = self.world.is_disk_full
        try:
            act()
        except Killed:
            self.say("segue is killed in the middle of it")
            self.die()
            return
        except (SegueError, OSError) as fault:
            self.say(f"segue ends: {fault}")
            self.watch.gives_up(loop.run, str(fault))
            self._leave(driver)
            self._left_alone()
            return
        self.watch.after_turn(loop)
        run = loop.run
        if not run.state.is_final and not self.world.is_disk_full:
            self._guarded_news(loop)
            if self.loop is None:
                return
        if run.state.is_final:
            self._leave(driver)
            self._over(run)
        elif loop._must_exit:
            self._leave(driver)
            self._left_alone()
        elif loop._is_parked:
            self._leave(driver)
            self._parked(run)
        else:
            self._plan_next(loop)

    def _guarded_news(self, loop: Loop) -> None:
        try:
            self.watch.told_twice(loop)
        except Killed:
            self.die()

    def _plan_next(self, loop: Loop) -> None:
        left = [left_s for _, left_s in loop._deadlines()]
        if loop._in_vain:
            left.append(_IN_VAIN_S)
        check = cast("Any", loop.check)
        if check is not None:
            left.append(check.left_s)
        if loop.run.policy.max_tokens is not None and loop.follower is not None:
            left.append(20.0)
        follower = cast("Any", loop.follower)
        if follower is not None and follower.leg.exit is not None:
            left.append(_MIN_S)
        if left:
            self._plan(self.world.schedule.now + max(_MIN_S, min(left)))
        elif follower is None:
            self.watch.stuck(loop.run)

    def die(self) -> None:
        """kill -9: nothing is released."""
        if self.driver is not None:
            self.world.alive.discard(self.driver.holder.pid)
            self.watch.dies(self.driver.holder.pid)
            self.driver = self.loop = None
            self._turn_at = None
            self._left_alone()

    def _leave(self, driver: SimulatedDriver) -> None:
        """The process ends and releases what it held."""
        driver._stack.close()
        self.world.alive.discard(driver.holder.pid)
        self.watch.dies(driver.holder.pid)
        if driver is self.driver:
            self.driver = self.loop = None
            self._turn_at = None

    def _parked(self, run: Run) -> None:
        """The process has ended because the run waits for a long time. For a run outside the queue
        there is nothing to do."""

    def _left_alone(self) -> None:
        """Nobody drives the run now. The daemon looks at it, and the user may."""
        for leg in self.legs.values():
            leg.is_alone = True
        self.world.daemon.stir()
        self._later(self.random.expovariate(1 / 30_000.0) + 600.0, self._user_looks)

    def _user_looks(self) -> None:
        run = self.world.store.run(self.run_id)
        if self.driver is not None or run is None or run.state.is_final:
            return
        if (
            self.world.machine.awake_at > self.world.schedule.now
            or self.world.is_disk_full
            or not self.resume(by_user=True)
        ):
            self._later(3_600.0, self._user_looks)

    def _over(self, run: Run) -> None:
        """A run has ended. The user resumes it, or starts something else."""
        self.say(f"the run is {run.state}: {run.outcome.what if run.outcome else ''}")
        self.watch.over(run)
        tries_again = run.state is not RunState.DONE and self.random.random() < 0.4
        wait_s = self.random.expovariate(1 / (40_000.0 if tries_again else 150_000.0))
        self._later(wait_s + 60.0, self._again if tries_again else self.new_task)

    def _again(self) -> None:
        machine = self.world.machine
        if machine.awake_at > self.world.schedule.now or self.world.is_disk_full:
            self._later(3_600.0, self._again)
        elif not self.resume(by_user=True):
            self._later(3_600.0, self.new_task)

    def _forget(self) -> None:
        """Deletes the run that is over, so that a world of years does not grow."""
        if self.run_id:
            self.watch.replays(self.run_id)
            store = self.world.store
            holder = self.world.machine.spawn()
            lease = store.acquire(run_key(self.run_id), holder, self.world.machine.clock.now())
            store.forget(self.run_id, epoch=lease.epoch)
            self.world.daemon.log.forget_sessions([(self.model.name, self.run_id)])
        self.legs.clear()
        self.talks.clear()

    # The agent

    def begin_leg(self, run: Run, order: StartLeg, store: Any) -> Leg:
        """Starts the process of a leg, in the session that the order names or in a new one."""
        self.watch.starts(run, order)
        talk = self.talks.get(order.session_id)
        if talk is None:
            name = order.session_id or f"s-{run.id}-{order.leg}"
            used = self.model.base_tokens
            known = 0
            if order.prompt == "continuation":
                checkpoint = store.checkpoint(run.id, run.checkpoint) if run.checkpoint else None
                is_told = checkpoint is not None and order.strategy != "minimal"
                known = int(checkpoint["done"]) if is_told and checkpoint else self.project.last
                used += 6_000 if is_told else 1_000
            elif order.prompt == "check":
                known = self.project.last
            talk = Conversation(id=name, window_tokens=self.window, used_tokens=used, known=known)
            self.talks[name] = talk
        if order.prompt == "check":  # one more thing to fix
            self.project.steps += 1
        leg = Leg(
            order,
            talk,
            self.project,
            model=self.model,
            growth=self.world.growth,
            account=self.world.account_of(self.number),
            machine=self.world.machine,
            schedule=self.world.schedule,
            random=self.random,
            armed=self.armed,
            report=partial(self.watch.agent_did, order.leg),
            marks=self._marks(),
        )
        self.legs[run.id, order.leg] = leg
        if Fault.FAILS_ANEW in self.armed:
            self.armed.discard(Fault.FAILS_ANEW)
            self.failing = _FAILING
        if self.failing:
            self.failing -= 1
            leg.fails = f" {self.failing}"
        for planned in self.pending:
            self._later(1_500.0 * planned.size**4, partial(self.world.suffer, planned, again=True))
        self.pending.clear()
        return leg

    def _marks(self) -> tuple[int, ...]:
        policy = self.policy
        if policy.hard_mark > 1 or self.model.compacts_at is not None:
            return ()
        return (ceil(policy.soft_mark * self.window), ceil(policy.hard_mark * self.window))

    def live_leg(self) -> Leg | None:
        """The newest leg that is running."""
        for leg in reversed(self.legs.values()):
            if leg.is_alive and leg.boot == self.world.machine.boot:
                return leg
        return None

    # What goes wrong

    def suffer(self, planned: PlannedFault) -> bool:
        """Lets a fault of this session happen. Returns whether it had an effect."""
        fault, leg = planned.fault, self.live_leg()
        if fault in _ARMED:
            self.armed.add(fault)
            return True
        if fault is Fault.KILL_AGENT and leg is not None:
            leg.end("killed")
            return True
        if fault is Fault.SECOND_SEGUE and self.driver is not None:
            self._second(seizes=planned.size > 0.5)
            return True
        if fault is Fault.CANCEL and self.loop is not None:
            self.world.store.ask(self.run_id, "cancel", self.world.machine.clock.now())
            self.loop._store_version = -1
            self.wake()
            return True
        if fault not in (Fault.KILL_SEGUE, Fault.CTRL_C, Fault.HANG_UP):
            return False
        if self.driver is None or self.loop is None:
            return False
        if fault is Fault.KILL_SEGUE:
            self.die()
        elif fault is Fault.CTRL_C:
            self.loop._signals.append(InterruptRequested())
        else:
            self.loop._signals.append(HungUp())
        self.wake()
        return True


_ARMED = frozenset(
    {
        Fault.KILL_AT_WRITE,
        Fault.KILL_AT_ACT,
        Fault.NO_CHECKPOINT,
        Fault.HANG,
        Fault.CRASH,
        Fault.NOT_LOADED,
        Fault.DISOBEYS,
        Fault.MUTE,
        Fault.SPIKE,
        Fault.DECLINES,
        Fault.FAILS_ANEW,
    }
)
"""Faults that wait for the moment at which they can happen."""
